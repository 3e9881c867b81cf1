#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the adapter itself tells of a completion, read in the CQ of an unmodified program: when it made
one that came late, and why one failed.

  completion_stamps_test.py --build DIR [CASE...]
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "accuracy")]
import intervals  # noqa: E402  (as the next ones: found through the line above)
import judge  # noqa: E402
import pingpong  # noqa: E402
import session  # noqa: E402

LEARNT_S = 3  # what the adapter's clock is
FAULTS = 6
HOG = """
import time
print("runs", flush=True)
end = time.monotonic() + 0.85
while time.monotonic() < end: pass
"""
LOOKS_NS = 600_000  # edges of what looks tell, here


class CompletionStamps(unittest.TestCase):
    def setUp(self):
        session.leave_polled_core()
        self.directory = tempfile.mkdtemp(prefix="pollgap-stamps.")
        self.addCleanup(shutil.rmtree, self.directory)

    def watch(self, inject):
        """The gaps of a report, while `inject(target)` was called."""
        path = os.path.join(self.directory, "report.json")
        target = pingpong.PingPong(self.build, f"stamps-{os.getpid()}", 10_000_000)
        self.addCleanup(target.kill)
        with session.Programs(self.build).start_agent(
                target.client.pid, "--timing", "observe", "--output", path) as agent:
            agent.wait_for(r"attached to \d+ \(", 120)
            time.sleep(LEARNT_S)
            inject(target)
            agent.signal(session.signal.SIGTERM)
            self.assertEqual(agent.wait(120), 0, agent.text())
        with open(path, encoding="utf-8") as file:
            return json.load(file)["gaps"]

    def late_through(self, *fault):
        """While that fault was in force, so many times: nanoseconds of late completions, and those of
        them that are laid to the write of the CQE."""
        during = []

        def inject(target):
            for _ in range(FAULTS):
                answer = target.control(*fault)
                during.append((answer["start_ns"], answer["end_ns"]))
                time.sleep(0.3)

        gaps = self.watch(inject)
        print(next((gap["verdict"]["text"] for gap in gaps if gap["verdict"]["cause"] == "late_completion"),
                   "no late completion"))
        times = []
        for where in during:
            late = [(segment["detail"]["reason"], intervals.length(intervals.intersection(part, where)))
                    for gap in gaps for segment, part in judge.segments(gap)
                    if segment["cause"] == "late_completion" and intervals.overlaps(part, where)]
            times.append((intervals.length(where), sum(ns for _, ns in late),
                          sum(ns for reason, ns in late if reason == "cqe_write")))
        print(f"{fault}: " + ", ".join("{:.2f} ms: {:.2f} late, {:.2f} unwritten".format(
            *(ns / 1e6 for ns in one)) for one in times), flush=True)
        return times

    def late_ones(self, times):
        """Not all of them: one that came while the client had no send outstanding, and waited for a message
        alone, made none late; and where the client was preempted, that is what it was."""
        late = [one for one in times if one[1] > 2 * LOOKS_NS]
        self.assertGreater(sum(one[1] for one in late), times[0][0])
        return late

    def test_made_and_not_written(self):
        for _, late_ns, unwritten_ns in self.late_ones(self.late_through("hold", "for=8ms")):
            self.assertGreater(unwritten_ns, late_ns - LOOKS_NS)

    def test_not_made(self):
        for _, _, unwritten_ns in self.late_ones(self.late_through("pause", "for=8ms")):
            self.assertEqual(unwritten_ns, 0)

    def test_an_error_that_nobody_polls_for(self):
        """While the client cannot run, and nothing else can come."""
        failed = {}

        def inject(target):
            tasks = f"/proc/{target.client.pid}/task"
            for tid in map(int, os.listdir(tasks)):
                with open(f"{tasks}/{tid}/comm", encoding="ascii") as comm:
                    if comm.read().strip() == "soft-hca-mgmt":  # that does what control() asks for
                        os.sched_setaffinity(tid, {min(session.CPUS)})
            failed.update(target.control("list"))
            target.control("pause", "for=1500ms")
            with subprocess.Popen(["taskset", "-c", str(max(session.CPUS)), "chrt", "-f", "50",
                                   sys.executable, "-c", HOG], stdout=subprocess.PIPE) as hog:
                hog.stdout.readline()
                target.control("fail", f"qp={failed['qp']}", "vendor=0x81")

        errors = [gap["evidence"]["errors"] for gap in self.watch(inject) if "errors" in gap["evidence"]]
        print(errors, flush=True)
        self.assertEqual(len(errors), 1)
        self.assertEqual(errors[0]["first_qp_num"], failed["qp"])
        # Where only a receive was outstanding, that is flushed.
        if errors[0]["first_status_name"] != "IBV_WC_WR_FLUSH_ERR":
            self.assertEqual(errors[0]["first_status_name"], "IBV_WC_RETRY_EXC_ERR")
            self.assertEqual(errors[0]["first_vendor_err"], 0x81)


if __name__ == "__main__":
    session.run_cases(CompletionStamps, __doc__)

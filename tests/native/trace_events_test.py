#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Kernel tracepoints as a gap's evidence, on this machine's kernel, as root. It has none of RDMA's:
those that a user names stand for them.

  trace_events_test.py --build DIR [CASE...]
"""
import filecmp
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import unittest

import jsonschema

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import session  # noqa: E402  (found through the line above)


class TraceEvents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        session.leave_polled_core()
        cls.programs = session.Programs(cls.build)

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="pollgap-trace.")
        self.addCleanup(shutil.rmtree, self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def watch(self, patterns, act):
        """The report of a session in which `act` was done to the workload's PID."""
        options = [word for pattern in patterns for word in ("--trace-event", pattern)]
        with self.programs.start_workload("--duration", "400s") as workload:
            with self.programs.start_agent(workload.pid, "--threshold", "5ms", "--output",
                                           self.path("report.json"), "--capture",
                                           self.path("events.pgc"), *options) as agent:
                agent.wait_for(r"(?i)\battached\b", 180)
                act(workload.pid)
                time.sleep(0.3)
                self.assertEqual(session.stop(agent, 120), 0, agent.text())
        with open(self.path("report.json"), encoding="utf-8") as file:
            report = json.load(file)
        with open(os.path.join(HERE, "../../tools/report.schema.json"), encoding="utf-8") as file:
            jsonschema.Draft202012Validator(json.load(file)).validate(report)
        return report

    def test_they_are_decoded_in_the_gap_they_fall_in(self):
        def stop(pid):
            for _ in range(3):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.02)
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.1)

        report = self.watch(["signal:signal_generate", "nosuchgroup:*"], stop)
        stopped = [gap for gap in report["gaps"] if gap["verdict"]["cause"] == "stopped"]
        self.assertEqual(len(stopped), 3)
        for gap in stopped:
            continued = [event for event in gap["evidence"].get("trace_events", [])
                         if event["fields"].get("sig") == str(int(signal.SIGCONT))]
            self.assertEqual(len(continued), 1, gap["evidence"])
            event = continued[0]
            self.assertEqual(event["event"], "signal:signal_generate")
            self.assertIn("sig=18 errno=0", event["text"])
            self.assertEqual(event["task"]["pid"], os.getpid())
            self.assertLessEqual(event["offset_ns"], gap["duration_ns"])
            self.assertIn("; meanwhile signal:signal_generate", gap["verdict"]["text"])
        coverage = report["coverage"]
        self.assertIn("signal:signal_generate", coverage["trace_events"])
        self.assertEqual(coverage["trace_events_dropped"], 0)
        self.assertTrue(any("nosuchgroup:*" in text for text in coverage["warnings"]), coverage)
        replay = session.Child([self.programs.pollgap, "replay", self.path("events.pgc"), "--output",
                                self.path("replay.json")])
        self.assertEqual(replay.wait(30), 0, replay.text())
        self.assertTrue(filecmp.cmp(self.path("report.json"), self.path("replay.json"), shallow=False))

    def test_a_flood_is_bounded_and_counted(self):
        calls = 100_000

        def flood(_):
            for _ in range(calls):
                os.getppid()

        coverage = self.watch(["syscalls:sys_enter_getppid"], flood)["coverage"]
        self.assertGreater(coverage["trace_events_dropped"], 0)
        self.assertLess(coverage["trace_events_dropped"], calls)
        self.assertEqual(coverage["lost_records"], 0)
        self.assertTrue(any("came too fast" in text for text in coverage["warnings"]), coverage)


if __name__ == "__main__":
    session.run_cases(TraceEvents, __doc__)

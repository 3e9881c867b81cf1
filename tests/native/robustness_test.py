#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Bad targets, bad moments and bad surroundings, on the real kernel, as root.

  robustness_test.py [--build DIR] [CASE...]     CASE as --list prints them

The agent is killed, or detached, POLLGAP_KILL_ROUNDS times in each case that does so (default: 6).
"""
import glob
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import pingpong  # noqa: E402  (as the next one: found through the line above)
import session  # noqa: E402

KILL_ROUNDS = int(os.environ.get("POLLGAP_KILL_ROUNDS", "6"))
ATTACHED = r"attached to \d+ \("  # not "exited while pollgap attached to it"
MESSAGES = 100_000  # of a ping-pong: some seconds
build = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build")


def bpf_objects(pid):
    """The BPF programs, links and maps that a process holds, as {("prog", 12), ...}."""
    objects = set()
    for path in glob.glob(f"/proc/{pid}/fdinfo/*"):
        try:
            with open(path, encoding="ascii") as info:
                text = info.read()
        except OSError:
            continue
        objects |= {(kind, int(number))
                    for kind, number in re.findall(r"^(prog|link|map)_id:\s*(\d+)$", text, re.MULTILINE)}
    return objects


def still_there(objects):
    """Those of the BPF objects that the kernel still has."""
    return {(kind, number) for kind, number in objects
            if subprocess.run(["bpftool", kind, "show", "id", str(number)], check=False,
                              capture_output=True).returncode == 0}


def gone_within(objects, seconds):
    """The objects that remain after that time: the kernel frees them after an RCU grace period."""
    deadline = time.monotonic() + seconds
    while (left := still_there(objects)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def changed_text(pid):
    """Places where the code in memory differs from its file: where a breakpoint was left."""
    changed = []
    with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as maps:
        lines = maps.read().splitlines()
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in lines:
            span, access, offset, _, _, *path = line.split(maxsplit=5)
            if "x" not in access or not path or not path[0].startswith("/"):
                continue
            start, end = (int(edge, 16) for edge in span.split("-"))
            memory.seek(start)
            live = memory.read(end - start)
            with open(f"/proc/{pid}/map_files/{span}", "rb") as image:
                image.seek(int(offset, 16))
                original = image.read(end - start)
            if live == original:  # almost all of it, megabytes
                continue
            changed += [f"{path[0]}+{int(offset, 16) + i:#x}"
                        for i in range(min(len(live), len(original))) if live[i] != original[i]]
    return changed


def restored_within(pid, seconds):
    """What is still changed after that time at most: the kernel takes a dead agent's breakpoints off
    one by one, after its links have gone from the list of BPF objects."""
    deadline = time.monotonic() + seconds
    while (changed := changed_text(pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return changed


def left_in(target, seconds):
    """Breakpoints that remain in a target after that time, if it has not ended."""
    try:
        return restored_within(target.pid, seconds)
    except OSError:
        if target.running():
            raise
        return []


def within(seconds, condition):
    deadline = time.monotonic() + seconds
    while not (true := condition()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return true


def tracefs_probes():
    with open("/sys/kernel/tracing/uprobe_events", encoding="ascii") as events:
        return set(events.read().splitlines())


def thirty_two_bit_program():
    """A static i386 ELF image whose only work is pause(2), for ever."""
    code = bytes.fromhex("b81d000000" "cd80" "ebf7")  # mov $29, %eax; int $0x80; jmp to the start
    base, headers = 0x08048000, 52 + 32
    header = struct.pack("<16sHHIIIIIHHHHHH", b"\x7fELF\x01\x01\x01".ljust(16, b"\0"), 2, 3, 1,
                         base + headers, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    segment = struct.pack("<IIIIIIII", 1, 0, base, base, headers + len(code), headers + len(code), 5,
                          0x1000)
    return header + segment + code


class Robustness(unittest.TestCase):
    def setUp(self):
        self.programs = session.Programs(build)
        self.directory = tempfile.mkdtemp(prefix="pollgap-robustness.")
        self.addCleanup(shutil.rmtree, self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def start(self, starter, *arguments):
        child = starter(*arguments)
        self.addCleanup(child.kill)
        return child

    def workload(self, *options):
        return self.start(self.programs.start_workload, *options)

    def polled_workload(self, *options):
        """A workload, its polling thread, and the core of that, which this process leaves."""
        polled = max(session.CPUS)
        if polled == 0:
            self.skipTest("needs two CPUs")
        session.leave_polled_core()
        self.addCleanup(os.sched_setaffinity, 0, session.CPUS)
        target = self.workload(*options)
        found, _ = target.wait_for(r"ready pid=\d+ tid=(\d+)", 10)
        return target, int(found[1]), polled

    def agent(self, pid, *options):
        return self.start(self.programs.start_agent, pid, *options)

    def assert_one_error_line(self, agent, *words):
        """One line on standard error: what, which object, what to do."""
        lines = [line for line in agent.text("err").splitlines() if line]
        self.assertEqual(len(lines), 1, lines)
        for word in words:
            self.assertIn(word, lines[0])

    def assert_report(self, path, pid):
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual(report["schema"], "pollgap.report/1")
        self.assertEqual(report["target"]["pid"], pid)
        return report

    # ---- the agent dies ----

    def kill_rounds(self, moment, *options):
        """Kills agents of one workload at moments that `moment(agent)` waits for."""
        before = tracefs_probes()
        target = self.workload()
        for number in range(KILL_ROUNDS):
            agent = self.agent(target.pid, *options)
            moment(agent)
            agent.signal(signal.SIGSTOP)  # it holds still while what it holds is read
            objects = bpf_objects(agent.pid)
            agent.kill()
            with self.subTest(round=number, objects=len(objects)):
                self.assertEqual(gone_within(objects, 10), set(), "BPF objects left")
                self.assertEqual(restored_within(target.pid, 30), [], "breakpoints left")
                self.assertEqual(tracefs_probes() - before, set(), "uprobe events left")
                self.assertTrue(target.running(), target.text())
        self.assertEqual(session.stop(target), 0, target.text())

    def pingpong(self):
        target = pingpong.PingPong(build, f"robustness-{os.getpid()}", MESSAGES)
        self.addCleanup(target.kill)
        return target

    def rounds_at_work(self, end_agent):
        """Ends agents of targets that work, with each timing in turn: the work is done as if nothing
        had been, and nothing is left."""
        before = tracefs_probes()
        work, targets, well = self.pingpong(), 1, 0
        for number in range(KILL_ROUNDS):
            if not work.client.running():
                self.assertEqual(work.problems(), [])
                work, targets = self.pingpong(), targets + 1
            agent = self.agent(work.client.pid, "--timing", ("uprobe", "observe", "auto")[number % 3])
            with self.subTest(round=number):
                objects = end_agent(agent, work.client)
                self.assertEqual(gone_within(objects, 10), set(), "BPF objects left")
                self.assertEqual(left_in(work.client, 30), [], "breakpoints left")
                self.assertEqual(tracefs_probes() - before, set(), "uprobe events left")
                well += 1
            if number % 100 == 99:
                print(f"{number + 1} rounds, {well} well", flush=True)
        self.assertEqual(work.problems(), [])
        print(f"{KILL_ROUNDS} rounds, {targets} targets")

    def test_killed_while_the_target_works(self):
        def kill(agent, _):
            time.sleep(random.uniform(0, 2))
            agent.signal(signal.SIGSTOP)
            objects = bpf_objects(agent.pid)
            agent.kill()
            return objects

        self.rounds_at_work(kill)

    def test_detached_while_the_target_works(self):
        def detach(agent, target):
            try:
                agent.wait_for(ATTACHED, 60)
            except session.Timeout:
                self.assertFalse(target.running(), agent.text())
                return set()
            time.sleep(random.uniform(0, 0.3))
            objects = bpf_objects(agent.pid)
            self.assertEqual(session.stop(agent, 60), 0, agent.text())
            return objects

        self.rounds_at_work(detach)

    def test_killed_while_attaching(self):
        self.kill_rounds(lambda _: time.sleep(random.uniform(0, 1.0)))

    def test_killed_while_attached(self):
        def moment(agent):
            agent.wait_for(ATTACHED, 60)
            time.sleep(random.uniform(0, 0.5))
            self.assertTrue(bpf_objects(agent.pid), "an attached agent holds BPF objects")

        self.kill_rounds(moment)

    def test_killed_while_detaching(self):
        def moment(agent):
            agent.wait_for(ATTACHED, 60)
            agent.signal(signal.SIGINT)
            time.sleep(random.uniform(0, 0.3))

        self.kill_rounds(moment)

    def test_detached_leaves_nothing(self):
        target = self.workload()
        agent = self.agent(target.pid)
        agent.wait_for(ATTACHED, 60)
        objects = bpf_objects(agent.pid)
        self.assertTrue(changed_text(target.pid), "an attached agent has breakpoints in the target")
        self.assertEqual(session.stop(agent), 0, agent.text())
        self.assertEqual(gone_within(objects, 10), set())
        self.assertEqual(changed_text(target.pid), [])
        self.assertEqual(session.stop(target), 0, target.text())

    # ---- the target is observed ----

    def test_killed_while_observing(self):
        self.kill_rounds(lambda _: time.sleep(random.uniform(0, 1.6)), "--timing", "observe")

    def test_no_breakpoint_in_the_poll_function_while_observing(self):
        target = self.workload()
        agent = self.agent(target.pid, "--timing", "observe", "--output", self.path("report.json"))
        agent.wait_for(ATTACHED, 60)
        self.assertEqual([place for place in changed_text(target.pid) if "mlx5" in place], [])
        time.sleep(1)
        self.assertEqual(session.stop(agent), 0, agent.text())
        self.assertEqual(changed_text(target.pid), [])
        observe = self.assert_report(self.path("report.json"), target.pid)["coverage"]["observe"]
        self.assertEqual((len(observe["cqs"]), observe["refused"]), (1, []))
        self.assertEqual(len(observe["cqs"][0]["threads"]), 1)
        self.assertGreater(observe["looks"], 100)
        self.assertEqual(session.stop(target), 0, target.text())

    def test_stuck_agent_takes_its_probes_off(self):
        """Nobody reads its output. When that is read again, it goes on."""
        for timing, probed_again in (("uprobe", True), ("auto", False)):
            with self.subTest(timing=timing), \
                    self.workload("--think-ns", "1ms", "--disturb", "sleep:period=20ms,length=5ms") as target, \
                    open(self.path("errors"), "wb") as errors:
                agent = subprocess.Popen(
                    [self.programs.pollgap, "attach", "--pid", str(target.pid), "--timing", timing,
                     "--threshold", "3ms", "--format", "jsonl", "--output", self.path("report.json")],
                    stdout=subprocess.PIPE, stderr=errors)
                self.addCleanup(agent.wait)
                self.addCleanup(agent.kill)

                def attached():
                    with open(self.path("errors"), encoding="utf-8") as lines:
                        return re.search(ATTACHED, lines.read())

                def polls_probed():
                    return [place for place in changed_text(target.pid) if "mlx5" in place] != []

                self.assertTrue(within(60, attached))
                self.assertTrue(polls_probed())
                self.assertTrue(within(60, lambda: not polls_probed()), "it is stuck, and its probes are there")
                reader = threading.Thread(target=agent.stdout.read)
                reader.start()
                if probed_again:
                    self.assertTrue(within(30, polls_probed), "it did not go on")
                time.sleep(1)
                agent.send_signal(signal.SIGINT)
                self.assertEqual(agent.wait(60), 0)
                reader.join()
                agent.stdout.close()
                report = self.assert_report(self.path("report.json"), target.pid)
                self.assertTrue(any("the agent was stuck for" in line
                                    for line in report["coverage"]["warnings"]))
                self.assertEqual(changed_text(target.pid), [])

    def test_observed_target_exits(self):
        for number in range(KILL_ROUNDS):
            target = self.workload()
            agent = self.agent(target.pid, "--timing", "observe", "--output", self.path("report.json"))
            if number % 2 == 0:
                agent.wait_for(ATTACHED, 60)
            time.sleep(random.uniform(0, 1))
            target.kill()
            with self.subTest(round=number):
                status = agent.wait(60)
                self.assertIn(status, (0, 3), agent.text())
                if status == 0:
                    self.assert_report(self.path("report.json"), target.pid)

    # ---- the target goes away ----

    def test_target_exits_while_attaching(self):
        for number in range(KILL_ROUNDS):
            target = self.workload()
            report = self.path(f"{number}.json")
            agent = self.agent(target.pid, "--output", report)
            time.sleep(random.uniform(0, 0.8))
            target.kill()
            with self.subTest(round=number):
                status = agent.wait(60)
                self.assertIn(status, (0, 3), agent.text())
                if status == 0:
                    self.assert_report(report, target.pid)
                else:
                    self.assert_one_error_line(agent, str(target.pid))

    def test_target_exits_while_attached(self):
        target = self.workload()
        agent = self.agent(target.pid, "--output", self.path("report.json"))
        agent.wait_for(ATTACHED, 60)
        time.sleep(0.3)
        target.kill()
        self.assertEqual(agent.wait(60), 0, agent.text())
        self.assert_report(self.path("report.json"), target.pid)

    def test_target_execs_while_attached(self):
        name = os.path.join(build, "tests/native/named_poll_target")
        target = self.start(session.Child, [name])
        target.wait_for("ready pid=", 30)
        agent = self.agent(target.pid, "--poll-site", f"{name}:poll_once", "--timing", "uprobe",
                           "--output", self.path("report.json"))
        agent.wait_for(ATTACHED, 60)
        target.signal(signal.SIGUSR1)
        self.assertEqual(agent.wait(60), 0, agent.text())
        self.assert_report(self.path("report.json"), target.pid)
        self.assertTrue(target.running(), "the new program runs on")
        self.assertEqual(changed_text(target.pid), [])

    def test_target_execs_while_attaching(self):
        name = os.path.join(build, "tests/native/named_poll_target")
        for number in range(KILL_ROUNDS):
            target = self.start(session.Child, [name])
            target.wait_for("ready pid=", 30)
            agent = self.agent(target.pid, "--poll-site", f"{name}:poll_once", "--timing", "uprobe",
                               "--output", self.path(f"{number}.json"))
            time.sleep(random.uniform(0, 0.8))
            target.signal(signal.SIGUSR1)
            with self.subTest(round=number):
                # The program that has poll_once is gone: a report, or one line that says so.
                status = agent.wait(60)
                self.assertIn(status, (0, 3, 6), agent.text())
                if status:
                    self.assert_one_error_line(agent)
                self.assertTrue(target.running(), "the new program runs on")
                self.assertEqual(changed_text(target.pid), [])
            target.kill()

    # ---- surroundings ----

    # ---- the target is moved ----

    def test_moved_away_while_it_waits(self):
        """Whom a thread waited for on the CPU that it left is told, though that task ran on."""
        target, tid, polled = self.polled_workload()
        agent = self.agent(target.pid, "--output", self.path("report.json"))
        agent.wait_for(ATTACHED, 60)
        hog = self.start(lambda: session.Child([sys.executable, "-c", f"""
import os, time
print("hog", flush=True)
os.sched_setaffinity(0, {{{polled}}})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
end = time.monotonic() + 0.2
while time.monotonic() < end: pass
"""]))
        hog.wait_for("hog", 30)
        time.sleep(0.05)
        os.sched_setaffinity(tid, {0})
        self.assertEqual(hog.wait(30), 0, hog.text())
        time.sleep(0.5)
        self.assertEqual(session.stop(agent, 60), 0, agent.text())
        report = self.assert_report(self.path("report.json"), target.pid)
        by_hog = {gap["id"]: sum(segment["duration_ns"] for segment in gap["segments"]
                                 if segment["detail"].get("task", {}).get("pid") == hog.pid)
                  for gap in report["gaps"]}
        gap = next(gap for gap in report["gaps"] if by_hog[gap["id"]] == max(by_hog.values()))
        self.assertEqual(gap["verdict"]["cause"], "preemption", gap)
        self.assertGreater(by_hog[gap["id"]], 20_000_000, gap)
        self.assertLess(by_hog[gap["id"]], 150_000_000, gap)
        self.assertEqual([move["to_cpu"] for move in gap["evidence"]["migrations"]], [0], gap)

    # ---- the target sleeps until completion events ----

    def test_woken_and_not_run(self):
        """Waiting for a completion is idle; having one and waiting for the core is not."""
        log, length_ns, delay_ns = self.path("log.jsonl"), 10_000_000, 3_000_000
        target, tid, _ = self.polled_workload(
            "--style", "event", "--depth", "1", "--soft-delay", f"{delay_ns}ns", "--log", log,
            "--go-file", self.path("go"), "--start-after", "100ms",
            "--disturb", f"fifo:period=100ms,length={length_ns}ns,count=5")
        agent = self.agent(target.pid, "--output", self.path("report.json"))
        agent.wait_for(ATTACHED, 60)
        with open(self.path("go"), "wb"):
            time.sleep(1.2)
        self.assertEqual(session.stop(agent, 60), 0, agent.text())
        self.assertEqual(session.stop(target, 30), 0, target.text())
        report = self.assert_report(self.path("report.json"), target.pid)
        with open(log, encoding="utf-8") as file:
            hogs = [record for record in map(json.loads, file) if record["type"] == "disturbance"]
        self.assertEqual(len(hogs), 5, hogs)
        for hog in hogs:
            start, end = hog["start_mono_ns"], hog["start_mono_ns"] + hog["duration_ns"]
            taken = [segment["duration_ns"] for gap in report["gaps"]
                     if gap["start_mono_ns"] < end and start < gap["start_mono_ns"] + gap["duration_ns"]
                     for segment in gap["segments"]
                     if segment["detail"].get("task", {}).get("pid") == hog["culprit"]["task"]["pid"]]
            # The completion comes within its delay from when the hog begins.
            self.assertGreater(sum(taken), length_ns - delay_ns - 1_000_000, hog)
            self.assertLess(sum(taken), hog["duration_ns"] + 1_000_000, hog)
        waits = next(cq["event_waits"] for cq in report["summary"]["cqs"] if cq["tid"] == tid)
        self.assertGreater(waits["wakeup_to_run"]["count"], 50, waits)
        self.assertGreater(waits["wakeup_to_run"]["longest_ns"], length_ns - delay_ns - 1_000_000, waits)

    def test_share_of_a_contended_core(self):
        """Beside another group's task on its core the target keeps its share: the agent, in the same
        group as the target, weighs next to nothing."""
        target, tid, polled = self.polled_workload()
        rival = self.start(lambda: session.Child([sys.executable, "-c", f"""
import os
os.setsid()
os.sched_setaffinity(0, {{{polled}}})
print("spins", flush=True)
while True: pass
"""]))
        rival.wait_for("spins", 30)

        def share():
            def ran():
                with open(f"/proc/{target.pid}/task/{tid}/schedstat", encoding="ascii") as file:
                    return int(file.read().split()[0])
            before, start = ran(), time.monotonic_ns()
            time.sleep(1)
            return (ran() - before) / (time.monotonic_ns() - start)

        ratios = []
        for _ in range(3):
            alone = share()
            agent = self.agent(target.pid, "--output", self.path("report.json"))
            agent.wait_for(ATTACHED, 60)
            ratios.append(share() / alone)
            self.assertEqual(session.stop(agent, 60), 0, agent.text())
        print("share of the core while attached, to before:", ratios)
        self.assertGreater(max(ratios), 0.6)

    def test_no_such_process(self):
        with open("/proc/sys/kernel/pid_max", encoding="ascii") as limit:
            pid = int(limit.read()) - 1
        self.assertFalse(os.path.exists(f"/proc/{pid}"))
        agent = self.agent(pid)
        self.assertEqual(agent.wait(30), 3, agent.text())
        self.assert_one_error_line(agent, str(pid))

    def test_full_disk_keeps_the_previous_report(self):
        disk = self.path("disk")
        os.mkdir(disk)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        report = os.path.join(disk, "report.json")
        previous = b'{"schema": "pollgap.report/1", "previous": true}\n'
        with open(report, "wb") as file:
            file.write(previous)
        with open(os.path.join(disk, "ballast"), "wb", buffering=0) as file:
            with self.assertRaises(OSError):
                while file.write(bytes(4096)):
                    pass
        target = self.workload()
        agent = self.agent(target.pid, "--duration", "1s", "--output", report)
        self.assertEqual(agent.wait(60), 1, agent.text())
        self.assertIn(report, agent.text("err"))
        self.assertIn("space", agent.text("err"))
        with open(report, "rb") as file:
            self.assertEqual(file.read(), previous)
        self.assertEqual(sorted(os.listdir(disk)), ["ballast", "report.json"], "no temporary file left")
        self.assertEqual(session.stop(target), 0, target.text())

    def test_unwritable_output_is_refused_before_attaching(self):
        target = self.workload()
        missing = self.path("no/such/folder/report.json")
        agent = self.agent(target.pid, "--duration", "60s", "--output", missing)
        self.assertIn(agent.wait(30), (1, 2), agent.text())
        self.assert_one_error_line(agent, missing)

    def test_no_privilege(self):
        os.chmod(self.directory, 0o755)
        program = shutil.copy(self.programs.pollgap, self.path("pollgap"))
        os.chmod(program, 0o755)
        target = self.workload()
        agent = self.start(session.Child, ["setpriv", "--reuid", "65534", "--regid", "65534",
                                           "--clear-groups", "--inh-caps=-all", program, "attach",
                                           "--pid", target.pid])
        self.assertEqual(agent.wait(30), 4, agent.text())
        self.assert_one_error_line(agent, "CAP_")

    # ---- targets that cannot be watched ----

    def test_no_verbs_in_process(self):
        target = self.start(session.Child, ["sleep", "60"])
        agent = self.agent(target.pid)
        self.assertEqual(agent.wait(30), 6, agent.text())
        self.assert_one_error_line(agent, str(target.pid), "--poll-site")

    def test_thirty_two_bit_target(self):
        program = self.path("pause32")
        with open(program, "wb") as file:
            file.write(thirty_two_bit_program())
        os.chmod(program, 0o755)
        target = self.start(session.Child, [program])
        agent = self.agent(target.pid)
        self.assertEqual(agent.wait(30), 1, agent.text())
        self.assert_one_error_line(agent, "32-bit")
        self.assertTrue(target.running(), "the program itself runs")

    def poll_site_in(self, name, contents):
        """An agent told to probe a file that is not code of this machine."""
        target = self.workload()
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(contents)
        return path, self.agent(target.pid, "--poll-site", f"{path}:poll_once")

    def test_poll_site_of_foreign_architecture(self):
        with open(self.programs.workload, "rb") as file:
            image = bytearray(file.read())
        image[18:20] = struct.pack("<H", 183)  # e_machine: EM_AARCH64
        path, agent = self.poll_site_in("foreign", bytes(image))
        self.assertEqual(agent.wait(30), 6, agent.text())
        self.assert_one_error_line(agent, path)

    def test_poll_site_in_truncated_elf(self):
        with open(self.programs.workload, "rb") as file:
            image = file.read(200)
        path, agent = self.poll_site_in("truncated", image)
        self.assertEqual(agent.wait(30), 6, agent.text())
        self.assert_one_error_line(agent, path)

    def test_corrupt_capture(self):
        target = self.workload()
        capture = self.path("events.pgc")
        agent = self.agent(target.pid, "--duration", "1s", "--capture", capture)
        self.assertEqual(agent.wait(60), 0, agent.text())
        with open(capture, "rb") as file:
            whole = file.read()
        damaged = {"truncated": whole[:len(whole) // 2], "empty": b"", "noise": os.urandom(4096),
                   "flipped": whole[:40] + bytes(b ^ 0x5A for b in whole[40:80]) + whole[80:]}
        for name, contents in damaged.items():
            path = self.path(f"{name}.pgc")
            with open(path, "wb") as file:
                file.write(contents)
            with self.subTest(name):
                replay = self.start(session.Child, [self.programs.pollgap, "replay", path, "--output",
                                                    self.path(f"{name}.json")])
                self.assertEqual(replay.wait(30), 1, replay.text())
                self.assert_one_error_line(replay, path)


def main():
    global build
    arguments = sys.argv[1:]
    if arguments == ["--list"]:
        print("\n".join(unittest.TestLoader().getTestCaseNames(Robustness)))
        return
    if arguments[:1] == ["--build"]:
        build = os.path.abspath(arguments[1])
        arguments = arguments[2:]
    unittest.main(argv=[sys.argv[0], *(f"Robustness.{case}" for case in arguments)], verbosity=2)


if __name__ == "__main__":
    main()

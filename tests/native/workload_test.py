#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is the workload's log true, and does it leave the machine as it found it? Needs root.

Each disturbance runs alone, and the polling thread's own gaps are compared with what was injected.
Nothing is said of how punctual an injection is: the machine may be busy. What is asserted is that
the polling thread was silent while the log says that it was disturbed.
"""
import argparse
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
REFUSALS = (4, 5)
LENGTH_NS = 5_000_000
THRESHOLD_NS = 1_000_000  # a shorter silence is no gap
COUNT = 3
# Of a disturbance's time, at least this much must be silence for the polling thread.
SILENT_SHARE = 0.8

PROGRAM = None
DIRECTORY = None


class Skipped(Exception):
    """The workload says that this machine cannot do it."""


def check(condition, message):
    if not condition:
        raise AssertionError(message)


class Workload:
    """One run, which has ended."""

    def __init__(self, options, seconds=2.0, until=None, before_end=None):
        self.log_path = os.path.join(DIRECTORY, "log.jsonl")
        command = [PROGRAM, "--log", self.log_path, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)
        first = self.process.stdout.readline()
        if not first.startswith("ready "):
            _, error = self.process.communicate(timeout=30)
            if self.process.returncode in REFUSALS:
                raise Skipped(error.strip())
            raise AssertionError(f"{command} ended with {self.process.returncode}: {error}")
        self.ready = dict(word.split("=") for word in first.split()[1:])
        try:
            time.sleep(seconds)
            if before_end:
                before_end(self)
        finally:
            self.process.send_signal(until or signal.SIGTERM)
            try:
                self.output, self.error = self.process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        self.status = self.process.returncode

    def records(self, kind):
        with open(self.log_path, encoding="utf-8") as file:
            return [record for record in map(json.loads, file) if record["type"] == kind]


def interval(record):
    return record["start_mono_ns"], record["start_mono_ns"] + record["duration_ns"]


def covered(where, others):
    """How much of an interval disjoint ones cover; those of the log may overlap by little."""
    at, total = where[0], 0
    for start, end in sorted(others):
        start, end = max(start, at), min(end, where[1])
        if start < end:
            total += end - start
            at = end
    return total


# ---- what a run may leave behind ----

def leftovers():
    """State of the machine that a run changes, and must put back."""
    state = {"cgroups": sorted(glob.glob("/sys/fs/cgroup/**/pollgap-workload-*", recursive=True))}
    state["affinities"] = {}
    for path in glob.glob("/proc/irq/*/smp_affinity_list"):
        with open(path, encoding="ascii") as file:
            state["affinities"][path] = file.read()
    state["scratch"] = glob.glob("/var/tmp/pollgap-workload.*")
    state["adapters"] = glob.glob("/dev/shm/pollgap-soft-hca.*")
    return state


OUR_PROGRAMS = {"hold", "arm_timer", "prepare_work", "begin_storm", "after_irq_work",
                "after_handler"}


def our_bpf_programs():
    listed = subprocess.run(["bpftool", "--json", "prog", "show"], capture_output=True, text=True,
                            check=True, env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"})
    return [program["id"] for program in json.loads(listed.stdout)
            if program.get("name") in OUR_PROGRAMS]


def helpers_of(pid):
    """Processes that the workload has made."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            continue
        parent = int(text[text.rindex(")") + 2:].split()[1])
        if parent == pid:
            found.append(int(path.split("/")[2]))
    return found


class CleanMachine:
    """Checks that what runs inside leaves nothing behind."""

    def __enter__(self):
        self.before = leftovers()
        self.programs = our_bpf_programs()
        self.helpers = []
        return self

    def watch(self, run):
        self.helpers = helpers_of(run.process.pid)

    def __exit__(self, kind, *_):
        if kind:
            return
        # The kernel unloads programs and removes processes a moment after the last reference.
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and (
                set(our_bpf_programs()) - set(self.programs)
                or any(os.path.exists(f"/proc/{pid}") for pid in self.helpers)):
            time.sleep(0.1)
        left = leftovers()
        changed = {what: [one for one in found if one not in self.before[what]]
                   if isinstance(found, list) else found for what, found in left.items()
                   if found != self.before[what]}
        check(not any(changed.values()), f"left behind: {changed}")
        check(not set(our_bpf_programs()) - set(self.programs), "BPF programs are left")
        left = [pid for pid in self.helpers if os.path.exists(f"/proc/{pid}")]
        check(not left, f"helper processes are left: {left}")


# ---- each disturbance alone ----

FIFO = ["--policy", "fifo", "--priority", "5"]

# name: (expected cause, culprit's members, options, settings)
DISTURBANCES = {
    "fifo": ("preemption", {"policy": "SCHED_FIFO"}, [], ""),
    "ordinary": ("preemption", {"policy": "SCHED_OTHER"}, [], ""),
    "kworker": ("preemption", {"work_function": "bpf_wq_work"}, [], ""),
    "irq": ("hard_irq", {"kind": "call_function_single"}, [], ""),
    "irq-device": ("hard_irq", {"kind": "device"}, [], ""),
    "softirq": ("soft_irq", {"kind": "HRTIMER"}, [], ""),
    "ipi-storm": ("hard_irq", {"kind": "irq_work"}, [], ""),
    "minor-faults": ("self_kernel", {"fault": "minor"}, [], ""),
    "major-faults": ("self_kernel", {"fault": "major"}, [], ""),
    "syscalls": ("self_kernel", {"syscall": "read"}, [], ""),
    "syscalls-storm": ("self_kernel", {"syscall": "getppid"}, [], "variant=storm"),
    "sleep": ("blocked", {"syscall": "clock_nanosleep"}, [], ""),
    "futex": ("blocked", {"syscall": "futex"}, FIFO, ""),
    "stop": ("stopped", {"signal": "SIGSTOP"}, [], ""),
    "quota": ("throttled", {"throttle": "cfs_quota"}, [], ""),
    "rt-throttle": ("throttled", {}, FIFO, ""),
    "reg-mr": ("control_verb", {"verb": "ibv_reg_mr"}, [], ""),
    "verbs": ("control_verb", {"verb": "ibv_"}, [], ""),
    "compute": ("application", {"function": "application_compute_step"}, [], ""),
    "late": ("late_completion", {}, [], ""),
    "errors": ("poll_function", {}, FIFO, ""),
}

# What lasts as long as it was told to: by a clock, and not by a guess of how much work that is.
EXACT = {"fifo", "ordinary", "kworker", "irq", "irq-device", "softirq", "ipi-storm", "minor-faults",
         "major-faults", "syscalls-storm", "sleep", "stop", "verbs", "compute", "late"}


def disturbed_ns(record):
    """Tasks that take turns may let the polling thread have one: it is silent while one of them runs."""
    tasks = record.get("facts", {}).get("tasks")
    return sum(task["ran_ns"] for task in tasks) if tasks else record["duration_ns"]


def disturb(name):
    cause, culprit, options, settings = DISTURBANCES[name]
    real_name = "syscalls" if name.startswith("syscalls") else name
    period_ms = 100 if name in ("quota", "rt-throttle") else 250
    argument = f"{real_name}:period={period_ms}ms,length=5ms,count={COUNT}"
    argument += "," + settings if settings else ""
    with CleanMachine() as machine:
        run = Workload([*options, "--start-after", "100ms", "--disturb", argument],
                       before_end=machine.watch)
        check(run.status == 0, f"ended with {run.status}: {run.error}")
        gaps = [interval(gap) for gap in run.records("gap")]
        injected = run.records("disturbance")
        check(len(injected) == COUNT, f"{len(injected)} disturbances in the log, not {COUNT}")
        longest = max(map(disturbed_ns, injected))
        check(longest >= LENGTH_NS / 2, f"the longest lasted {longest / 1e6:.3f} ms")
        for record in injected:
            check(record["cause"] == cause, record)
            check(all(record["culprit"].get(key) == value for key, value in culprit.items()), record)
            check(record["tid"] == int(run.ready["tid"]), record)
            if name in EXACT:
                check(record["duration_ns"] >= 0.99 * LENGTH_NS, record)
            silent = covered(interval(record), gaps)
            disturbed = disturbed_ns(record)
            print(f"{disturbed / 1e6:.3f} ms, {silent / 1e6:.3f} ms of it silent", flush=True)
            if SILENT_SHARE * disturbed >= THRESHOLD_NS:  # a limit can be reached late in its period
                check(silent >= SILENT_SHARE * disturbed, record)


def idle():
    """Nothing outstanding is no late completion."""
    run = Workload(["--start-after", "100ms", "--disturb",
                    f"idle:period=250ms,length=20ms,count={COUNT}"])
    check(run.status == 0, run.error)
    injected = run.records("disturbance")
    check(len(injected) == COUNT and not any(record["cause"] for record in injected), injected)
    late = [interval(gap) for gap in run.records("gap") if gap["kind"] == "late_completion"]
    for record in injected:
        check(covered(interval(record), late) == 0, "an idle time is logged as a late completion")


def together():
    """Several at once, each with its own count."""
    names = ["fifo", "sleep", "compute", "softirq"]
    options = ["--start-after", "100ms"]
    for name in names:
        options += ["--disturb", f"{name}:period=200ms,length=3ms,count=5"]
    with CleanMachine() as machine:
        run = Workload(options, before_end=machine.watch)
    check(run.status == 0, run.error)
    found = [record["name"] for record in run.records("disturbance")]
    check(all(found.count(name) == 5 for name in names), found)


# ---- polling ----

def polls(*options):
    def test():
        run = Workload(list(options), seconds=1)
        check(run.status == 0, run.error)
        ends = run.records("polling_end")
        wanted = int(options[options.index("--threads") + 1]) if "--threads" in options else 1
        check(len(ends) == wanted, ends)
        for end in ends:
            check(end["completions"] > 100 and end["polls"] > end["completions"] / 16, end)
        for histogram in run.records("histogram"):
            poll = histogram["poll"]
            check(poll["count"] == sum(count for _, count in poll["buckets_from_ns"]), poll)
            check(poll["count"] > 100 and 0 < poll["p50_ns"] <= poll["p99_ns"] <= poll["max_ns"], poll)
    return test


def no_post():
    run = Workload(["--no-post"], seconds=1)
    check(run.status == 0, run.error)
    end = run.records("polling_end")[0]
    check(end["completions"] == 0 and end["polls"] > 1000, end)
    check(not [gap for gap in run.records("gap") if gap["kind"] == "late_completion"], "late")


def event_wait():
    """Completions that take 3 ms: an event-driven thread waits for each."""
    run = Workload(["--style", "event", "--soft-delay", "3ms", "--depth", "1"], seconds=1)
    check(run.status == 0, run.error)
    waited = [gap for gap in run.records("gap") if gap.get("waited_for_event")]
    check(len(waited) > 10, f"{len(waited)} gaps with a wait")
    check(all(gap["kind"] == "between_polls" for gap in waited), waited)


def slow_completions():
    """Completions that take 3 ms: each is a late completion."""
    run = Workload(["--soft-delay", "3ms", "--depth", "1"], seconds=1)
    late = [gap for gap in run.records("gap") if gap["kind"] == "late_completion"]
    check(len(late) > 10, f"{len(late)} late completions")


def gaps_are_disjoint():
    run = Workload(["--log-threshold", "1ms", "--disturb", "sleep:period=20ms,length=2ms",
                    "--disturb", "late:period=20ms,length=2ms", "--start-after", "0"], seconds=2)
    gaps = sorted(interval(gap) for gap in run.records("gap"))
    check(len(gaps) > 50, f"{len(gaps)} gaps")
    for before, after in zip(gaps, gaps[1:]):
        # Neighbours may share an edge, which is converted from one stamp.
        check(before[1] <= after[0], f"{before} and {after} overlap")


def duration_and_ready_file():
    ready = os.path.join(DIRECTORY, "ready")
    started = time.monotonic()
    ended = subprocess.run([PROGRAM, "--duration", "300ms", "--ready-file", ready],
                           capture_output=True, text=True, timeout=60, check=False)
    check(ended.returncode == 0 and time.monotonic() - started >= 0.3, ended)
    with open(ready, encoding="ascii") as file:
        check(file.read() == ended.stdout.splitlines()[0] + "\n", "ready file and line differ")


def go_file():
    """Nothing is disturbed before the file is there."""
    go = os.path.join(DIRECTORY, "go")
    appeared = []

    def create(_):
        appeared.append(time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        with open(go, "w", encoding="ascii"):
            pass
        time.sleep(1)

    run = Workload(["--go-file", go, "--start-after", "100ms", "--disturb",
                    "sleep:period=50ms,length=2ms"], seconds=1, before_end=create)
    starts = [record["start_mono_ns"] for record in run.records("disturbance")]
    check(starts and min(starts) >= appeared[0] + 100_000_000, (appeared, starts[:3]))


def interrupted():
    run = Workload(["--disturb", "fifo:period=50ms,length=5ms"], seconds=1.5, until=signal.SIGINT)
    check(run.status == 0 and run.records("end"), run.error)


def killed():
    """Even SIGKILL leaves no helper and no BPF program; a cgroup it does leave."""
    with CleanMachine() as machine:
        def kill(run):
            machine.watch(run)
            run.process.kill()
        Workload(["--start-after", "100ms", "--disturb", "fifo:period=50ms,length=5ms", "--disturb",
                  "softirq:period=50ms,length=2ms", "--disturb", "stop:period=50ms,length=2ms"],
                 before_end=kill)
        for path in glob.glob("/dev/shm/pollgap-soft-hca.*"):
            if path not in machine.before["adapters"]:
                machine.before["adapters"].append(path)  # the next run removes it


# ---- refusals ----

def refused(status, *options, user=None):
    def test():
        ended = subprocess.run([PROGRAM, "--duration", "1s", *options], capture_output=True, text=True,
                               timeout=60, user=user, check=False)
        check(ended.returncode == status, ended)
        check(len(ended.stderr.splitlines()) == 1, ended.stderr)
        check(ended.stderr.startswith("pollgap-workload: "), ended.stderr)
    return test


def unwritable_log():
    ended = subprocess.run([PROGRAM, "--duration", "100ms", "--log", "/proc/nosuch/log"],
                           capture_output=True, text=True, timeout=60, check=False)
    check(ended.returncode == 1 and len(ended.stderr.splitlines()) == 1, ended)


CASES = {
    **{f"disturb.{name}": (lambda name=name: disturb(name)) for name in DISTURBANCES},
    "disturb.idle": idle,
    "disturb.together": together,
    **{f"polls.{style}.{operation}": polls("--style", style, "--op", operation)
       for style in ("poll", "bare", "extended", "event") for operation in ("send", "write", "read")},
    "polls.signal-every": polls("--signal-every", "8", "--depth", "32"),
    "polls.threads": polls("--threads", "2", "--cpu", "0,1"),
    "polls.think": polls("--think-ns", "500"),
    "polls.no-post": no_post,
    "polls.event-wait": event_wait,
    "polls.slow-completions": slow_completions,
    "gaps-are-disjoint": gaps_are_disjoint,
    "duration-and-ready-file": duration_and_ready_file,
    "go-file": go_file,
    "interrupted": interrupted,
    "killed": killed,
    "refused.unknown-disturbance": refused(2, "--disturb", "nosuch"),
    "refused.kworker-and-real-time": refused(2, *FIFO, "--disturb", "kworker"),
    "refused.late-and-no-post": refused(2, "--no-post", "--disturb", "late"),
    "refused.no-device": refused(1, "--device", "nosuch"),
    "refused.no-privilege-fifo": refused(4, "--disturb", "fifo", user=65534),
    "refused.no-privilege-bpf": refused(4, "--disturb", "softirq", user=65534),
    "refused.no-privilege-cgroup": refused(4, "--disturb", "quota", user=65534),
    "refused.no-disk": refused(5, "--disturb", "irq-device", "--scratch", "/dev/shm"),
    "unwritable-log": unwritable_log,
}


def main():
    global PROGRAM, DIRECTORY
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(CASES))
        return 0
    PROGRAM = arguments.program
    status = 0
    for case in arguments.cases or CASES:
        with tempfile.TemporaryDirectory(prefix="pollgap-workload-test.") as DIRECTORY:
            try:
                CASES[case]()
                print(f"PASSED {case}", flush=True)
            except Skipped as reason:
                print(f"SKIPPED {case}: {reason}", flush=True)
                status = status or SKIPPED
            except (AssertionError, subprocess.SubprocessError) as error:
                print(f"FAILED {case}: {error}", flush=True)
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())

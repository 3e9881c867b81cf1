# SPDX-License-Identifier: Apache-2.0
"""In the guest: what disturbs a polling program from outside, and what a report says of it."""
import collections
import os
import signal
import time

from pair import POLLED_CPU  # first: it says where the others are
import intervals
import judge

LENGTH_NS = 30_000_000
CGROUP = "/sys/fs/cgroup/pollgap-test"
GROUP_NAME = os.path.basename(CGROUP)

# From `start` to `end`; `spent` nanoseconds of it are the cause's.
Injected = collections.namedtuple("Injected", "cause detail start end spent")


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def make_cgroup():
    write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu")
    os.makedirs(CGROUP, exist_ok=True)


def hog(be_scheduled):
    """A child that spins on the polled CPU until it has had it for the length. The time is all that it
    had of that CPU, up to its end."""
    read, written = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.sched_setaffinity(0, {POLLED_CPU})
        start, before = time.monotonic_ns(), time.thread_time_ns()
        be_scheduled()
        while time.thread_time_ns() < before + LENGTH_NS:
            pass
        os.write(written, f"{start} {before}".encode())
        os._exit(0)
    os.close(written)
    _, _, usage = os.wait4(pid, 0)
    start, before = (int(word) for word in os.read(read, 100).split())
    os.close(read)
    spent = round(1e9 * (usage.ru_utime + usage.ru_stime)) - before
    return Injected("preemption", {"task": {"pid": pid}}, start, time.monotonic_ns(), spent)


def fifo(_):
    return hog(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)))


def ordinary(_):
    return hog(lambda: None)


def held(cause, detail, begin, end):
    """What holds from the one call to the other."""
    before = time.monotonic_ns()
    begin()
    begun = time.monotonic_ns()
    time.sleep(LENGTH_NS / 1e9)
    ending = time.monotonic_ns()
    end()
    start, stop = (before + begun) // 2, (ending + time.monotonic_ns()) // 2
    return Injected(cause, detail, start, stop, stop - start)


def stopped(cause, detail, process):
    return held(cause, detail, lambda: os.kill(process.pid, signal.SIGSTOP),
                lambda: os.kill(process.pid, signal.SIGCONT))


def sigstop(pair):
    return stopped("stopped", {"kind": "signal"}, pair.client)


def peer(pair):
    """The other end stops: nothing signaled is outstanding, so that the wait is no gap."""
    return stopped(None, {}, pair.server)


def freezer(_):
    return held("stopped", {"kind": "freezer"}, lambda: write(f"{CGROUP}/cgroup.freeze", "1"),
                lambda: write(f"{CGROUP}/cgroup.freeze", "0"))


def throttled_ns():
    with open(f"{CGROUP}/cpu.stat", encoding="ascii") as file:
        return 1000 * int(dict(line.split() for line in file)["throttled_usec"])


def quota(_):
    """20 ms in each 50 ms, for some three periods; the time is that of the kernel's account."""
    before, start = throttled_ns(), time.monotonic_ns()
    write(f"{CGROUP}/cpu.max", "20000 50000")
    time.sleep(0.15)
    write(f"{CGROUP}/cpu.max", "max")
    return Injected("throttled", {"cgroup": GROUP_NAME}, start, time.monotonic_ns(),
                    throttled_ns() - before)


DISTURBANCES = {"fifo hog": fifo, "ordinary hog": ordinary, "SIGSTOP": sigstop, "freezer": freezer,
                "cgroup quota": quota, "peer stopped": peer}


def window_of(injected):
    margin = LENGTH_NS // 10
    return injected.start - margin, injected.end + margin


def error_of(report, injected):
    """By how much of the injected time the ledgers' time of that cause and culprit is wrong."""
    window = window_of(injected)
    if injected.cause:
        found = [part for gap in report["gaps"]
                 for part, detail in judge.segment_spans(gap, injected.cause)
                 if judge.names(detail, injected.detail)]
        return abs(intervals.covered(window, found) - injected.spent) / injected.spent
    gaps = [judge.span(gap) for gap in report["gaps"]]
    return intervals.covered((injected.start, injected.end), gaps) / injected.spent


def describe(report, injected):
    """What was injected, and the ledgers of the gaps there."""
    gaps = [judge.describe(gap) for gap in report["gaps"]
            if intervals.overlaps(judge.span(gap), window_of(injected))]
    return "\n".join([f"    {injected}", *gaps])

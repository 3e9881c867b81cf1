# SPDX-License-Identifier: Apache-2.0
"""In the guest: what disturbs a polling program from outside, and what a report says of it."""
import collections
import os
import signal
import time

from pair import POLLED_CPU  # first: it says where the others are
import driver
import intervals
import judge

LENGTH_NS = 30_000_000
SWITCHED_NS = 100_000  # a spinning task that has not seen the clock for so long was off the CPU
SURELY_A_GAP_NS = 1_100_000
CGROUP = "/sys/fs/cgroup/pollgap-test"
GROUP_NAME = os.path.basename(CGROUP)

# From `start` to `end`; of that at most `spent` nanoseconds are the cause's, `surely` at least.
Injected = collections.namedtuple("Injected", "cause detail start end spent surely")


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def make_cgroup():
    write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu")
    os.makedirs(CGROUP, exist_ok=True)


def spin(length_ns):
    """Until it has had the CPU so long: when, at a stretch each, as (start, end)."""
    stretches, before = [], time.thread_time_ns()
    start = last = time.monotonic_ns()
    while time.thread_time_ns() < before + length_ns:
        now = time.monotonic_ns()
        if now - last > SWITCHED_NS:
            stretches.append((start, last))
            start = now
        last = now
    return [*stretches, (start, last)]


def hog(be_scheduled):
    """A child that spins on the polled CPU until it has had it for the length. The time is all that it
    had of that CPU, up to its end; only what it had at a stretch is surely in a gap, where it shares
    the CPU with the polling thread."""
    read, written = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.sched_setaffinity(0, {POLLED_CPU})
        before = time.thread_time_ns()
        be_scheduled()
        stretches = spin(LENGTH_NS)
        long = sum(end - start for start, end in stretches if end - start >= SURELY_A_GAP_NS)
        os.write(written, f"{stretches[0][0]} {before} {long}".encode())
        os._exit(0)
    os.close(written)
    _, _, usage = os.wait4(pid, 0)
    start, before, long = (int(word) for word in os.read(read, 100).split())
    os.close(read)
    spent = round(1e9 * (usage.ru_utime + usage.ru_stime)) - before
    return Injected("preemption", {"task": {"pid": pid}}, start, time.monotonic_ns(), spent, long)


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
    return Injected(cause, detail, start, stop, stop - start, stop - start)


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
    """The cgroup's own account. It leaves out some of what it was throttled (seen on 6.12)."""
    with open(f"{CGROUP}/cpu.stat", encoding="ascii") as file:
        return 1000 * int(dict(line.split() for line in file)["throttled_usec"])


def waited_ns(process):
    """How long its thread has waited for a CPU since it began, throttled or not (schedstat)."""
    with open(f"/proc/{process.pid}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[1])


def quota(pair):
    """20 ms in each 50 ms, for some three periods."""
    throttled, waited, start = throttled_ns(), waited_ns(pair.client), time.monotonic_ns()
    write(f"{CGROUP}/cpu.max", "20000 50000")
    time.sleep(0.15)
    write(f"{CGROUP}/cpu.max", "max")
    time.sleep(0.01)  # the wait is counted when it is over
    return Injected("throttled", {"cgroup": GROUP_NAME}, start, time.monotonic_ns(),
                    waited_ns(pair.client) - waited, throttled_ns() - throttled)


def interrupt(_):
    """Its handler spins; the CPU that asks for it waits until it is over."""
    start = time.monotonic_ns()
    driver.fire(f"irq {POLLED_CPU} {LENGTH_NS // 1000}")
    return Injected("hard_irq", {"action": driver.ACTION}, start, time.monotonic_ns(),
                    LENGTH_NS, LENGTH_NS)


def taken(command):
    """By a real SMI, whose handler spins; whoever asks for it waits until it is over."""
    start = time.monotonic_ns()
    driver.fire(f"{command} {POLLED_CPU} {LENGTH_NS // 1000}")
    return Injected("stolen", {"kind": "smi"}, start, time.monotonic_ns(), LENGTH_NS, LENGTH_NS)


def smi(_):
    """Of all CPUs, as firmware does it, whatever the polling thread is at."""
    return taken("smi")


def lone_smi(pair):
    """Of the polled CPU alone, the others go on. There it shows in that the CPU does not answer, which
    it is asked while the thread is in user code: there it stays while the peer is stopped."""
    pair.server.signal(signal.SIGSTOP)
    time.sleep(0.01)
    injected = taken("lone-smi")
    time.sleep(0.01)
    pair.server.signal(signal.SIGCONT)
    return injected


# "interrupt" and the SMIs need the module mlx5_events.
DISTURBANCES = {"fifo hog": fifo, "ordinary hog": ordinary, "interrupt": interrupt, "SMI": smi,
                "SMI of one CPU": lone_smi, "SIGSTOP": sigstop, "freezer": freezer,
                "cgroup quota": quota, "peer stopped": peer}


MARGIN_NS = LENGTH_NS // 10


def window_of(injected):
    return injected.start - MARGIN_NS, injected.end + MARGIN_NS


def error_of(report, injected):
    """By how much of the injected time the ledgers' time of that cause and culprit is wrong. A thread
    that others keep off its CPU is not stopped before it runs again: their time is left out. No wait
    is a gap that begins once the peer is stopped; what was sent before may still be outstanding."""
    window = window_of(injected)
    if injected.cause is None:
        gaps = [judge.span(gap) for gap in report["gaps"]
                if gap["start_mono_ns"] > injected.start + MARGIN_NS]
        return intervals.covered((injected.start, injected.end), gaps) / injected.spent

    def parts(cause, detail):
        return [part for gap in report["gaps"] for part, found in judge.segment_spans(gap, cause)
                if judge.names(found, detail)]
    found = intervals.covered(window, parts(injected.cause, injected.detail))
    least = injected.surely
    if injected.cause == "stopped":
        least -= intervals.covered((injected.start, injected.end), parts("preemption", {}))
    return max(least - found, found - injected.spent, 0) / injected.spent


def describe(report, injected):
    """What was injected, and the ledgers of the gaps there."""
    gaps = [judge.describe(gap) for gap in report["gaps"]
            if intervals.overlaps(judge.span(gap), window_of(injected))]
    return "\n".join([f"    {injected}", *gaps])

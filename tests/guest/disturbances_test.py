#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""In the guest: an unmodified program over rdma_rxe, disturbed from outside while pollgap watches.

  disturbances_test.py --build DIR [--count N] [--disturb NAME...] [PROGRAM]

The program's client polls on the last CPU; its server, the agent and this test have the others.
Durations are those of the guest's own clock. Under TCG nothing can be said of the program's speed.
"""
import argparse
import collections
import json
import os
import signal
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, "../accuracy")]
import intervals  # noqa: E402  (found through the line above)
import judge  # noqa: E402
import session  # noqa: E402

POLLED = max(os.sched_getaffinity(0))
OTHERS = os.sched_getaffinity(0) - {POLLED}
LENGTH_NS = 30_000_000
PORT = 18515
CGROUP = "/sys/fs/cgroup/pollgap-test"

Injected = collections.namedtuple("Injected", "cause detail start end")


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def hog(policy):
    """A child that spins on the polled CPU for the length, and when it did."""
    read, written = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.sched_setaffinity(0, {POLLED})
        policy()
        start = time.monotonic_ns()
        while (now := time.monotonic_ns()) < start + LENGTH_NS:
            pass
        os.write(written, f"{start} {now}".encode())
        os._exit(0)
    os.close(written)
    os.waitpid(pid, 0)
    start, end = (int(word) for word in os.read(read, 100).split())
    os.close(read)
    return Injected("preemption", {"task": {"pid": pid}}, start, end)


def fifo(_):
    return hog(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)))


def held(cause, detail, begin, end):
    """What holds from the one call to the other, the length apart."""
    before = time.monotonic_ns()
    begin()
    begun = time.monotonic_ns()
    while time.monotonic_ns() < begun + LENGTH_NS:
        pass
    end()
    return Injected(cause, detail, (before + begun) // 2, time.monotonic_ns())


def stop(pid):
    return held("stopped", {"kind": "signal"}, lambda: os.kill(pid, signal.SIGSTOP),
                lambda: os.kill(pid, signal.SIGCONT))


def freeze(_):
    return held("stopped", {"kind": "freezer"}, lambda: write(f"{CGROUP}/cgroup.freeze", "1"),
                lambda: write(f"{CGROUP}/cgroup.freeze", "0"))


DISTURBANCES = {"fifo": fifo, "stop": stop, "freezer": freeze}


def listening(port):
    """Whether something does, without connecting to it."""
    with open("/proc/net/tcp", encoding="ascii") as table:
        return any(f":{port:04X} " in line.split()[1] + " " and line.split()[3] == "0A"
                   for line in table.readlines()[1:])


def explained(report, injected):
    """Nanoseconds of the injected cause, with its culprit, in the ledgers around it."""
    window = (injected.start - LENGTH_NS // 10, injected.end + LENGTH_NS // 10)
    return intervals.covered(window, [part for gap in report["gaps"]
                                      for part, detail in judge.segment_spans(gap, injected.cause)
                                      if judge.names(detail, injected.detail)])


def start(command, cpus):
    return session.Child(["taskset", "-c", ",".join(map(str, cpus)), *command])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--disturb", nargs="*", choices=list(DISTURBANCES), default=list(DISTURBANCES))
    parser.add_argument("--iterations", type=int, default=30000)
    parser.add_argument("--output", default="/out")
    parser.add_argument("program", nargs="?", default="ib_send_lat")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, OTHERS)
    write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu")
    os.makedirs(CGROUP, exist_ok=True)
    options = ["-d", "rxe0", "-x", "1", "-F", "-n", str(arguments.iterations)]
    failures = 0
    with start([arguments.program, *options], OTHERS) as server:
        while server.running() and not listening(PORT):
            time.sleep(0.05)
        with start([arguments.program, *options, "127.0.0.1"], {POLLED}) as client:
            write(f"{CGROUP}/cgroup.procs", str(client.pid))
            time.sleep(1)
            report_path = os.path.join(arguments.output, f"{arguments.program}.json")
            agent = session.Programs(arguments.build).start_agent(
                client.pid, "--output", report_path, "--threshold", "5ms")
            with agent:
                agent.wait_for(r"(?i)\battached\b", 60)
                injected = collections.defaultdict(list)
                for name in arguments.disturb:
                    for _ in range(arguments.count):
                        time.sleep(0.1)
                        injected[name].append(DISTURBANCES[name](client.pid))
                time.sleep(0.5)
                running = client.running()
                if status := session.stop(agent, 120):
                    print(f"FAILED  pollgap attach ended with {status}:\n{agent.text()}")
                    return 1
            statuses = [client.wait(280), server.wait(60)]
    with open(report_path, encoding="utf-8") as file:
        report = json.load(file)
    print(f"{os.uname().release}: {arguments.program}, {len(report['gaps'])} gaps of 5 ms and more; "
          f"poll function {report['target']['sites'][0]['name']}")
    if not running:
        print("FAILED  the program ended while it was watched: more --iterations")
        failures += 1
    for name, occurrences in injected.items():
        found = [explained(report, one) for one in occurrences]
        errors = [abs(time_found - (one.end - one.start)) / (one.end - one.start)
                  for one, time_found in zip(occurrences, found)]
        right = sum(error <= 0.1 for error in errors)
        failures += right < len(occurrences)
        print(f"{'ok' if right == len(occurrences) else 'FAILED':<8}{name}: {right} of "
              f"{len(occurrences)} named with a duration within 10 %; median error "
              f"{100 * statistics.median(errors):.1f} %, largest {100 * max(errors):.1f} %")
    if inexact := list(judge.ledger_findings(report)):
        print(f"FAILED  a ledger is not exact: {inexact[0].text}")
        failures += 1
    if statuses != [0, 0]:
        print(f"FAILED  the program ended with {statuses}:\n{client.text()}\n{server.text()}")
        failures += 1
    elif not any(line.split()[1:2] == [str(arguments.iterations)] for line in client.text().splitlines()
                 if line.split()[:1] == ["2"]):
        print(f"FAILED  it does not report {arguments.iterations} iterations:\n{client.text()}")
        failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

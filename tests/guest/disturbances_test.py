#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""In the guest: an unmodified program, disturbed from outside while pollgap watches its client.

  disturbances_test.py --build DIR --module mlx5_events.ko [--count N] [--disturb NAME...]
                       [--timing TIMING] [--output DIR]

Each disturbance must be in the ledgers with its culprit, for as long as it lasted; the program must
go on to its end as if nothing had been. Under TCG nothing can be said of the program's speed.
"""
import collections
import os
import signal
import statistics
import sys
import time

import driver
import pair as pairs
from disturbances import CGROUP, DISTURBANCES, describe, error_of, make_cgroup, write

# Of the injected time; half of that are the edges, a scheduler's tick long.
TOLERANCE = 0.10
PROGRAM = "ib_send_lat"
# Until it surely polls again, and has been seen to; an observer that saw none who polls a CQ looks
# for them again after two seconds.
SEEN_POLLING_S = {"uprobe": 0.5, "observe": 2.5}
# A look takes 0.1 ms here, of the CPU that the observer, the rest of the agent, the peer and the test
# share: at the rate of a real machine these would have little of it.
OPTIONS = {"uprobe": (), "observe": ("--observe-rate", 2000, "--threshold", "2ms")}
ITERATIONS_A_SECOND = 10_000  # no more than that, in the guest's time


def disturb(pair, names, count):
    injected = collections.defaultdict(list)
    for number in range(count):
        for name in names:
            time.sleep(0.05)
            if not pair.client.running():
                raise pairs.Failure(f"the program ended before {name} #{number}: more --iterations")
            injected[name].append(DISTURBANCES[name](pair))
    time.sleep(0.05)
    return injected


def watch(arguments, pair):
    """What was injected into the pair's client, and the report on it. Neither runs while
    the agent starts, which takes long under TCG."""
    write(f"{CGROUP}/cgroup.procs", str(pair.client.pid))
    time.sleep(0.2)
    pair.signal(signal.SIGSTOP)
    with pairs.Agent(arguments.build, pair.client.pid,
                     os.path.join(arguments.output, f"disturbances-{arguments.timing}.json"),
                     "--timing", arguments.timing, *OPTIONS[arguments.timing]) as agent:
        pair.signal(signal.SIGCONT)
        time.sleep(SEEN_POLLING_S[arguments.timing])
        injected = disturb(pair, arguments.disturb, arguments.count)
        return injected, agent.report()


def judge_one(program, name, occurrences, report):
    errors = [error_of(report, one) for one in occurrences]
    right = sum(error <= TOLERANCE for error in errors)
    print(f"{'ok' if right == len(errors) else 'FAILED':<8}{program}, {name}: {right} of {len(errors)} right; "
          f"error of the time: median {100 * statistics.median(errors):.1f} %, largest "
          f"{100 * max(errors):.1f} %", flush=True)
    for one, error in zip(occurrences, errors):
        if error > TOLERANCE:
            print(describe(report, one), flush=True)
    return right == len(errors)


def main():
    parser = pairs.argument_parser(__doc__)
    parser.add_argument("--module", required=True, help="mlx5_events.ko: its interrupt disturbs, too")
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--disturb", nargs="*", choices=list(DISTURBANCES), default=list(DISTURBANCES))
    parser.add_argument("--timing", default="uprobe", choices=list(SEEN_POLLING_S))
    parser.add_argument("--iterations", type=int, help="default: enough for the count")
    arguments = parser.parse_args()
    iterations = arguments.iterations or (
        5_000 + round(ITERATIONS_A_SECOND * SEEN_POLLING_S[arguments.timing]) +
        2_000 * arguments.count * len(arguments.disturb))
    program = PROGRAM + (" observed" if arguments.timing == "observe" else "")
    pairs.leave_polled_cpus()
    make_cgroup()
    driver.load(arguments.module)
    try:
        with pairs.Pair(pairs.PROGRAMS[PROGRAM], iterations, pairs.PEER_CPU,
                        pairs.POLLED_CPU) as pair:
            pair.connect()
            injected, report = watch(arguments, pair)
            pair.finish()
    except (pairs.Failure, pairs.session.Timeout) as failure:
        print(f"FAILED  {program}, watched: {failure}")
        return 1
    finally:
        driver.unload()
    print(f"ok      {program}, watched: ends with status 0 and its {iterations} iterations; "
          f"{len(report['gaps'])} gaps, their ledgers exact")
    results = [judge_one(program, name, occurrences, report) for name, occurrences in injected.items()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""In the guest: the completions of unmodified programs, counted.

  programs_test.py --build DIR [--iterations N] [--output DIR] [PROGRAM...]

pollgap attaches to the server while it waits for its client, so that it sees every completion: it
must count exactly those of the iterations that the program reports. An event-driven program's waits
for completion events must be idle time, not gaps.
"""
import os
import signal
import sys
import time

import pair as pairs  # first: it says where the others are
import intervals
import judge

PAUSE_S = 0.05


def pause_client(pair):
    """Nothing comes for that long; when it was."""
    time.sleep(0.2)
    pair.client.signal(signal.SIGSTOP)
    start = time.monotonic_ns()
    time.sleep(PAUSE_S)
    end = time.monotonic_ns()
    pair.client.signal(signal.SIGCONT)
    return start, end


def watch(arguments, name):
    """The report on the program's server, and when its client was paused."""
    path = os.path.join(arguments.output, f"{name.replace(' ', '')}.json")
    program = pairs.PROGRAMS[name]
    with pairs.Pair(program, arguments.iterations, pairs.POLLED_CPU, pairs.PEER_CPU) as pair:
        with pairs.Agent(arguments.build, pair.server.pid, path) as agent:
            pair.connect()
            paused = pause_client(pair) if "-e" in program.command else None
            pair.finish()
            agent.child.wait(pairs.STUCK_S)
            return agent.report(), paused


def check(arguments, name):
    report, paused = watch(arguments, name)
    cqs = report["summary"]["cqs"]
    counted = sum(cq["completions"] for cq in cqs)
    expected = pairs.PROGRAMS[name].completions * arguments.iterations
    if counted != expected:
        raise pairs.Failure(f"{counted} completions counted, not {expected}: {cqs}")
    text = f"{counted} completions, all counted; {len(report['gaps'])} gaps"
    if paused:
        spans = [judge.span(gap) for gap in report["gaps"]]
        covered = intervals.covered(paused, spans)
        if covered > 0.1 * intervals.length(paused):
            raise pairs.Failure(f"{covered / 1e6:.1f} ms of a wait for an event are in gaps")
        text += "; waiting for a completion event is idle"
    return text


def main():
    parser = pairs.argument_parser(__doc__)
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("program", nargs="*", choices=[*pairs.PROGRAMS, []], default=[])
    arguments = parser.parse_args()
    pairs.leave_polled_cpus()
    failures = 0
    for name in arguments.program or pairs.PROGRAMS:
        if any(os.uname().release.startswith(kernel + ".") and name == program
               for kernel, program in pairs.HANGS):
            print(f"SKIPPED {name}, completions: it hangs on this kernel, watched or not", flush=True)
            continue
        try:
            print(f"ok      {name}, completions: {check(arguments, name)}", flush=True)
        except (pairs.Failure, pairs.session.Timeout) as failure:
            failures += 1
            print(f"FAILED  {name}, completions: {failure}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

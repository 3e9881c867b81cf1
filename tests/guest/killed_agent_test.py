#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""In the guest: the agent killed at random moments; the program does not notice.

  killed_agent_test.py --build DIR [--count N] [--seed N] [--iterations N] [--output DIR]

Each agent is killed with SIGKILL at some moment from when it begins to place its probes until it has
been attached for a while. The program's code must be as it was then, and the program must end with
status 0 and its count of iterations.
"""
import os
import random
import re
import signal
import sys
import time

import pair as pairs

PROGRAM = "ib_send_lat"
ATTACHED_S = 3.0
AUTO = ("--timing", "auto")  # both ways of timing are loaded, and there is a burst of probes
LIBRARIES = ("librxe", "libibverbs.so")


def code(pid):
    """The libraries' code as it is in the process, probes' breakpoints and all."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        found = {}
        for line in maps:
            words = line.split()
            if "x" in words[1] and any(library in words[-1] for library in LIBRARIES):
                start, end = (int(word, 16) for word in words[0].split("-"))
                memory.seek(start)
                found[start] = memory.read(end - start)
    return found


def is_soon(condition):
    """Taking hundreds of probes off takes a guest many seconds."""
    deadline = time.monotonic() + pairs.STUCK_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def time_of_attaching(arguments, pid, path):
    start = time.monotonic()
    with pairs.Agent(arguments.build, pid, path, *AUTO) as agent:
        attached = time.monotonic() - start
        agent.report()
    return attached


def kill_one(arguments, pair, path, attaching_s, moment):
    """Kills an agent `moment` after its start. The program, which is stopped, runs from shortly before
    the agent attaches. Whether the agent was attached; None where the program came to its end first."""
    with pairs.start_agent(arguments.build, pair.client.pid, path, *AUTO) as agent:
        runs_from = 0.7 * attaching_s
        time.sleep(min(runs_from, moment))
        pair.signal(signal.SIGCONT)
        time.sleep(max(0, moment - runs_from))
        early = not agent.running()
        attached = re.search(r"attached to \d", agent.text()) is not None
        agent.signal(signal.SIGKILL)
        agent.wait(pairs.STUCK_S)
        if not pair.client.running():
            return None
        pair.signal(signal.SIGSTOP)  # to be looked at, and for the next
        if early:
            raise pairs.Failure(f"pollgap attach ended too early:\n{agent.text()}")
    return attached


def kill_while_it_runs(arguments, pair, path, moments, most):
    """Kills agents until the program has come to its end, or so many; of each whether it was attached."""
    pair.connect()
    time.sleep(0.2)
    pair.signal(signal.SIGSTOP)
    before = code(pair.client.pid)
    attaching_s = time_of_attaching(arguments, pair.client.pid, path)
    killed = []
    while len(killed) < most:
        moment = moments.uniform(0.6 * attaching_s, attaching_s + ATTACHED_S)
        attached = kill_one(arguments, pair, path, attaching_s, moment)
        if attached is None:
            break
        killed.append(attached)
        if not is_soon(lambda: code(pair.client.pid) == before):
            raise pairs.Failure(f"the code is not as it was before #{len(killed)}")
    pair.signal(signal.SIGCONT)
    pair.finish()
    return killed


def check(arguments):
    path = os.path.join(arguments.output, "killed.json")
    moments = random.Random(arguments.seed)
    killed, runs = [], 0
    while len(killed) < arguments.count:
        with pairs.Pair(pairs.PROGRAMS[PROGRAM], arguments.iterations, pairs.PEER_CPU,
                        pairs.POLLED_CPU) as pair:
            killed += kill_while_it_runs(arguments, pair, path, moments, arguments.count - len(killed))
        runs += 1
        if runs > 3 + arguments.count:
            raise pairs.Failure(f"{runs} runs of the program saw only {len(killed)} agents killed")
    return (f"{len(killed)} of {arguments.count} right, {sum(killed)} of them once it was attached; each of "
            f"{runs} runs of the program ended with status 0 and its {arguments.iterations} iterations")


def main():
    parser = pairs.argument_parser(__doc__)
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=150_000, help="of a run (default: 150000)")
    arguments = parser.parse_args()
    pairs.leave_polled_cpus()
    try:
        print(f"ok      {PROGRAM}, agent killed: {check(arguments)}", flush=True)
    except (pairs.Failure, pairs.session.Timeout) as failure:
        print(f"FAILED  {PROGRAM}, agent killed: {failure}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

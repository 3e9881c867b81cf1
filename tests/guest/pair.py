# SPDX-License-Identifier: Apache-2.0
"""In the guest: a pair of unmodified verbs programs over rdma_rxe, and the agent on one of them.

The program that is watched polls on the last CPU; its peer, the agent and the test have the others.
Durations are those of the guest's own clock.
"""
import argparse
import contextlib
import dataclasses
import json
import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, "../accuracy")]
import judge  # noqa: E402  (found through the line above)
import session  # noqa: E402

*OTHERS, POLLED_CPU = sorted(session.CPUS)
PEER_CPU = OTHERS[-1]
PORT = 18515
PERFTEST = ["-d", "rxe0", "-x", "1", "-F"]
STUCK_S = 100  # in the guest's time: only to end what hangs


@dataclasses.dataclass(frozen=True)
class Program:
    command: tuple
    # How many completions the server gets in each iteration.
    completions: int
    # Its own count of iterations, in the output of a client.
    reported: str = r"^ *\d+ +(\d+) +[\d.]+"


PROGRAMS = {
    "ib_send_lat": Program(("ib_send_lat", *PERFTEST), completions=2),
    "ib_write_lat": Program(("ib_write_lat", *PERFTEST), completions=1),
    "ib_send_bw": Program(("ib_send_bw", *PERFTEST, "-s", "1024"), completions=1),
    "ib_send_lat -e": Program(("ib_send_lat", *PERFTEST, "-e"), completions=2),
    "ibv_rc_pingpong": Program(("ibv_rc_pingpong", "-d", "rxe0", "-g", "1"), completions=2,
                               reported=r"^(\d+) iters in"),
    "ibv_rc_pingpong -e": Program(("ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-e"), completions=2,
                                  reported=r"^(\d+) iters in"),
}
# What does not come to its end there, watched or not: kernel series and program.
HANGS = {("6.12", "ib_send_lat -e")}


class Failure(Exception):
    """Something is not as it should be; the text says what."""


def argument_parser(description):
    """With what all tests in the guest take."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="directory of the programs")
    parser.add_argument("--output", default="/out", help="directory of reports (default: /out)")
    return parser


def leave_polled_cpus():
    os.sched_setaffinity(0, OTHERS)


def listening():
    """Whether something does on the port, without connecting to it."""
    with open("/proc/net/tcp", encoding="ascii") as tcp4, open("/proc/net/tcp6", encoding="ascii") as tcp6:
        lines = [line.split() for line in [*tcp4, *tcp6]]
    return any(line[1].endswith(f":{PORT:04X}") and line[3] == "0A" for line in lines)


class Pair:
    """A server, and its client once connect() is called. Both are ended with the pair."""

    def __init__(self, program, iterations, server_cpu, client_cpu, inside=()):
        """`inside`: a command in which both run, with theirs as its arguments."""
        self.program = program
        self.inside = inside
        self.iterations = iterations
        self.client_cpu = client_cpu
        self._children = contextlib.ExitStack()
        self.client = None
        self.server = self._start(server_cpu)
        while self.server.running() and not listening():
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._children.close()

    def _start(self, cpu, *more):
        command = ["taskset", "-c", cpu, *self.inside, *self.program.command,
                   "-n", self.iterations, *more]
        return self._children.enter_context(session.Child(command))

    def signal(self, number):
        for child in (self.client, self.server):
            child.signal(number)

    def connect(self):
        self.client = self._start(self.client_cpu, "127.0.0.1")

    def finish(self):
        """Both must end with status 0, and the client report its iterations."""
        for name, child in (("client", self.client), ("server", self.server)):
            if status := child.wait(STUCK_S):
                raise Failure(f"the {name} ended with status {status}:\n{child.text()}")
        found = re.search(self.program.reported, self.client.text("out"), re.MULTILINE)
        if not found or int(found[1]) != self.iterations:
            raise Failure(f"it does not report {self.iterations} iterations:\n{self.client.text()}")


def start_agent(build, pid, path, *options):
    """pollgap attach, as soon as it is started; its report goes to the path."""
    return session.start_agent(os.path.join(build, "pollgap"), pid, "--output", path, *options)


class Agent:
    """pollgap on a process, once it is attached."""

    def __init__(self, build, pid, path, *options):
        self.path = path
        self.child = start_agent(build, pid, path, *options)
        try:
            self.child.wait_for(r"(?i)\battached\b", STUCK_S)
        except session.Timeout:
            self.child.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill()

    def report(self):
        """Ends it, if the program's end has not, and gives its report, whose ledgers are exact."""
        if status := session.stop(self.child, STUCK_S):
            raise Failure(f"pollgap attach ended with {status}:\n{self.child.text()}")
        with open(self.path, encoding="utf-8") as file:
            report = json.load(file)
        if inexact := list(judge.ledger_findings(report)):
            raise Failure(f"a ledger is not exact: {inexact[0].text}")
        if lost := report["coverage"]["lost_records"]:
            raise Failure(f"{lost} records were lost")
        name = report["target"]["sites"][0]["name"]
        if not name.startswith("librxe-rdmav34.so+0x"):
            raise Failure(f"the poll function is said to be {name}")
        return report

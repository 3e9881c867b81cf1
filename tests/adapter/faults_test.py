#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults that are injected into unmodified programs from outside, and processes that are killed.

  faults_test.py --run tools/soft-hca/run --library LIBRARY CASE
  faults_test.py --list
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import programs_test
from programs_test import Failure

WAIT_S = 60


def wait_until(what, condition):
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise Failure(f"{what}: not within {WAIT_S} s")


def check(condition, what):
    if not condition:
        raise Failure(what)


PING_PONG = ["ibv_rc_pingpong", "-n", "100000000", "-s", "64"]
# Its client always has requests under way, so that it must notice what becomes of the server.
WRITES = ["ib_write_bw", "--run_infinitely", "-F"]


class Pair:
    """Two processes that go on until they are stopped; both log what faults do."""

    def __init__(self, options, fabric, log, program=None, started_by=()):
        self.control_command = [os.path.join(os.path.dirname(options.run), "control"),
                                "--fabric", fabric]
        adapter = programs_test.Adapter(options.run, options.library, fabric)
        adapter.command = [*started_by, *adapter.command[:-1], "--log", log, "--"]
        program = (program or PING_PONG) + ["-p", str(programs_test.free_port())]
        self.server = adapter.start(program, {})
        wait_until("the server listens",
                   lambda: programs_test.listening(int(program[-1])) or self.server.poll())
        self.client = adapter.start(program + ["127.0.0.1"], {})
        wait_until("traffic", lambda: self.counter(self.client, "port_xmit_packets") > 20)

    def control(self, process, *command, good=True):
        done = subprocess.run(self.control_command + ["--pid", str(process.pid), *command],
                              capture_output=True, text=True, check=False)
        if good:
            check(done.returncode == 0, f"{command}: {done.stdout}{done.stderr}")
        return done

    def counters(self, process):
        done = self.control(process, "counters", good=False)
        pairs = (line.split("=") for line in done.stdout.splitlines()[1:])
        return {name: int(value) for name, value in pairs}

    def counter(self, process, name):
        return self.counters(process).get(name, 0)

    def counter_file(self, process, name):
        """Where mounting is not permitted only the process itself sees its files."""
        sysfs = self.control(process, "sysfs", good=os.geteuid() == 0)
        if sysfs.returncode != 0:
            return self.counter(process, os.path.basename(name))
        root = sysfs.stdout.strip()
        with open(f"{root}/class/infiniband/mlx5_0/ports/1/{name}", encoding="ascii") as file:
            return int(file.read())

    def close(self):
        for process in (self.client, self.server):
            process.kill()
            process.communicate()


def lines_of(log, fault):
    with open(log, encoding="ascii") as file:
        lines = [json.loads(line) for line in file]
    return [line for line in lines if line["fault"] == fault]


def standing(pair, process):
    packets = pair.counter(process, "port_xmit_packets")
    time.sleep(1)
    return pair.counter(process, "port_xmit_packets") == packets


def faults_are_logged_and_counted(options, fabric, directory):
    log = os.path.join(directory, "log")
    pair = Pair(options, fabric, log)
    try:
        client = pair.client
        for fault, command, length_ns in (
                ("delay", ["delay", "by=20ms", "count=1"], 20_000_000),
                ("hold", ["hold", "for=30ms"], 30_000_000),
                ("pause", ["pause", "for=10ms"], 10_000_000),
                ("slow", ["slow", "by=1ms", "for=20ms"], 20_000_000),
                ("drop-request", ["drop", "count=1"], 4096 << 14)):
            before = time.monotonic_ns()
            answer = pair.control(client, *command).stdout
            line = wait_until(f"a line about {fault}", lambda f=fault: lines_of(log, f))[-1]
            check(line["pid"] == client.pid, f"{fault}: of another process: {line}")
            check(before <= line["start_mono_ns"] < line["end_mono_ns"] <= time.monotonic_ns(),
                  f"{fault}: not between the command and now: {line}")
            took = line["end_mono_ns"] - line["start_mono_ns"]
            check(took >= length_ns * 0.99, f"{fault}: took only {took} ns: {line}")
            check(f"ok {line['id']} " in answer, f"{fault}: {line} is not {answer}")
            print(f"{fault}: {took} ns")
        for name in ("local_ack_timeout_err", "port_xmit_discards"):
            check(pair.counter(client, name) >= 1, f"{name} has not moved")
        wait_until("the counter's file", lambda: pair.counter_file(
            client, "hw_counters/local_ack_timeout_err") >= 1)
        pair.control(pair.server, "rnr", "for=1s")
        line = wait_until("a line about rnr", lambda: lines_of(log, "rnr"))[-1]
        check(line["pid"] == pair.server.pid and line["count"] >= 1, f"rnr: {line}")
        wait_until("the file of out_of_buffer", lambda: pair.counter_file(
            pair.server, "hw_counters/out_of_buffer") >= 1)
        wait_until("the file of rnr_nak_retry_err", lambda: pair.counter_file(
            client, "hw_counters/rnr_nak_retry_err") >= 1)
        packets = pair.counter(client, "port_xmit_packets")
        wait_until("traffic goes on",
                   lambda: pair.counter(client, "port_xmit_packets") > packets + 20)
        # Then its next send stays unfinished, and is the one that fails.
        pair.control(client, "slow", "by=60s", "for=60s")
        wait_until("the client waits", lambda: standing(pair, client))
        number = pair.control(client, "list").stdout.split("qp=")[1].split()[0]
        pair.control(client, "fail", f"qp={number}", "syndrome=0x15", "vendor=0x81")
        output, _ = client.communicate(timeout=WAIT_S)
        check(client.returncode == 1, f"the program ended with {client.returncode}")
        check("transport retry counter exceeded (12)" in output, f"another error:\n{output}")
    finally:
        pair.close()


def bad_commands_are_refused(options, fabric, directory):
    pair = Pair(options, fabric, os.path.join(directory, "log"))
    try:
        for command in (["nonsense"], ["hold"], ["hold", "for=1"], ["fail", "qp=1"]):
            done = pair.control(pair.client, *command, good=False)
            check(done.returncode == 1 and done.stdout.startswith("error"), f"{command}: {done}")
        done = subprocess.run(pair.control_command + ["list"], capture_output=True, text=True,
                              check=False)
        check(done.returncode == 2 and "pass --pid" in done.stderr, f"two processes: {done}")
    finally:
        pair.close()


def left_over(fabric):
    """What there is of the adapter: files, where they might be, sockets, processes."""
    found = []
    places = {"/dev/shm", "/tmp", tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR", "/tmp")}
    for place in filter(os.path.isdir, places):
        found += [f"{place}/{name}" for name in os.listdir(place) if "soft-hca" in name
                  and not name.startswith("soft-hca-faults-test.")]
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as table:
        found += [line for line in table if f"/{fabric}/" in line]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environment:
                if f"POLLGAP_SOFT_HCA_FABRIC={fabric}".encode() in environment.read().split(b"\0"):
                    found.append(f"process {pid}")
        except OSError:
            pass  # another user's, or it has ended
    return found


# Runs a program with no capability, and no way to get one.
UNPRIVILEGED = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]


def a_killed_process_takes_nothing_with_it(options, fabric, directory):
    log = os.path.join(directory, "log")
    before = set(left_over(fabric))
    # A test that is not root's has no capability anyway, and may not run setpriv like this.
    for started_by in ((), UNPRIVILEGED) if os.geteuid() == 0 else ((),):
        pair = Pair(options, fabric, log, WRITES, started_by)
        try:
            pair.server.send_signal(signal.SIGKILL)
            output, _ = pair.client.communicate(timeout=WAIT_S)
            check(pair.client.returncode > 0, f"the client ended with {pair.client.returncode}")
            check("Failed status 12" in output, f"another error:\n{output}")
        finally:
            pair.close()
        # The places of both are free again.
        pair = Pair(options, fabric, log, started_by=started_by)
        for process in (pair.client, pair.server):
            process.send_signal(signal.SIGKILL)
        pair.close()
        check(set(left_over(fabric)) <= before,
              f"left over, started by {started_by}: {left_over(fabric)}")


def four_processes_at_once(options, fabric, directory):
    pairs = [Pair(options, fabric, os.path.join(directory, "log")) for _ in range(2)]
    try:
        for pair in pairs:
            packets = pair.counter(pair.client, "port_xmit_packets")
            wait_until("traffic goes on", lambda p=pair, n=packets: p.counter(
                p.client, "port_xmit_packets") > n + 20)
    finally:
        for pair in pairs:
            pair.close()


CASES = [faults_are_logged_and_counted, bad_commands_are_refused,
         a_killed_process_takes_nothing_with_it, four_processes_at_once]


def main():
    cases = {case.__name__: case for case in CASES}
    options = programs_test.arguments(cases)
    with tempfile.TemporaryDirectory(prefix="soft-hca-faults-test.") as directory:
        try:
            cases[options.case](options, f"faults-{os.getpid()}", directory)
        except Failure as failure:
            print(f"FAILED: {options.case}: {failure}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The distribution's own verbs programs, unmodified, on the soft adapter.

  programs_test.py --run tools/soft-hca/run --library LIBRARY CASE
  programs_test.py --list

Each pair is a server and a client, two processes that reach each other only through the adapter
and a socket on 127.0.0.1 for their own agreement. Both must exit 0; the ping-pongs check the data
of every message.
"""
import argparse
import os
import shutil
import socket
import subprocess
import sys
import time

TIMEOUT_S = 90

# Iterations are few: on two cores, or one, both ends and both device threads take turns.
PAIRS = {
    "rc_pingpong": ["ibv_rc_pingpong", "-n", "200", "-c"],
    "rc_pingpong_events": ["ibv_rc_pingpong", "-n", "200", "-c", "-e"],
    "rc_pingpong_timestamps": ["ibv_rc_pingpong", "-n", "200", "-c", "-t"],
    "rc_pingpong_new_send": ["ibv_rc_pingpong", "-n", "200", "-c", "-N"],
    "rc_pingpong_big": ["ibv_rc_pingpong", "-n", "50", "-c", "-s", "1000000", "-m", "4096"],
    "rc_pingpong_small_mtu": ["ibv_rc_pingpong", "-n", "100", "-c", "-s", "20000", "-m", "256"],
    "ud_pingpong": ["ibv_ud_pingpong", "-n", "200", "-c"],
    "ud_pingpong_events": ["ibv_ud_pingpong", "-n", "200", "-c", "-e"],
    "srq_pingpong": ["ibv_srq_pingpong", "-n", "200", "-c"],
    "srq_pingpong_events": ["ibv_srq_pingpong", "-n", "200", "-c", "-e"],
    "send_lat": ["ib_send_lat", "-n", "100"],
    "send_lat_events": ["ib_send_lat", "-n", "100", "-e"],
    "send_lat_big": ["ib_send_lat", "-n", "50", "-s", "65536"],
    "send_lat_ud": ["ib_send_lat", "-n", "100", "-c", "UD"],
    "write_lat": ["ib_write_lat", "-n", "100"],
    "read_lat": ["ib_read_lat", "-n", "100"],
    "read_lat_events": ["ib_read_lat", "-n", "100", "-e"],
    "atomic_lat_fetch_add": ["ib_atomic_lat", "-n", "100", "-A", "FETCH_AND_ADD"],
    "atomic_lat_compare_swap": ["ib_atomic_lat", "-n", "100", "-A", "CMP_AND_SWAP"],
    "atomic_lat_events": ["ib_atomic_lat", "-n", "100", "-e"],
    "send_bw": ["ib_send_bw", "-n", "1000"],
    "send_bw_events": ["ib_send_bw", "-n", "1000", "-e"],
    "send_bw_srq": ["ib_send_bw", "-n", "1000", "-r", "256", "--use-srq"],
    "send_bw_two_ways": ["ib_send_bw", "-n", "1000", "-b"],
    "write_bw": ["ib_write_bw", "-n", "1000", "-q", "4"],
    "read_bw": ["ib_read_bw", "-n", "1000"],
    "read_bw_events": ["ib_read_bw", "-n", "1000", "-e"],
    "atomic_bw": ["ib_atomic_bw", "-n", "1000"],
}
# The same program with other settings of the provider.
ENVIRONMENTS = {
    "rc_pingpong_cqe_128": ("rc_pingpong", {"MLX5_CQE_SIZE": "128"}),
    "rc_pingpong_cqe_version_0": ("rc_pingpong", {"POLLGAP_SOFT_HCA_CQE_VERSION": "0"}),
    "srq_pingpong_cqe_version_0": ("srq_pingpong", {"POLLGAP_SOFT_HCA_CQE_VERSION": "0"}),
    "rc_pingpong_single_threaded": ("rc_pingpong", {"MLX5_SINGLE_THREADED": "1"}),
}
DEVINFO = "devinfo"


# perftest compares two measurements of the clock rate, and gives up if it was kept off the CPU in
# one of them.
UNLUCKY = ("Correlation coefficient", "Can't produce a report")
ATTEMPTS = 4


class Failure(Exception):
    pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listening(port):
    """Whether somebody listens, without connecting: the programs take one connection each."""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as lines:
            for line in lines:
                fields = line.split()
                if fields[1].endswith(wanted) and fields[3] == "0A":
                    return True
    return False


class Adapter:
    def __init__(self, run, library, fabric):
        self.command = [run, "--library", library, "--fabric", fabric, "--"]

    def start(self, program, environment):
        return subprocess.Popen(self.command + program, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True,
                                env={**os.environ, **environment})


def finish(process, what):
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        raise Failure(f"{what} did not end within {TIMEOUT_S} s:\n{output}") from None
    if process.returncode != 0:
        raise Failure(f"{what} ended with {process.returncode}:\n{output}")
    return output


def run_pair(adapter, program, environment):
    port = free_port()
    program = program + ["-p", str(port)]
    server = adapter.start(program, environment)
    try:
        end = time.monotonic() + TIMEOUT_S
        while not listening(port):
            if server.poll() is not None or time.monotonic() > end:
                raise Failure(f"the server does not listen:\n{finish(server, 'server')}")
            time.sleep(0.02)
        client = adapter.start(program + ["127.0.0.1"], environment)
        try:
            print(finish(client, "client"))
        finally:
            client.kill()
        print(finish(server, "server"))
    finally:
        server.kill()


def run_devinfo(adapter):
    output = finish(adapter.start(["ibv_devinfo", "-v"], {}), "ibv_devinfo")
    print(output)
    for wanted in ("hca_id:\tmlx5_0", "PORT_ACTIVE", "atomic_cap:\t\t\tATOMIC_HCA", "max_srq:",
                   "hca_core_clock:", "link_layer:\t\tInfiniBand", "GID[  0]:"):
        if wanted not in output:
            raise Failure(f"no {wanted!r} in the output of ibv_devinfo")


def arguments(cases):
    """The command line of a test of several cases; ends the process when it only asks for them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--run")
    parser.add_argument("--library")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("case", nargs="?", metavar="CASE", choices=cases)
    options = parser.parse_args()
    if options.list:
        print("\n".join(cases))
        sys.exit(0)
    if options.case is None:
        parser.error("no case")
    return options


def main():
    options = arguments([DEVINFO, *PAIRS, *ENVIRONMENTS])
    name, environment = ENVIRONMENTS.get(options.case, (options.case, {}))
    program = ["ibv_devinfo"] if name == DEVINFO else PAIRS[name]
    if shutil.which(program[0]) is None:
        print(f"FAILED: {program[0]} is not installed: tools/install-deps test")
        return 1
    adapter = Adapter(options.run, options.library, f"test-{os.getpid()}")
    for attempt in range(1, ATTEMPTS + 1):
        try:
            if name == DEVINFO:
                run_devinfo(adapter)
            else:
                run_pair(adapter, program, environment)
            return 0
        except Failure as failure:
            print(f"FAILED: {options.case}: {failure}")
            if attempt == ATTEMPTS or not all(text in str(failure) for text in UNLUCKY):
                return 1
    return 1


if __name__ == "__main__":
    sys.exit(main())

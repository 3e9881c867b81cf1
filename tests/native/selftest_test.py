#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pollgap selftest runs here, tells of every disturbance, and finds them named right.

  selftest_test.py POLLGAP
"""
import re
import subprocess
import sys

# The table's lines: a disturbance, the cause injected, how often.
ROW = re.compile(r"^([a-z-]+) +([a-z_]+) +(\d+)  (\S.*?)  ", re.MULTILINE)
TOTAL = re.compile(r"^(\d+) of (\d+) disturbances were named right, (\d+) wrong$", re.MULTILINE)
REFUSED = re.compile(r"^not tested: .*--disturb ([a-z-]+):", re.MULTILINE)
DISTURBANCES = {"fifo", "ordinary", "kworker", "irq", "irq-device", "softirq", "ipi-storm", "minor-faults",
                "major-faults", "syscalls", "sleep", "futex", "stop", "quota", "rt-throttle", "reg-mr",
                "verbs", "compute", "late", "errors"}
LEAST_RIGHT = 0.8  # of a few on a shared machine: tests/accuracy measures it


def main():
    pollgap = sys.argv[1]
    ended = subprocess.run([pollgap, "selftest", "--rounds", "2"], check=False, capture_output=True,
                           text=True, timeout=300)
    print(ended.stdout, ended.stderr)
    rows = {found[1]: found for found in ROW.finditer(ended.stdout)}
    told = set(rows) | set(REFUSED.findall(ended.stdout))
    assert told == DISTURBANCES, told ^ DISTURBANCES
    right, injected, wrong = map(int, TOTAL.search(ended.stdout).groups())
    assert injected == sum(int(row[3]) for row in rows.values())
    assert right >= LEAST_RIGHT * injected
    assert ended.returncode == (1 if wrong else 0), ended.returncode
    assert ended.stderr.count("\n") == (1 if wrong else 0), ended.stderr

    for arguments, status in (["--length", "1ms"], 2), (["--rounds", "0"], 2), (["--workload", "/nowhere"], 1):
        refused = subprocess.run([pollgap, "selftest", *arguments], check=False, capture_output=True,
                                 text=True, timeout=60)
        assert (refused.returncode, refused.stdout) == (status, ""), refused
        assert refused.stderr.startswith("pollgap: ") and refused.stderr.count("\n") == 1, refused


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""What a workload says of its polls, and what processes take, by the kernel's account."""
import os
import re
import signal
import time

import session

TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def told(target):
    """What the workload says of its polls on SIGUSR2: of the time since it was last asked."""
    seen = len(target.lines)
    target.signal(signal.SIGUSR2)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for _, _, text in target.lines[seen:]:
            if text.startswith("polls "):
                return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", text)}
        time.sleep(0.005)
    raise session.Timeout("the workload did not tell its polls on SIGUSR2:\n" + target.text())


def told_over(target, seconds):
    """What it says before and after that long, or longer: on a busy machine it may not run at all."""
    first = last = told(target)
    while last["count"] == first["count"]:
        time.sleep(seconds)
        last = told(target)
    return first, last


def cpu_seconds(pids):
    """User and system time of processes and of those that they waited for (proc(5): stat)."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
        except FileNotFoundError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICKS


def resident_bytes(pids):
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
                total += int(statm.read().split()[1]) * PAGE_BYTES
        except FileNotFoundError:
            continue
    return total


def switches(pid, tid):
    """Of a thread, voluntary and not (proc(5): status)."""
    with open(f"/proc/{pid}/task/{tid}/status", encoding="ascii") as status:
        return sum(int(line.split()[1]) for line in status if "ctxt_switches" in line)

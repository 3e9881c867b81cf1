#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""In the guest: a program in a container, with a root, mounts and PIDs of its own.

  container_test.py --build DIR [--iterations N] [--output DIR]

Its provider library is in the container alone: the agent can find it under the process's root only.
"""
import os
import re
import shutil
import subprocess
import sys

import pair as pairs

ROOT = "/run/container"
PROVIDERS = "/usr/lib/x86_64-linux-gnu/libibverbs"
PROGRAM = "ibv_rc_pingpong"
# The arguments are the program's. The PID that it has in there is 1.
ENTER = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
         f"mount --rbind /sys {ROOT}/sys && mount --rbind /dev {ROOT}/dev && "
         f"mount -t proc proc {ROOT}/proc && exec chroot {ROOT} \"$@\"", "container")


def make_root():
    """The program and all that it loads, and nothing else."""
    for directory in ("sys", "dev", "proc"):
        os.makedirs(f"{ROOT}/{directory}")
    wanted = [shutil.which(PROGRAM), *(os.path.join(PROVIDERS, name) for name in os.listdir(PROVIDERS)
                                       if name.startswith("librxe"))]
    linked = subprocess.run(["ldd", *wanted], capture_output=True, text=True, check=True).stdout
    for path in {*wanted, *re.findall(r"(/\S+) \(0x", linked)}:
        os.makedirs(ROOT + os.path.dirname(path), exist_ok=True)
        shutil.copy(path, ROOT + path)
    shutil.copytree("/etc/libibverbs.d", f"{ROOT}/etc/libibverbs.d")
    subprocess.run(["mount", "-t", "tmpfs", "hidden", PROVIDERS], check=True)


def child_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return int(file.read())


def check(arguments):
    program = pairs.PROGRAMS[PROGRAM]
    make_root()
    with pairs.Pair(program, arguments.iterations, pairs.POLLED_CPU, pairs.PEER_CPU, ENTER) as pair:
        pid = child_of(pair.server.pid)
        path = os.path.join(arguments.output, "container.json")
        with pairs.Agent(arguments.build, pid, path) as agent:
            pair.connect()
            pair.finish()
            agent.child.wait(pairs.STUCK_S)
            report = agent.report()
    counted = sum(cq["completions"] for cq in report["summary"]["cqs"])
    if counted != program.completions * arguments.iterations:
        raise pairs.Failure(f"{counted} completions counted of {arguments.iterations} iterations")
    return f"{counted} completions, all counted, by {report['target']['sites'][0]['name']}"


def main():
    parser = pairs.argument_parser(__doc__)
    parser.add_argument("--iterations", type=int, default=1000)
    arguments = parser.parse_args()
    pairs.leave_polled_cpus()
    try:
        print(f"ok      {PROGRAM}, in a container: {check(arguments)}", flush=True)
    except (pairs.Failure, pairs.session.Timeout) as failure:
        print(f"FAILED  {PROGRAM}, in a container: {failure}", flush=True)
        return 1
    finally:
        subprocess.run(["umount", PROVIDERS], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())

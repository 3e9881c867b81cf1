# SPDX-License-Identifier: Apache-2.0
"""Other tasks, for agents to be watched beside."""
import contextlib
import os
import signal

import session


@contextlib.contextmanager
def pair_on(cpu):
    """Two that wake each other through pipes as fast as they can; in a process group of their own, so
    that both are ended."""
    pair = session.Child(["taskset", "-c", cpu, "perf", "bench", "sched", "pipe", "-l", 10**9],
                         start_new_session=True)
    try:
        yield pair
        if not pair.running():
            raise RuntimeError(f"perf bench ended too early:\n{pair.text()}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pair.pid, signal.SIGKILL)
        pair.kill()

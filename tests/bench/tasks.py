# SPDX-License-Identifier: Apache-2.0
"""Other tasks, for agents to be watched beside."""
import contextlib
import os
import signal
import sys

import session

# Two tasks that switch as fast as they can. With each switch of pipe comes a wakeup; those of yield only
# switch, twice as fast.
PAIRS = {"pipe": ["perf", "bench", "sched", "pipe", "-l", 10**9],
         "yield": [sys.executable, "-c", "import os\nos.fork()\nwhile True: os.sched_yield()"]}


@contextlib.contextmanager
def pair_on(cpu, kind="pipe"):
    """A pair of PAIRS; in a process group of its own, so that both are ended."""
    pair = session.Child(["taskset", "-c", cpu, *PAIRS[kind]], start_new_session=True)
    try:
        yield pair
        if not pair.running():
            raise RuntimeError(f"the {kind} pair ended too early:\n{pair.text()}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pair.pid, signal.SIGKILL)
        pair.kill()

# SPDX-License-Identifier: Apache-2.0
"""Unmodified ibv_rc_pingpong over the soft adapter: two processes that do a given work, whose data they
check, and end."""
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "adapter"))
import programs_test  # noqa: E402  (found through the line above)
import session  # noqa: E402

TOOLS = os.path.join(HERE, "../tools/soft-hca")


class PingPong:
    """The client polls on the last core, without a pause. The server helps it from the first, where both
    adapters' threads are, too, and sleeps until messages come."""

    def __init__(self, build, fabric, messages):
        self.fabric, self.messages = fabric, messages
        port, self.ends = programs_test.free_port(), []
        helpers = min(session.CPUS)
        for cpu, options in ((helpers, ["-e"]), (max(session.CPUS), ["127.0.0.1"])):
            self.ends.append(session.Child([
                os.path.join(TOOLS, "run"),
                "--library", os.path.join(build, "tools/soft-hca/libpollgap-soft-hca.so"),
                "--fabric", fabric, "--cpu", helpers, "--", "taskset", "-c", cpu,
                "ibv_rc_pingpong", "-c", "-n", messages, "-p", port, *options]))
            while len(self.ends) == 1 and not programs_test.listening(port):
                if not self.ends[0].running():
                    raise RuntimeError(self.ends[0].text())
                time.sleep(0.02)
        time.sleep(0.5)  # until the client has a CQ

    @property
    def client(self):
        return self.ends[-1]

    def kill(self):
        for end in self.ends:
            end.kill()

    def control(self, *command):
        """Does it to the client's adapter. Returns what the answer says by name, numbers all."""
        done = subprocess.run([sys.executable, os.path.join(TOOLS, "control"), "--fabric", self.fabric,
                               "--pid", str(self.client.pid), *command],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
        return {name: int(value) for name, value in
                (word.split("=", 1) for word in done.stdout.split() if "=" in word) if value.isdigit()}

    def problems(self):
        """Why the work was not done, once it has ended; empty: it was."""
        found = []
        for end in self.ends:
            status, text = end.wait(120), end.text()
            if status != 0 or f"{self.messages} iters in" not in text or "invalid data" in text:
                found.append(f"{status}: {text}")
        return found

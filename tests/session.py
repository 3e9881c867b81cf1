# SPDX-License-Identifier: Apache-2.0
"""A workload and the agent that attaches to it, as child processes of a test.

Every child is ended by its own PID. Output lines are kept with the time they were read.
"""
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest


# The workload's exit statuses that say what the machine lacks: a privilege, or a kernel feature.
REFUSALS = (4, 5)


# Where children may run, whatever this process does with its own affinity.
CPUS = os.sched_getaffinity(0)


def leave_polled_core():
    """Keeps this process, whose readers wake at every line, off the core that the workload polls on
    by default: its last."""
    if len(CPUS) > 1:
        os.sched_setaffinity(0, CPUS - {max(CPUS)})


class Timeout(Exception):
    """A child did not say or do what it was waited for."""


class Refused(Exception):
    """The workload says that this machine cannot do what it was told."""


class Child:
    """A process whose standard output and error are read line by line, as they come."""

    def __init__(self, command, **popen):
        self.command = [str(word) for word in command]
        self.started = time.monotonic()
        self.lines = []  # (seconds since start, "out" or "err", text)
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", preexec_fn=lambda: os.sched_setaffinity(0, CPUS), **popen)
        self.pid = self.process.pid
        self._readers = [threading.Thread(target=self._read, args=arguments, daemon=True)
                         for arguments in ((self.process.stdout, "out"), (self.process.stderr, "err"))]
        for reader in self._readers:
            reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def _read(self, stream, name):
        with stream:
            for line in stream:
                with self._changed:
                    self.lines.append((time.monotonic() - self.started, name, line.rstrip("\n")))
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def text(self, stream=None):
        with self._changed:
            return "\n".join(text for _, name, text in self.lines if stream in (None, name))

    def wait_for(self, pattern, timeout):
        """The match of the first line that has the pattern, and the seconds from start to it."""
        deadline = time.monotonic() + timeout
        expression, seen = re.compile(pattern), 0
        with self._changed:
            while True:
                for at, _, text in self.lines[seen:]:
                    if found := expression.search(text):
                        return found, at
                seen = len(self.lines)
                ended = self.process.poll() is not None and not any(
                    reader.is_alive() for reader in self._readers)
                if ended or time.monotonic() > deadline:
                    break
                self._changed.wait(0.1)
        why = f"ended with {self.process.returncode}" if ended else f"ran on for {timeout} s"
        raise Timeout(f"{self.command[0]} {why} without '{pattern}':\n{self.text()}")

    def wait(self, timeout):
        """Its exit status, once it has ended and all of its output is read."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Timeout(f"{self.command[0]} did not end within {timeout} s:\n{self.text()}") from None
        for reader in self._readers:
            reader.join(5)
        return status

    def running(self):
        return self.process.poll() is None

    def signal(self, number):
        if self.running():
            os.kill(self.pid, number)

    def kill(self):
        if self.running():
            self.process.kill()
        self.wait(10)


def start_agent(pollgap, pid, *options):
    """Times each poll where the options do not say otherwise: what auto takes is another matter."""
    timing = () if "--timing" in options else ("--timing", "uprobe")
    return Child([pollgap, "attach", "--pid", pid, *timing, *options])


class Programs:
    """Where a build directory has the programs."""

    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.pollgap = self._find("pollgap")
        self.workload = self._find("pollgap-workload")

    def _find(self, name):
        for directory, folders, files in os.walk(self.build):
            folders[:] = [folder for folder in folders if folder != "CMakeFiles"]
            path = os.path.join(directory, name)
            if name in files and os.access(path, os.X_OK):
                return path
        raise FileNotFoundError(f"no {name} below {self.build}: build it first")

    def start_workload(self, *options):
        """The workload, once it polls."""
        child = Child([self.workload, "--device", "soft", *options])
        try:
            child.wait_for(r"ready pid=\d+", 60)
        except Timeout:
            child.kill()
            if child.process.returncode in REFUSALS:
                raise Refused(child.text("err").strip()) from None
            raise
        return child

    def start_agent(self, pid, *options):
        return start_agent(self.pollgap, pid, *options)


def stop(child, timeout=30):
    """Ends a child as a person would, and gives its exit status."""
    child.signal(signal.SIGINT)
    return child.wait(timeout)


def run_cases(cases, usage):
    """The main of a script whose arguments are `--build DIR [CASE...]`: runs the class's cases, of which
    `build` is the directory."""
    arguments = sys.argv[1:]
    if arguments[:1] != ["--build"]:
        sys.exit(usage)
    cases.build = os.path.abspath(arguments[1])
    unittest.main(argv=[sys.argv[0], *(f"{cases.__name__}.{case}" for case in arguments[2:])], verbosity=2)

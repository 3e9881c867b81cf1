#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The interrupts that pollgap says the polled core took are those that the kernel counts. Those it says
it caused are what its sampler asked for and what attaching and detaching took: while nothing happens,
none.

  self_noise_test.py --build DIR [CASE...]
"""
import json
import os
import shutil
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import interrupts  # noqa: E402  (as the next one: found through the line above)
import session  # noqa: E402

POLLED = max(session.CPUS)
# The rows of /proc/interrupts whose every interrupt a tracepoint shows, and what reports call them.
# Of RES that is not so: the kernel counts some that it handles otherwise (scheduler_ipi in idle).
ROWS = {"LOC": ("local_timer",), "CAL": ("call_function", "call_function_single"), "IWI": ("irq_work",)}
SECONDS = 8


class SelfNoise(unittest.TestCase):
    def setUp(self):
        session.leave_polled_core()
        self.directory = tempfile.mkdtemp(prefix="pollgap-noise.")
        self.addCleanup(shutil.rmtree, self.directory)

    def watch(self, *options):
        """The report's coverage, once it agrees with what the kernel counted meanwhile."""
        programs = session.Programs(self.build)
        path = os.path.join(self.directory, "report.json")
        with programs.start_workload("--cpu", POLLED, "--duration", "400s", *options) as workload:
            before = interrupts.taken_by(POLLED)
            with programs.start_agent(workload.pid, "--output", path) as agent:
                agent.wait_for(r"(?i)\battached\b", 180)
                attached = interrupts.taken_by(POLLED)
                time.sleep(SECONDS)
                detaching = interrupts.taken_by(POLLED)
                self.assertEqual(session.stop(agent, 120), 0, agent.text())
            after = interrupts.taken_by(POLLED)
        with open(path, encoding="utf-8") as file:
            coverage = json.load(file)["coverage"]
        self.assertEqual(coverage["lost_records"], 0)
        at_its_edges = 0  # while it attached and detached
        for row, kinds in ROWS.items():
            told = sum(coverage["interrupts"].get(kind, {"count": 0})["count"] for kind in kinds)
            inside, outside = detaching[row] - attached[row], after[row] - before[row]
            print(f"{row}: {told} told, {inside} counted while attached, {outside} in all", flush=True)
            self.assertLessEqual(inside, told)
            self.assertLessEqual(told, outside)
            at_its_edges += told - inside
        caused = sum(kind["by_agent"] for kind in coverage["interrupts"].values())
        print(f"{caused} of them the agent's, {coverage['silence_samples']} asked for", flush=True)
        self.assertGreaterEqual(caused, coverage["silence_samples"] - 1)
        self.assertLessEqual(caused - coverage["silence_samples"], at_its_edges)
        return coverage

    def test_quiet(self):
        """What it asks for then are the machine's own gaps."""
        self.assertLess(self.watch()["silence_samples"], SECONDS * 1000 / 20)

    def test_sampled(self):
        coverage = self.watch("--disturb", "compute:period=50ms,length=5ms")
        self.assertGreater(coverage["silence_samples"], SECONDS * 1000 / 50 * 2)


if __name__ == "__main__":
    session.run_cases(SelfNoise, __doc__)

# SPDX-License-Identifier: Apache-2.0
"""One session of the workload with the agent attached, and what both say of it."""
import filecmp
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import judge  # noqa: E402  (found through the line above)
import session  # noqa: E402
import truth as truth_log  # noqa: E402

SCHEMA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/report.schema.json")
ATTACHED = r"(?i)\battached\b"

# Every disturbance of the workload: its name there where it has several variants here, settings of
# its own, options of the workload that it needs, how much later than asked for it may begin, and how
# long it can be.
DISTURBANCES = {
    "fifo": {},
    "ordinary": {},
    "kworker": {},
    "irq": {},
    "irq-device": {},
    "softirq": {},
    "ipi-storm": {},
    "minor-faults": {},
    "major-faults": {},
    "syscalls": {"settings": {"variant": "long"}},
    "syscalls-storm": {"name": "syscalls", "settings": {"variant": "storm"}},
    "sleep": {},
    "futex": {},
    "stop": {},
    "quota": {},
    "rt-throttle": {"options": ["--policy", "fifo", "--priority", "20"], "delay_ms": 1200},
    "reg-mr": {},
    "verbs": {},
    "compute": {},
    "late": {},
    "idle": {},
    "errors": {"longest_ms": 5},
}


class Case:
    """One session: a workload with at most one disturbance, and the agent attached to it."""

    def __init__(self, programs, directory, timing="uprobe", agent_options=()):
        self.programs = programs
        self.timing = timing
        self.agent_options = agent_options
        os.makedirs(directory)
        self.directory = directory
        self.report = None
        self.truth = None
        self.findings = []
        self.judgements = []

    def path(self, name):
        return os.path.join(self.directory, name)

    def run(self, workload_options, seconds, occurrences, watch=lambda agent, seconds: time.sleep(seconds)):
        """Lets the workload run for that long with the agent attached, and reads both logs, of which
        the workload's must have that many injected disturbances, where a number is given. `watch`
        lets the time pass."""
        target = self.programs.start_workload("--go-file", self.path("go"), "--log",
                                              self.path("truth.jsonl"), *workload_options)
        with target:
            agent = self.programs.start_agent(target.pid, "--output", self.path("report.json"),
                                              "--capture", self.path("events.pgc"),
                                              "--timing", self.timing, *self.agent_options)
            with agent:
                agent.wait_for(ATTACHED, 120)
                attached = time.monotonic_ns()
                with open(self.path("go"), "w", encoding="ascii"):
                    pass
                watch(agent, seconds)
                detaching = time.monotonic_ns()
                if (status := session.stop(agent, 180)) != 0:
                    raise RuntimeError(f"pollgap attach ended with {status}:\n{agent.text()}")
                self.agent_text = agent.text()
            if (status := session.stop(target, 120)) != 0:
                raise RuntimeError(f"the workload ended with {status}:\n{target.text()}")
        self.truth = truth_log.read(self.path("truth.jsonl"))
        with open(self.path("report.json"), encoding="utf-8") as file:
            self.report = json.load(file)
        self.watched = (attached, detaching)
        if occurrences is not None and len(self.truth.injected) != occurrences:
            raise RuntimeError(f"the workload injected {len(self.truth.injected)} disturbances, "
                               f"not {occurrences}:\n{target.text()}")

    def check(self, validator):
        self.findings += judge.ledger_findings(self.report)
        self.findings += judge.gap_findings(self.truth, self.report, self.watched)
        self.findings += judge.outstanding_findings(self.truth, self.report)
        self.findings += [judge.Finding("schema", f"{error.json_path}: {error.message}")
                          for error in validator.iter_errors(self.report)]
        self.judgements = [judge.judge_injected(injected, self.report["gaps"],
                                                self.report["target"]["pid"], self.truth.injected,
                                                judge.blind_times(self.report),
                                                judge.nothing_to_see(self.report, self.truth.gaps))
                           for injected in self.truth.injected]
        self.findings += [judgement.finding for judgement in self.judgements if judgement.finding]
        self.check_sight()
        self.replay()

    def check_sight(self):
        """The agent could look at half of what was injected, at least."""
        blind = [judgement.verdict for judgement in self.judgements].count("blind")
        if 2 * blind > len(self.judgements):
            self.findings.append(judge.Finding(
                "blind", f"the agent came too late to look at {blind} of {len(self.judgements)}"))

    def replay(self):
        """The capture gives the same report, byte for byte."""
        again = self.path("replayed.json")
        with session.Child([self.programs.pollgap, "replay", self.path("events.pgc"), "--output",
                            again]) as replay:
            status = replay.wait(60)
            if status != 0:
                self.findings.append(judge.Finding("replay", f"ended with {status}: {replay.text()}"))
            elif not filecmp.cmp(self.path("report.json"), again, shallow=False):
                self.findings.append(judge.Finding(
                    "replay", f"{again} differs from the report of the live session"))

# SPDX-License-Identifier: Apache-2.0
"""The workload's ground-truth log: what it injected, and the gaps as it saw them itself."""
import dataclasses
import json


@dataclasses.dataclass(frozen=True)
class Injected:
    """One occurrence of a disturbance. Times are CLOCK_MONOTONIC nanoseconds."""
    name: str
    number: int
    cause: str  # as in reports; "" where no gap is expected
    tid: int
    start: int
    end: int
    culprit: dict  # what a verdict must name

    @property
    def span(self):
        return self.start, self.end


@dataclasses.dataclass(frozen=True)
class LoggedGap:
    kind: str
    tid: int
    start: int
    end: int

    @property
    def span(self):
        return self.start, self.end


@dataclasses.dataclass
class Truth:
    injected: list
    gaps: list
    polling: dict  # tid: (first poll, last poll)


def read(path):
    truth = Truth([], [], {})
    with open(path, encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            start = record.get("start_ns", 0)
            end = record.get("end_ns", start + record.get("duration_ns", 0))
            if record["type"] == "disturbance":
                truth.injected.append(Injected(record["name"], record["number"], record["cause"],
                                               record["tid"], start, end, record.get("culprit", {})))
            elif record["type"] == "gap":
                truth.gaps.append(LoggedGap(record["kind"], record["tid"], start, end))
            elif record["type"] == "polling":
                truth.polling[record["tid"]] = (start, end)
    return truth

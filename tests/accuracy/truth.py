# SPDX-License-Identifier: Apache-2.0
"""The workload's ground-truth log: what it injected, and the gaps as it saw them itself."""
import dataclasses
import json

import intervals


@dataclasses.dataclass(frozen=True)
class Injected:
    """One occurrence of a disturbance. Times are CLOCK_MONOTONIC nanoseconds."""
    name: str
    number: int
    cause: str  # as in reports; "" where no gap is expected
    tid: int
    start: int
    end: int
    culprits: tuple  # what the ledger must name: each the members of a report's detail
    spent: int  # of the time from start to end, what the injector itself saw go into the cause
    surely: tuple = ()  # when it surely was, where start and end are not known as well as that
    possibly: tuple = ()  # and when it may have been
    silences: tuple = None  # its parts in which the thread found nothing; None: all of it

    @property
    def span(self):
        return self.start, self.end


@dataclasses.dataclass(frozen=True)
class LoggedGap:
    kind: str
    tid: int
    start: int
    end: int
    outstanding: int = 0  # signaled sends when it ended
    completions: int = None  # returned by the poll that ended it
    ready: int = 0  # when the first of these came; 0: before the gap, or it is not known
    unposted: int = 0  # for so long, at its beginning, the send may not have been posted yet

    @property
    def span(self):
        return self.start, self.end

    @property
    def surely(self):
        return self.start + self.unposted, self.end


@dataclasses.dataclass
class Truth:
    injected: list
    gaps: list
    polling_end: dict  # tid: the last poll


def spent(record):
    """Nanoseconds of its duration that a disturbance spent in its cause, by its own measure."""
    own = "ran_ns", "slept_ns", "stopped_ns"
    parts = [value for key, value in record.get("facts", {}).items()
             if key in own or key.startswith("ibv_") and key.endswith("_ns")]
    return min(sum(parts), record["duration_ns"]) if parts else record["duration_ns"]


def in_turns(injected, tasks, gaps):
    """One by several tasks, between two of which the thread may have had a turn: what counts is when
    they ran in a gap of the workload's log, and which of them did."""
    least_ns = 100_000  # of a task's time, for it to be named
    silences = tuple(intervals.intersection(injected.span, gap.span) for gap in gaps
                     if gap.tid == injected.tid and intervals.overlaps(injected.span, gap.span))
    took = 0
    culprits = list(injected.culprits)
    for task in tasks:
        start = task["start_mono_ns"]
        silent = intervals.covered((start, start + task["duration_ns"]), silences)
        took += min(task["ran_ns"], silent)
        if silent >= least_ns:
            culprits.append({"task": {key: task[key] for key in ("comm", "pid", "tid")}})
    return dataclasses.replace(injected, culprits=tuple(culprits), spent=took, silences=silences)


def surely_and_possibly(record):
    """When a disturbance surely was, and may have been; () where its span is both."""
    facts = record.get("facts") or {}
    loose = facts.get("placed_within_ns", 0)
    start, end = record["start_mono_ns"], record["start_mono_ns"] + record["duration_ns"]
    if "took_from_mono_ns" in facts:
        return intervals.intersection(
            (start, end), (facts["took_from_mono_ns"], facts["took_until_mono_ns"])), ()
    if "failed_mono_ns" in facts:  # nothing completes any more until the errors are polled
        return (), (facts["failed_mono_ns"], end)
    if not loose:
        return (), ()
    return (start + loose, max(start + loose, end - loose)), (start - loose, end + loose)


def not_only_taken(injected, others):
    """Whether a throttling that shows by who took the core meanwhile was one: that task takes it also
    while the thread is stopped or blocked."""
    off = [other.span for other in others if other.cause in ("stopped", "blocked")
           and other.tid == injected.tid]
    return injected.cause != "throttled" or not injected.surely or \
        intervals.covered(injected.surely, off) <= intervals.length(injected.surely) // 2


def polled_in_vain(injected, gaps):
    """A held completion is missed from the last completion before it on, which is as much earlier as
    the program takes to poll and post all that it has outstanding, and while the program polls, maybe
    until the adapter's thread comes to let it go: by the workload's own log."""
    between_completions_ns = 500_000
    start, possibly = injected.start, (injected.start - between_completions_ns, injected.end)
    for gap in gaps:
        if gap.kind == "late_completion" and gap.tid == injected.tid \
                and 0 <= injected.start - gap.start < between_completions_ns \
                and gap.end > injected.start:
            start, possibly = gap.start, (gap.start, max(injected.end, gap.end))
            break
    silent = [gap.span for gap in gaps if gap.kind != "late_completion" and gap.tid == injected.tid]
    polled = tuple(intervals.without((start, injected.end), silent))
    return dataclasses.replace(injected, start=start, possibly=possibly, silences=polled,
                               spent=sum(map(intervals.length, polled)))


def read(path):
    truth = Truth([], [], {})
    tasks = {}  # by number of the disturbance
    with open(path, encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            if record["type"] == "disturbance":
                start = record["start_mono_ns"]
                cause = "" if record["cause"] == "idle" else record["cause"]
                number = len(truth.injected) + 1
                tasks[number] = record.get("facts", {}).get("tasks")
                truth.injected.append(Injected(record["name"], number, cause, record["tid"], start,
                                               start + record["duration_ns"], (record["culprit"],),
                                               spent(record), *surely_and_possibly(record)))
            elif record["type"] == "gap":
                start = record["start_mono_ns"]
                truth.gaps.append(LoggedGap(record["kind"], record["tid"], start,
                                            start + record["duration_ns"], record["outstanding"],
                                            record["completions"], record.get("ready_mono_ns", 0),
                                            record.get("unposted_ns", 0)))
            elif record["type"] == "polling_end":
                truth.polling_end[record["tid"]] = record["mono_ns"]
                if record["dropped_gaps"]:
                    raise RuntimeError(f"the workload's log lacks {record['dropped_gaps']} gaps")
    for index, injected in enumerate(truth.injected):
        if injected.cause == "late_completion":
            truth.injected[index] = polled_in_vain(injected, truth.gaps)
        elif tasks[injected.number]:
            truth.injected[index] = in_turns(injected, tasks[injected.number], truth.gaps)
    truth.injected = [injected for injected in truth.injected
                      if not_only_taken(injected, truth.injected)]
    return truth

# SPDX-License-Identifier: Apache-2.0
"""Compares a report with the workload's ground truth.

Where a hiccup of the machine falls on an injected disturbance, both are in the ledger: so the time
of the expected cause is compared, not the gap's duration; and what an injector measured on the
polling thread may be longer than its cause by what other tasks took of it meanwhile.
"""
import collections
import dataclasses

import intervals

THRESHOLD_NS = 1_000_000
REPORTED_FROM_NS = 1_200_000  # every gap at least this long must be in the report
MARGIN_NS = 500_000  # two disturbances that are no further apart may be in one gap

# A silence is in_poll for the workload, which stamps entry and return, and may be between_polls for
# the agent, which need not time returns; the two never differ in when they were.
FAMILY = {
    "in_poll": "silence",
    "between_polls": "silence",
    "stalled": "silence",
    "late_completion": "late",
    "unpolled_completion": "silence",
}


def family(injected):
    if not injected.cause:
        return "idle"
    return "late" if injected.cause == "late_completion" else "silence"


def tolerance(duration_ns):
    """10 % or 100 us, whichever is more."""
    return max(duration_ns // 10, 100_000)


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that is not as it should be, and the ledgers that show it."""
    what: str  # wrong, unexplained, missed, unreported, unlogged, ledger
    text: str
    gaps: tuple = ()


@dataclasses.dataclass
class Judgement:
    """Of one injected disturbance: right, wrong, unexplained, missed, short (no gap, and too short
    for one), or blind (the agent says itself that it could not look then, or had nothing to look at)."""
    injected: object
    verdict: str
    error_ns: int
    finding: object = None
    named: str = ""  # the cause that most of its time has in the ledgers


def span(gap):
    return gap["start_mono_ns"], gap["start_mono_ns"] + gap["duration_ns"]


def segments(gap):
    """The segments, as (segment, (start, end))."""
    for segment in gap["segments"]:
        start = gap["start_mono_ns"] + segment["offset_ns"]
        yield segment, (start, start + segment["duration_ns"])


def segment_spans(gap, cause):
    """The segments of one cause, as ((start, end), detail)."""
    for segment, part in segments(gap):
        if segment["cause"] == cause:
            yield part, segment["detail"]


def describe(gap):
    """A gap's ledger, for a person."""
    lines = [f"gap {gap['id']} {gap['kind']} tid {gap['tid']} at {gap['start_mono_ns']} for "
             f"{gap['duration_ns'] / 1e6:.3f} ms: {gap['verdict']['text']}"]
    for segment in gap["segments"]:
        detail = {key: value for key, value in segment["detail"].items() if not key.endswith("stack")}
        lines.append(f"  +{segment['offset_ns'] / 1e6:9.3f} ms {segment['duration_ns'] / 1e6:9.3f} ms "
                     f"{segment['cause']} {detail}")
    return "\n".join(lines)


def names(detail, culprit):
    """Whether a detail says everything that there is to say of the culprit. The culprit's members
    are those of the report; one that is a string may be part of the report's. A function may be
    anywhere on the stack."""
    for key, wanted in culprit.items():
        found = detail.get(key)
        if key == "function":
            if not any(frame.get("function") == wanted for frame in detail.get("user_stack", [])):
                return False
        elif isinstance(wanted, dict):
            if not isinstance(found, dict) or not names(found, wanted):
                return False
        elif isinstance(wanted, str):
            if not isinstance(found, str) or wanted not in found:
                return False
        elif found != wanted:
            return False
    return True


def ledger_findings(report):
    """Segments are sorted, disjoint and sum to the gap exactly."""
    for gap in report["gaps"]:
        at = 0
        for segment in gap["segments"]:
            if segment["offset_ns"] != at or segment["duration_ns"] <= 0:
                yield Finding("ledger", f"segment at {segment['offset_ns']}, not at {at}", (gap,))
                break
            at += segment["duration_ns"]
        else:
            if at != gap["duration_ns"]:
                yield Finding("ledger", f"segments sum to {at}, not {gap['duration_ns']}", (gap,))


def is_others(segment, injected, pid):
    """Whether that segment is no one's doing that the workload could know of."""
    cause, detail = segment["cause"], segment["detail"]
    if cause == injected.cause:
        return False
    if cause == "hard_irq":  # a long tick: the hypervisor paused the machine in it
        return detail.get("kind") == "local_timer"
    if injected.cause == "preemption":  # the injector knows for how long it had the core
        return False
    if cause == "blocked":  # by a lock of the soft adapter
        return detail.get("woken_by", {}).get("task", {}).get("comm") == "soft-hca"
    if cause == "preemption":
        return detail.get("task", {}).get("pid") != pid
    return cause in ("stolen", "agent", "throttled")


def others_segments(injected, gaps, pid):
    """What the machine itself took, by the ledger: tasks that have nothing to do with the workload,
    the hypervisor, its limit of real-time tasks. None on a quiet machine."""
    return [part for gap in gaps for segment, part in segments(gap)
            if is_others(segment, injected, pid)]


def most_named(gaps, parts):
    """The cause that most of the parts has in the ledgers; "" where no gap is."""
    times = collections.Counter()
    for gap in gaps:
        for segment, where in segments(gap):
            times[segment["cause"]] += intervals.covered(where, parts)
    return max(times, key=times.get, default="")


def nothing_to_see(report, logged):
    """Silences of the log in which an agent that looks at the CQ from time to time sees none, as no
    completion lay there, or not yet: it tells of what the kernel shows alone."""
    if "observe" not in report.get("coverage", {}):
        return []
    silences = [gap for gap in logged if FAMILY[gap.kind] == "silence"]
    return [gap.span for gap in silences if gap.completions == 0] + \
        [(gap.start, min(gap.ready, gap.end)) for gap in silences if gap.completions and gap.ready]


def blind_times(report):
    """When it came too late to look, by its report."""
    return [(time["start_mono_ns"], time["start_mono_ns"] + time["duration_ns"])
            for time in report.get("coverage", {}).get("observe", {}).get("blind", [])]


def judge_injected(injected, gaps, pid=None, together=(), blind=(), nothing=()):
    """Whether the ledgers explain one injected disturbance of the process with that PID. `together`:
    all that were injected. What others fall on has a cause of any of them; it is judged where it is
    alone. `blind`: what falls into these times may be in no gap, or in one that is too short; so may
    user code in those of `nothing`, of which the kernel has nothing to tell."""
    if injected.cause in ("application", "poll_function"):
        blind = [*blind, *nothing]
    allowed = tolerance(intervals.length(injected.span))
    window = (injected.start - allowed, injected.end + allowed)
    touching = [gap for gap in gaps if gap["tid"] == injected.tid
                and intervals.overlaps(span(gap), window)]
    meeting = [other for other in together if other is not injected and other.tid == injected.tid
               and intervals.overlaps(other.possibly or other.span,
                                      (window[0] - MARGIN_NS, window[1] + MARGIN_NS))]
    # Either edge of a gap may lie elsewhere by as much as it says itself, within bounds.
    allowed += min(MARGIN_NS, 2 * max((gap.get("edge_uncertainty_ns", 0) for gap in touching), default=0))

    def judged(verdict, error, why=""):
        finding = None
        named = injected.cause if verdict == "right" else most_named(touching, [injected.span])
        if verdict not in ("right", "short") and intervals.covered(window, blind):
            return Judgement(injected, "blind", error)
        if verdict not in ("right", "short"):
            finding = Finding(verdict, f"{injected.name} #{injected.number}, {injected.cause or 'idle'}"
                              f" at {injected.start} for {intervals.length(injected.span) / 1e6:.3f} ms,"
                              f" culprits {injected.culprits}: {why}", tuple(touching))
        return Judgement(injected, verdict, error, finding, named)

    if meeting:
        return judged(*verdict_among(injected, meeting, touching, pid))
    if not injected.cause:  # nothing was outstanding: idle, not a gap
        late = [span(gap) for gap in touching if FAMILY[gap["kind"]] == "late"]
        if intervals.covered(injected.span, late) > allowed:
            return judged("wrong", 0, "idle time is reported as a gap")
        return judged("right", 0)

    wanted = intervals.length(injected.span)
    most = intervals.length(injected.possibly) if injected.possibly and family(injected) == "late" \
        else wanted
    silences = [injected.span] if injected.silences is None else injected.silences
    if wanted <= allowed or too_short(silences, touching):
        return judged("short", 0)
    if not touching:
        return judged("missed", wanted, "no gap covers it")
    found = [(part, detail) for gap in touching for part, detail in segment_spans(gap, injected.cause)]
    # The culprit's own time where it is named throughout; else that of the cause, some of which may
    # be of segments too short to tell whose they are.
    own = [part for part, detail in found
           if any(names(detail, culprit) for culprit in injected.culprits)]
    explained = min((intervals.covered(window, parts) for parts in (own, [part for part, _ in found])),
                    key=lambda time: abs(time - wanted))
    least = injected.spent - intervals.covered(injected.span,
                                               others_segments(injected, touching, pid))
    error = max(least - explained, explained - most, 0)
    if injected.cause != "preemption" and error <= allowed and least <= allowed < wanted:
        return judged("short", 0)  # the machine took almost all of it
    if error > allowed:
        unexplained = intervals.covered(
            window, [part for gap in touching for part, _ in segment_spans(gap, "unexplained")])
        short = wanted - explained
        return judged("unexplained" if short > 0 and 2 * unexplained > short else "wrong", error,
                      f"{explained / 1e6:.3f} ms of {injected.cause} in the ledger")
    for culprit in injected.culprits:
        if not any(names(detail, culprit) for part, detail in found
                   if intervals.overlaps(part, window)):
            return judged("wrong", error, f"{culprit} is not named")
    if not any(verdict_stands(gap, injected, window, pid) for gap in touching):
        return judged("wrong", error, "no verdict says so")
    return judged("right", error)


def too_short(silences, gaps):
    """Whether they need not be in a gap, and are not but for their edges."""
    covered = sum(intervals.covered(part, map(span, gaps)) for part in silences)
    return all(intervals.length(part) < REPORTED_FROM_NS for part in silences) \
        and 2 * covered <= sum(map(intervals.length, silences))


def verdict_among(injected, meeting, gaps, pid):
    """(verdict, error, why) of one that others fall on, or next to."""
    pieces = intervals.without(injected.surely or injected.span,
                               [other.possibly or other.span for other in meeting])
    allowed = tolerance(intervals.length(injected.span))
    late = family(injected) == "late"
    if late and injected.silences is not None:
        pieces = [intervals.intersection(piece, part) for piece in pieces for part in injected.silences
                  if intervals.overlaps(piece, part)]
    if late or not injected.cause:  # a silence ends the window of vain polls: only what is left counts
        pieces = [piece for piece in pieces if intervals.length(piece) >= REPORTED_FROM_NS]
    if not injected.cause:
        reported = [span(gap) for gap in gaps if FAMILY[gap["kind"]] == "late"]
        wrongly = sum(intervals.covered(piece, reported) for piece in pieces)
        return ("wrong", wrongly, "idle time is reported as a gap") if wrongly > allowed else \
            ("right", 0, "")
    alone = sum(map(intervals.length, pieces))
    silences = intervals.union([injected.span, *(other.span for other in meeting
                                                 if family(other) == family(injected))])
    silence = [part for part in silences if intervals.overlaps(part, injected.span)]
    if late and not pieces or too_short(silence, gaps):
        return "short", 0, ""
    if not gaps:
        return "missed", alone, "no gap"

    found = [(part, detail) for gap in gaps for part, detail in segment_spans(gap, injected.cause)]
    explained = [part for part, _ in found]
    machine = others_segments(injected, gaps, pid)
    # A polling thread that is off its core injects nothing into itself, and what was not spent in
    # the cause was another's.
    idle = intervals.length(injected.span) - injected.spent if not injected.surely and not late else 0
    short = sum(intervals.uncovered(piece, explained + machine) for piece in pieces) - idle
    # Where others fall on it, any of them may have the time, but nothing else.
    causes = {injected.cause, *(other.cause for other in meeting)}
    theirs = [part for gap in gaps for segment, part in segments(gap) if segment["cause"] in causes]
    outside = [part for gap in gaps for part in intervals.without(span(gap), theirs + machine)]
    strange = intervals.covered(injected.span, outside) - sum(
        intervals.covered(piece, outside) for piece in pieces)
    error = max(short, 0) + strange
    named = any(names(detail, culprit) for part, detail in found for culprit in injected.culprits
                if any(intervals.overlaps(part, piece) for piece in pieces))
    if error <= allowed and (named or alone - sum(intervals.covered(piece, machine)
                                                  for piece in pieces) <= allowed):
        return "right", error, ""
    unexplained = intervals.covered(
        injected.span, [part for gap in gaps for part, _ in segment_spans(gap, "unexplained")])
    verdict = "unexplained" if 2 * unexplained > error else "wrong"
    return verdict, error, (f"with {sorted({other.name for other in meeting})}: {short / 1e6:.3f} ms of "
                            f"{alone / 1e6:.3f} ms alone lack it, {strange / 1e6:.3f} ms are no one's")


def verdict_stands(gap, injected, window, pid):
    """Whether a gap's verdict is the injected cause, or one that took more of the gap than it
    before and after the injected window, or from the injector, which knows what it did not get."""
    verdict = gap["verdict"]["cause"]
    if verdict == injected.cause:
        return True

    def parts(cause):
        return [part for part, _ in segment_spans(gap, cause)]
    machine = set(others_segments(injected, [gap], pid))
    beside = sum(intervals.length(part) if part in machine else intervals.uncovered(part, [window])
                 for part in parts(verdict))
    beside += intervals.length(injected.span) - injected.spent
    return beside > sum(intervals.length(part) for part in parts(injected.cause))


def gap_findings(truth, report, watched):
    """Gaps of the log that the report lacks and gaps of the report that the log lacks. `watched` is
    when the agent surely was attached.

    The two stamp a poll's edges some microseconds apart, more where an interrupt or another task
    falls between the stamps. So a silence that is one gap for the one may be two for the other, and a
    part of it too short to be a gap; or it is shorter than the threshold, and the window of vain
    polls goes on that the first has ended there. So the time must be in some gap of the other, of the
    same kind where it is well above the threshold, but for less than a threshold of it; and, where the
    agent looks at the CQ from time to time, but for when it says itself that it came too late to look.
    """
    def spans(gaps, tid, family):
        return [where for where, gap_tid, kind in gaps
                if gap_tid == tid and family in (None, FAMILY[kind])]

    def lacking(where, tid, kind, gaps, excused=()):
        """Nanoseconds of the gap that are in none of the gaps, beyond what edges may differ by."""
        family = FAMILY[kind] if intervals.length(where) > 2 * REPORTED_FROM_NS else None
        uncovered = intervals.uncovered(where, [*spans(gaps, tid, family), *excused])
        return uncovered if uncovered >= min(THRESHOLD_NS, intervals.length(where)) else 0

    nothing = nothing_to_see(report, truth.gaps)
    blind = nothing + blind_times(report)
    # Each edge may lie between two looks.
    shortest = REPORTED_FROM_NS + 2 * report.get("coverage", {}).get("observe", {}).get("period_ns", 0)
    surely = [(gap.surely, gap.tid, gap.kind) for gap in truth.gaps]
    logged = [(gap.span, gap.tid, gap.kind) for gap in truth.gaps]
    reported = [(span(gap), gap["tid"], gap["kind"]) for gap in report["gaps"]]
    for where, tid, kind in surely:
        inside = watched[0] <= where[0] and where[1] <= watched[1]
        if inside and intervals.length(where) >= shortest:
            if missing := lacking(where, tid, kind, reported, blind):
                near = tuple(gap for gap in report["gaps"] if intervals.overlaps(span(gap), where))
                yield Finding("unreported", f"{kind} gap of tid {tid} at {where[0]} for "
                              f"{intervals.length(where) / 1e6:.3f} ms: {missing / 1e6:.3f} ms of it "
                              "is in no reported gap", near)
    for gap in report["gaps"]:
        polling_end = truth.polling_end.get(gap["tid"])
        if polling_end is None:
            yield Finding("unlogged", f"tid {gap['tid']} is no polling thread", (gap,))
        elif span(gap)[0] < polling_end:
            if extra := lacking(span(gap), gap["tid"], gap["kind"], logged, nothing):
                yield Finding("unlogged", f"{extra / 1e6:.3f} ms of a reported gap are in no gap of the "
                              "workload's log", (gap,))


def outstanding_findings(truth, report):
    """Late completions that both saw end at the same poll, but of another number of sends."""
    same_poll_ns = 20_000
    for gap in report["gaps"]:
        if gap["kind"] != "late_completion":
            continue
        _, end = span(gap)
        for logged in truth.gaps:
            if (logged.kind, logged.tid) == (gap["kind"], gap["tid"]) \
                    and abs(logged.end - end) < same_poll_ns \
                    and gap["evidence"]["outstanding"] != logged.outstanding:
                yield Finding("outstanding", f"{logged.outstanding} sends were outstanding, "
                              f"not {gap['evidence']['outstanding']}", (gap,))


def accidental(report, judgements):
    """Gaps of the report that no injected disturbance touches: the machine's own."""
    windows = [judgement.injected.span for judgement in judgements]
    return [gap for gap in report["gaps"]
            if not any(intervals.overlaps(span(gap), window) for window in windows)]

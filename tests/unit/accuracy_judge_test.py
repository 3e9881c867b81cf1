#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The judge of tests/accuracy must see what is wrong in a report, and nothing else."""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../accuracy"))
import intervals  # noqa: E402
import judge  # noqa: E402
import truth as truth_log  # noqa: E402

MS = 1_000_000
TID = 7


def gap(segments, start=100 * MS, kind="between_polls", tid=TID, verdict=None):
    """A reported gap of (cause, milliseconds, detail) segments."""
    offset, ledger = 0, []
    for cause, milliseconds, detail in segments:
        ledger.append({"offset_ns": offset, "duration_ns": int(milliseconds * MS), "cause": cause,
                       "detail": detail})
        offset += int(milliseconds * MS)
    cause = verdict or max(segments, key=lambda segment: segment[1])[0]
    return {"id": 1, "kind": kind, "tid": tid, "start_mono_ns": start, "duration_ns": offset,
            "verdict": {"cause": cause, "text": cause}, "segments": ledger}


def injected(cause="preemption", start=100 * MS, milliseconds=5,
             culprits=({"task": {"comm": "hog"}},), spent=None):
    return truth_log.Injected("fifo", 1, cause, TID, start, start + milliseconds * MS, culprits,
                              (milliseconds if spent is None else spent) * MS)


HOG = {"task": {"comm": "hog", "tid": 9}}


class JudgeInjected(unittest.TestCase):
    def verdict(self, *gaps, **of):
        return judge.judge_injected(injected(**of), gaps).verdict

    def test_right(self):
        self.assertEqual(self.verdict(gap([("preemption", 5.05, HOG)])), "right")

    def test_what_looks_cannot_see_is_excused_for_user_code_alone(self):
        for cause, verdict in (("application", "blind"), ("poll_function", "blind"),
                               ("preemption", "missed"), ("blocked", "missed")):
            self.assertEqual(judge.judge_injected(injected(cause), [], nothing=[(100 * MS, 105 * MS)]).verdict,
                             verdict)
        self.assertEqual(judge.judge_injected(injected(), [], blind=[(100 * MS, 105 * MS)]).verdict, "blind")

    def test_right_in_two_gaps(self):
        self.assertEqual(self.verdict(gap([("preemption", 2.5, HOG)]),
                                      gap([("preemption", 2.5, HOG)], start=102_500_000)), "right")

    def test_gaps_of_two_kinds_at_once_count_once(self):
        both = gap([("preemption", 5, HOG)]), gap([("preemption", 5, HOG)], kind="late_completion")
        self.assertEqual(self.verdict(*both), "right")

    def test_wrong_cause(self):
        self.assertEqual(self.verdict(gap([("application", 5, {})])), "wrong")

    def test_too_short(self):
        self.assertEqual(self.verdict(gap([("preemption", 4, HOG), ("application", 1, {})])), "wrong")

    def test_the_injector_was_kept_from_it(self):
        ledger = gap([("preemption", 4, HOG), ("stolen", 1, {})])
        self.assertEqual(self.verdict(ledger), "wrong")
        self.assertEqual(self.verdict(ledger, spent=4), "right")

    def test_the_injector_was_kept_from_it_by_what_is_not_known(self):
        ledger = gap([("preemption", 2, HOG), ("application", 3, {})])
        self.assertEqual(self.verdict(ledger), "wrong")
        self.assertEqual(self.verdict(ledger, spent=4), "wrong")
        self.assertEqual(self.verdict(ledger, spent=2), "right")

    def test_too_long(self):
        self.assertEqual(self.verdict(gap([("preemption", 6, HOG)], start=99_500_000)), "wrong")

    def test_unexplained(self):
        self.assertEqual(self.verdict(gap([("unexplained", 5, {})])), "unexplained")

    def test_missed(self):
        self.assertEqual(self.verdict(), "missed")
        self.assertEqual(self.verdict(gap([("preemption", 5, HOG)], start=200 * MS)), "missed")
        self.assertEqual(self.verdict(gap([("preemption", 5, HOG)], tid=8)), "missed")

    def test_too_short_to_be_a_gap(self):
        self.assertEqual(self.verdict(milliseconds=1), "short")

    def test_culprit_not_named(self):
        self.assertEqual(self.verdict(gap([("preemption", 5, {"task": {"comm": "other"}})])), "wrong")
        self.assertEqual(self.verdict(gap([("preemption", 5, {})])), "wrong")

    def test_another_task_beside_the_culprit(self):
        ledger = gap([("preemption", 5, HOG), ("preemption", 4, {"task": {"comm": "other"}})])
        self.assertEqual(self.verdict(ledger), "right")

    def test_every_culprit_must_be_named(self):
        culprits = {"task": {"comm": "hog"}}, {"task": {"comm": "other"}}
        both = gap([("preemption", 2, HOG), ("preemption", 3, {"task": {"comm": "other"}})])
        self.assertEqual(self.verdict(both, culprits=culprits), "right")
        self.assertEqual(self.verdict(gap([("preemption", 5, HOG)]), culprits=culprits), "wrong")

    def test_verdict_must_say_so(self):
        self.assertEqual(self.verdict(gap([("preemption", 5, HOG)], verdict="application")), "wrong")
        for cause in "stolen", "unexplained":  # a hiccup beside it that really took more
            self.assertEqual(self.verdict(gap([("preemption", 5, HOG), (cause, 9, {})])), "right")
        for cause in "stolen", "unexplained":
            within = gap([("preemption", 4.6, HOG), (cause, 0.4, {})], verdict=cause)
            self.assertEqual(self.verdict(within), "wrong")

    def test_idle(self):
        self.assertEqual(self.verdict(cause=""), "right")
        late = [("late_completion", 5, {})]
        self.assertEqual(self.verdict(gap(late, kind="late_completion"), cause=""), "wrong")
        right_before = gap(late, start=94_950_000, kind="late_completion")
        self.assertEqual(self.verdict(right_before, cause=""), "right")

    def test_a_long_tick_is_the_machines(self):
        read = {"kind": "syscall", "syscall": "read"}
        for kind, verdict in ("local_timer", "right"), ("call_function_single", "wrong"):
            ledger = gap([("self_kernel", 4, read), ("hard_irq", 1, {"kind": kind})])
            self.assertEqual(self.verdict(ledger, cause="self_kernel", culprits=(read,)), verdict)


class InTurns(unittest.TestCase):
    """Three tasks, one after the other, of 2 ms each."""

    def setUp(self):
        self.tasks = [{"comm": f"hog-{i}", "pid": i, "tid": i, "ran_ns": 2 * MS, "duration_ns": 2 * MS,
                       "start_mono_ns": (100 + 2 * i) * MS} for i in range(3)]

    def of(self, *gaps):
        logged = [truth_log.LoggedGap("between_polls", TID, start * MS, end * MS) for start, end in gaps]
        return truth_log.in_turns(injected(milliseconds=6), self.tasks, logged)

    def test_silent_throughout(self):
        found = self.of((99, 107))
        self.assertEqual((len(found.culprits), found.spent), (4, 6 * MS))
        self.assertEqual(judge.judge_injected(found, []).verdict, "missed")

    def test_the_last_ran_in_no_gap(self):
        found = self.of((100, 104))
        self.assertEqual([culprit["task"].get("tid") for culprit in found.culprits], [None, 0, 1])
        self.assertEqual(found.spent, 4 * MS)

    def test_no_gap(self):
        self.assertEqual(judge.judge_injected(self.of(), []).verdict, "short")


class JudgeTogether(unittest.TestCase):
    """A FIFO task from 100 to 110 ms, and the loop computing from 106 to 116 ms."""
    HOG_AND_COMPUTING = [("preemption", 6, HOG), ("preemption", 4, HOG), ("application", 6, {})]

    def verdicts(self, *gaps, second="application", **of):
        first = injected(milliseconds=10, **of)
        other = truth_log.Injected("compute", 2, second, TID, 106 * MS, 116 * MS, ({},), 10 * MS)
        return [judge.judge_injected(one, gaps, None, [first, other]).verdict
                for one in (first, other)]

    def test_where_both_are_either_may_be_named(self):
        self.assertEqual(self.verdicts(gap(self.HOG_AND_COMPUTING)), ["right", "right"])
        other = [("preemption", 6, HOG), ("application", 10, {})]
        self.assertEqual(self.verdicts(gap(other)), ["right", "right"])

    def test_where_both_are_nothing_else_may_be_named(self):
        ledger = [("preemption", 6, HOG), ("blocked", 4, {}), ("application", 6, {})]
        self.assertEqual(self.verdicts(gap(ledger)), ["wrong", "wrong"])

    def test_where_one_is_alone_it_must_be_named(self):
        ledger = [("application", 6, {}), ("preemption", 4, HOG), ("application", 6, {})]
        self.assertEqual(self.verdicts(gap(ledger)), ["wrong", "right"])
        ledger = [("preemption", 10, HOG), ("unexplained", 6, {})]
        self.assertEqual(self.verdicts(gap(ledger)), ["right", "unexplained"])
        self.assertEqual(self.verdicts(gap(self.HOG_AND_COMPUTING),
                                       culprits=({"task": {"comm": "another"}},)), ["wrong", "right"])

    def test_no_gap(self):
        self.assertEqual(self.verdicts(), ["missed", "missed"])

    def test_one_too_short_beside_one_that_is_not(self):
        short = injected(milliseconds=1, start=98_700_000)
        hog = injected()
        found = gap([("preemption", 5, HOG)])
        self.assertEqual([judge.judge_injected(one, [found], None, [short, hog]).verdict
                          for one in (short, hog)], ["short", "right"])

    def test_a_silence_ends_the_window_of_a_late_completion(self):
        hog = gap([("preemption", 10, HOG)])
        late = gap([("late_completion", 6, {})], start=110 * MS, kind="late_completion")
        self.assertEqual(self.verdicts(hog, late, second="late_completion"), ["right", "right"])
        self.assertEqual(self.verdicts(hog, second="late_completion"), ["right", "wrong"])


class Names(unittest.TestCase):
    def test_members(self):
        self.assertTrue(judge.names({"irq": 36, "action": "virtio1-req.0"}, {"action": "virtio1"}))
        self.assertFalse(judge.names({"irq": 36}, {"irq": 37}))
        self.assertFalse(judge.names({}, {"irq": 37}))
        self.assertTrue(judge.names({"task": {"comm": "hog", "tid": 9}}, {"task": {"tid": 9}}))

    def test_function_on_the_stack(self):
        detail = {"user_stack": [{"address": "0x1"}, {"address": "0x2", "function": "compute"}]}
        self.assertTrue(judge.names(detail, {"function": "compute"}))
        self.assertFalse(judge.names(detail, {"function": "other"}))


class Gaps(unittest.TestCase):
    def findings(self, logged, reported, watched=(0, 10**12)):
        truth = truth_log.Truth([], [truth_log.LoggedGap(kind, TID, start, end)
                                     for kind, start, end in logged], {TID: 10**12})
        return [finding.what for finding in judge.gap_findings(truth, {"gaps": reported}, watched)]

    def test_same(self):
        self.assertEqual(self.findings([("in_poll", 100 * MS, 105 * MS)],
                                       [gap([("application", 5, {})])]), [])

    def test_unreported(self):
        self.assertEqual(self.findings([("in_poll", 100 * MS, 105 * MS)], []), ["unreported"])
        self.assertEqual(self.findings([("late_completion", 100 * MS, 105 * MS)],
                                       [gap([("application", 5, {})])]), ["unreported", "unlogged"])

    def test_short_ones_need_not_be_reported(self):
        self.assertEqual(self.findings([("in_poll", 100 * MS, 101 * MS)], []), [])

    def test_late_from_when_the_send_was_surely_posted(self):
        """The thread was kept for 0.5 ms from posting it: of 1.4 ms, 0.9 were late."""
        for unposted, found in ((0, ["unreported"]), (MS // 2, [])):
            truth = truth_log.Truth([], [truth_log.LoggedGap("late_completion", TID, 100 * MS, 101.4 * MS,
                                                             unposted=unposted)], {TID: 10**12})
            self.assertEqual([finding.what for finding in judge.gap_findings(truth, {"gaps": []}, (0, 10**12))],
                             found)

    def test_observed_from_when_a_completion_lay_there(self):
        """Of a silence of 5 ms its last 2 are seen, where the completion came no earlier."""
        found = [gap([("application", 2, {})], start=103 * MS)]
        for ready, what in ((0, ["unreported"]), (101 * MS, ["unreported"]), (103 * MS, [])):
            truth = truth_log.Truth([], [truth_log.LoggedGap("between_polls", TID, 100 * MS, 105 * MS,
                                                             completions=1, ready=ready)], {TID: 10**12})
            report = {"gaps": found, "coverage": {"observe": {}}}
            self.assertEqual([finding.what for finding in judge.gap_findings(truth, report, (0, 10**12))],
                             what)
            report["coverage"] = {}
            self.assertEqual([finding.what for finding in judge.gap_findings(truth, report, (0, 10**12))],
                             ["unreported"])

    def test_before_attaching(self):
        self.assertEqual(self.findings([("in_poll", 100 * MS, 105 * MS)], [], (101 * MS, 10**12)), [])

    def test_unlogged(self):
        self.assertEqual(self.findings([], [gap([("application", 5, {})])]), ["unlogged"])
        self.assertEqual(self.findings([("in_poll", 100 * MS, 103 * MS)],
                                       [gap([("application", 5, {})])]), ["unlogged"])

    def test_after_the_last_poll(self):
        truth = truth_log.Truth([], [], {TID: 100 * MS})
        self.assertEqual(list(judge.gap_findings(truth, {"gaps": [gap([("application", 5, {})])]},
                                                 (0, 10**12))), [])


class Outstanding(unittest.TestCase):
    def findings(self, reported, end=105 * MS):
        late = gap([("late_completion", 5, {})], kind="late_completion")
        late["evidence"] = {"outstanding": reported}
        logged = truth_log.LoggedGap("late_completion", TID, 100 * MS, end, 16)
        return list(judge.outstanding_findings(truth_log.Truth([], [logged], {}), {"gaps": [late]}))

    def test_of_the_same_poll(self):
        self.assertEqual(self.findings(16), [])
        self.assertEqual([finding.what for finding in self.findings(15)], ["outstanding"])

    def test_of_another_poll(self):
        self.assertEqual(self.findings(15, end=106 * MS), [])


class Ledger(unittest.TestCase):
    def findings(self, *gaps):
        return [finding.what for finding in judge.ledger_findings({"gaps": gaps})]

    def test_sums(self):
        self.assertEqual(self.findings(gap([("a", 1, {}), ("b", 2, {})])), [])
        short = gap([("a", 1, {})])
        short["duration_ns"] += 1
        self.assertEqual(self.findings(short), ["ledger"])

    def test_disjoint(self):
        overlapping = gap([("a", 1, {}), ("b", 2, {})])
        overlapping["segments"][1]["offset_ns"] -= 1
        self.assertEqual(self.findings(overlapping), ["ledger"])


class Intervals(unittest.TestCase):
    def test_union_and_cover(self):
        self.assertEqual(intervals.union([(5, 7), (1, 3), (2, 4), (9, 9)]), [(1, 4), (5, 7)])
        self.assertEqual(intervals.covered((0, 10), [(1, 3), (2, 4), (8, 20)]), 5)
        self.assertEqual(intervals.uncovered((0, 10), [(-5, 20)]), 0)


if __name__ == "__main__":
    unittest.main()

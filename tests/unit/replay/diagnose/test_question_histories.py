"""The reasons a report gives are those of the replayed stops."""

from __future__ import annotations

from dataclasses import replace

from suffice.policies.rules.policy import RulePolicy
from suffice.replay.diagnose.question_histories import ReportData, report_data
from suffice.replay.run.named_policies import NamedPolicy, named_policies
from suffice.replay.run.replay import ReplaySettings, replay
from suffice.testing.traces import make_record, to_trace_set


def told(policy: RulePolicy, *answers: str) -> ReportData:
    traces = to_trace_set([make_record("q", answers, gold=["none"])])
    candidate = NamedPolicy(name="p", kind=policy.kind, preset=None, policy=policy)
    result = replay(traces, [candidate], ReplaySettings(baseline="p", resamples=10))
    return report_data(traces, result)


def test_the_reason_reads_the_policys_own_abstentions() -> None:
    rule = "answer_stable and not abstained"
    own = told(RulePolicy(rule=rule, abstention=("unknown",)), "none", "none", "x").stories[0]
    assert own.stops[0].round == 2
    assert own.stops[0].reason == (f"{rule} holds at round 2: answer_stable = 1, abstained = 0")
    # the page itself shows the signal as its name means it
    assert [each.signals["abstained"] for each in own.rounds] == [1.0, 1.0, 0.0]
    usual = told(RulePolicy(rule=rule), "none", "none", "x").stories[0]
    assert usual.stops[0].round == 3
    assert usual.stops[0].reason.startswith("the record or the budget ends here")


def test_a_policy_that_never_fires_ends_with_the_record() -> None:
    story = told(RulePolicy(rule="answer_stable"), "a", "b").stories[0]
    assert story.stops[0].round == 2
    assert story.stops[0].reason == (
        "the record or the budget ends here; "
        "answer_stable does not hold at round 2: answer_stable = 0"
    )


def test_of_many_questions_those_told_are_of_every_type_and_outcome() -> None:
    records = [
        replace(
            made,
            question=replace(made.question, type="rare" if number >= 56 else "common"),
        )
        for number in range(60)
        for made in [make_record(f"q{number:02d}", ["x", "y" if number % 20 else "x"], gold=["x"])]
    ]
    traces = to_trace_set(records)
    result = replay(
        traces,
        named_policies(traces, ["fixed-2"], ["answer_stable"]),
        ReplaySettings(baseline="fixed-2"),
    )
    data = report_data(traces, result, most_stories=9)
    assert [story.id for story in data.stories] == sorted(story.id for story in data.stories)
    kinds = [(story.type, story.rounds[-1].em) for story in data.stories]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        ("common", 1.0): 3,
        ("common", 0.0): 3,
        ("rare", 0.0): 3,
    }
    assert data.left_out == 51
    assert data == report_data(traces, result, most_stories=9)

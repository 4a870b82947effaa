"""The reasons a report gives are those of the replayed stops."""

from __future__ import annotations

from suffice.evaluation.diagnose.report_data import ReportData, report_data
from suffice.evaluation.replay.named_policies import NamedPolicy
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import ComparisonSettings
from suffice.policies.rules.policy import Rule
from suffice.testing.traces import make_record, to_trace_set


def told(policy: Rule, *answers: str) -> ReportData:
    traces = to_trace_set([make_record("q", answers, gold=["none"])])
    candidate = NamedPolicy(name="p", kind=policy.kind, preset=None, policy=policy)
    result = replay(traces, [candidate], ComparisonSettings(baseline="p", resamples=10))
    return report_data(traces, result)


def test_the_reason_reads_the_policys_own_abstentions() -> None:
    rule = "answer_stable and not abstained"
    own = told(Rule(rule=rule, abstention=("unknown",)), "none", "none", "x").stories[0]
    assert own.stops[0].round == 2
    assert own.stops[0].reason == (f"{rule} holds at round 2: answer_stable = 1, abstained = 0")
    # the page itself shows the signal as its name means it
    assert own.signals["abstained"].tolist() == [1.0, 1.0, 0.0]
    usual = told(Rule(rule=rule), "none", "none", "x").stories[0]
    assert usual.stops[0].round == 3
    assert usual.stops[0].reason.startswith("the record or the budget ends here")

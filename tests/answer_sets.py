"""Answer sets of four questions, and the report's data over them."""

from __future__ import annotations

from suffice.evaluation.diagnose.report_data import ReportData, report_data
from suffice.evaluation.replay.named_policies import NamedPolicy, named_policies
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import ComparisonSettings
from suffice.policies.micp.policy import MiCPPolicy
from suffice.stats.conformal import Threshold
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord

HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"

POLICY = MiCPPolicy(
    alpha=0.2,
    rounds=3,
    samples=4,
    stops=(Threshold(0.5), Threshold(0.5)),
    final=0.5,
    preset="corrected",
    notes=("a note <b>",),
)


def drawn(name: str, *samples: tuple[str, ...]) -> QuestionRecord:
    """A question by what each round sampled; the first sample is the answer."""
    return make_record(name, [each[0] for each in samples], gold=["Oslo"], samples=samples)


AGREE, SPLIT, APART = ("Oslo",) * 4, ("Oslo", "Oslo", "Rome", "Rome"), ("a", "b", "c", "d")
RECORDS = [
    drawn("early", AGREE, AGREE, AGREE),  # {Oslo}, covered
    drawn("wrong", ("Rome",) * 4, SPLIT, SPLIT),  # {Rome}, not covered
    drawn("late", APART, SPLIT, APART),  # {Oslo, Rome, can't}, covered
    drawn("never", APART, ("Rome", *APART[1:]), APART),  # {can't}, covered
]


def told(
    records: list[QuestionRecord], policy: MiCPPolicy = POLICY, name: str = "sets"
) -> ReportData:
    """That policy beside one round, replayed."""
    traces = to_trace_set(records)
    built = [
        *named_policies(traces, ["fixed-1"]),
        NamedPolicy(name=name, kind="micp", preset="corrected", policy=policy),
    ]
    result = replay(traces, built, ComparisonSettings(baseline="fixed-1", resamples=50))
    return report_data(traces, result)

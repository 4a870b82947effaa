"""A record replayed in parts against the same record replayed as a whole."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties import examples

from suffice.costs.prices import Prices
from suffice.costs.usage import CostModel
from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.numbers.intervals import sums
from suffice.policies.registry import fit_method
from suffice.replay.diagnose.diagnosis import diagnosis
from suffice.replay.diagnose.question_histories import report_data
from suffice.replay.run import engine
from suffice.replay.run.compare import compare
from suffice.replay.run.engine import ReplaySettings, replay
from suffice.replay.run.named_policies import NamedPolicy, named_policies
from suffice.replay.run.results import ReplayResult
from suffice.replay.run.tally import Tally, replay_parts
from suffice.replay.settings import ComparisonSettings, DiagnosisSettings, DiagnosticsSettings
from suffice.signals.available import lack
from suffice.testing.traces import question_records, random_records, sampled_records, to_trace_set
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.table import TraceSet

NAMES = ("fixed-1", "fixed-3", "fixed-9", "oracle-em", "oracle-f1")
RULES = ("answer_stable and not abstained", "self_consistency >= 0.5", "judge_support >= 0.25")
MODEL = CostModel(prices=Prices(input=3.0, cached=0.5, output=10.0, call=1e-5))


def in_parts(
    traces: TraceSet,
    candidates: tuple[NamedPolicy, ...],
    asked: ReplaySettings,
    part_of: list[int],
) -> ReplayResult:
    measures = Measures(traces).by(None)
    numbers = np.array(part_of)

    def each(tallied: Callable[[Measures], Tally]) -> Iterable[Tally]:
        sent = pickle.loads(pickle.dumps(tallied))
        for number in np.unique(numbers):
            part = Measures(traces.take(numbers == number)).by(measures.metric.name)
            yield pickle.loads(pickle.dumps(sent(part)))

    source = traces.origin.source
    return replay_parts(each, candidates, asked, traces.n_rounds, source=source)


_DRAWN = ("low", "high", "held", "p_every")


def figures(result: ReplayResult, *, near: bool = False) -> Any:
    """What is told but for ends of intervals and p-values, which of a few questions depend on the draws."""

    def told(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: told(v) for k, v in value.items() if k not in _DRAWN}
        if isinstance(value, list):
            return [told(one) for one in value]
        if near and isinstance(value, float):
            return pytest.approx(value, rel=1e-12, abs=1e-12)
        return value

    return told(result.to_json())


@settings(deadline=None, max_examples=examples(12), suppress_health_check=[HealthCheck.too_slow])
@given(
    records=question_records(), data=st.data(), answer=st.sampled_from(["latest", "most-confident"])
)
def test_a_record_in_parts_is_the_record(
    records: list[QuestionRecord], data: st.DataObject, answer: str
) -> None:
    traces = to_trace_set(records)
    part_of = data.draw(st.lists(st.integers(0, 3), min_size=len(records), max_size=len(records)))
    built = [
        one
        for one in named_policies(traces, NAMES, RULES)
        if one.policy is None or all(lack(spec, traces) is None for spec in one.policy.specs)
    ]
    measures = Measures(traces).by(None)
    answer = "latest" if measures.metric.agreement else answer
    asked = ReplaySettings(baseline="fixed-1", cost_model=MODEL, resamples=10, answer=answer)
    whole = replay(measures, built, asked)
    parts = in_parts(traces, tuple(built), asked, part_of)
    assert figures(parts) == figures(whole, near=True)
    assert [one.mean_rounds for one in parts.policies] == [
        one.mean_rounds for one in whole.policies
    ]  # sums of whole numbers


def test_above_the_bound_no_question_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = to_trace_set(random_records(120, seed=3))
    asked = ComparisonSettings(rules=("answer_stable", "calibrated(overlap) > 0.5"), split="eval")
    whole = compare(traces, asked).result
    assert whole.draws == "paired resamples"
    for module in (sums, engine):
        monkeypatch.setattr(module, "SUMS_ABOVE", 20)
    parts = compare(traces, asked).result
    assert figures(parts) == figures(whole, near=True)
    for one, other in zip(parts.policies, whole.policies, strict=True):
        assert one.interval is not None
        assert other.interval is not None
        width = other.interval.high - other.interval.low
        assert one.interval.low == pytest.approx(other.interval.low, abs=0.2 * width)
        assert one.interval.high == pytest.approx(other.interval.high, abs=0.2 * width)
        assert one.stop_counts == other.stop_counts
        assert one.hash == other.hash
    assert parts.draws == "draws by sums"
    told = report_data(Measures(traces).only_split("eval"), parts, most_stories=7)
    assert len(told.stories) == 7
    assert told.left_out == parts.questions - 7
    few = DiagnosisSettings(rules=asked.rules, signals=DiagnosticsSettings(resamples=5))
    assert diagnosis(traces, few).types == ()
    with pytest.raises(UsageError, match="not kept in a replay of more than"):
        parts.to_json(per_question=True)
    with pytest.raises(UsageError, match="the stops of single questions are not kept"):
        _ = parts.policies[0].stops


def test_answer_sets_and_confidence_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = to_trace_set(sampled_records(300))
    policy = fit_method("micp", traces, "corrected", "tune", alpha=0.2, weight=1.0)
    measures = Measures(traces).only_split("eval")
    candidates = named_policies(measures, ["fixed-1", policy])
    asked = ReplaySettings(baseline="fixed-1", resamples=200)
    whole = replay(measures, candidates, asked).policies[1]
    for module in (sums, engine):
        monkeypatch.setattr(module, "SUMS_ABOVE", 50)
    parts = replay(measures, candidates, asked).policies[1]
    assert whole.sets is not None
    assert parts.sets is not None
    assert whole.sets.coverage is not None
    assert parts.sets.coverage is not None
    assert parts.sets.coverage.estimate == whole.sets.coverage.estimate
    assert parts.sets.coverage.low == pytest.approx(whole.sets.coverage.low, abs=0.02)
    assert parts.sets.set_size.estimate == pytest.approx(whole.sets.set_size.estimate)
    assert parts.sets.answer_rate == whole.sets.answer_rate
    assert parts.undefined == whole.undefined
    assert parts.auroc == whole.auroc
    assert parts.sets.objective is None
    assert "not given of so many questions" in parts.sets.notes[-1]

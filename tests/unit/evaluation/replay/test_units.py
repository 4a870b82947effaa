"""Questions of one group, or of one text, are drawn together. Means are over questions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from suffice.evaluation.choose.search import search
from suffice.evaluation.diagnose.diagnosis import breakdown, selective_prediction
from suffice.evaluation.diagnose.signal_diagnostics import diagnose
from suffice.evaluation.replay.compare import Comparison, compare
from suffice.evaluation.settings import ComparisonSettings, DiagnosisSettings, SearchSettings
from suffice.measures.measures import Measures
from suffice.policies.fitting import fit_data
from suffice.policies.registry import fit_method
from suffice.stats import intervals as sums
from suffice.stats.intervals import Interval
from suffice.stats.units import drawn_units
from suffice.testing.traces import random_records, sampled_records, to_trace_set
from suffice.trace.rounds.derive import split_traces
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.trace_set import TraceSet
from suffice.trace.rounds.writer import write_traces

RULES = ("answer_stable and not abstained", "overlap < 0.5")


def copies(records: list[QuestionRecord], often: Callable[[int], int]) -> list[QuestionRecord]:
    """Each question as often as a function of its number says, under ids that stand together."""
    return [
        replace(record, question=replace(record.question, id=f"{record.question.id}-{copy}"))
        for number, record in enumerate(records)
        for copy in range(often(number))
    ]


def compared(traces: TraceSet, **wanted: object) -> Comparison:
    asked = ComparisonSettings(rules=RULES, policies=("fixed-1", "fixed-3"), **wanted)  # type: ignore[arg-type]
    return compare(traces, asked)


def assert_alike(some: Interval | None, other: Interval | None) -> None:
    assert some is not None
    assert other is not None
    ends = [some.estimate, some.low, some.high]
    assert ends == pytest.approx([other.estimate, other.low, other.high], abs=1e-9)


def test_copies_of_questions_tell_nothing_more() -> None:
    """Five of each once made intervals less than half as wide."""
    records = random_records(60, seed=5)
    once, repeated = (to_trace_set(made) for made in (records, copies(records, lambda _: 5)))
    one, other = (compared(traces, split="eval").result for traces in (once, repeated))
    assert other.questions == 5 * one.questions
    assert f"in {one.questions} units" in " ".join(other.notes)
    assert "units" not in " ".join(one.notes)
    for policy, again in zip(one.policies, other.policies, strict=True):
        assert (again.em, again.f1) == pytest.approx((policy.em, policy.f1))
        assert again.mean_rounds == pytest.approx(policy.mean_rounds)
        assert again.costs == pytest.approx(policy.costs)
        assert again.stop_counts == {at: 5 * count for at, count in policy.stop_counts.items()}
        for name in ("interval", "delta", "delta_full", "frontier_gain"):
            assert_alike(getattr(again, name), getattr(policy, name))
        for paid, paid_again in zip(policy.against_fixed, again.against_fixed, strict=True):
            assert_alike(paid_again.gain, paid.gain)
    assert one.full_costs == pytest.approx(other.full_costs)
    assert one.frontier is not None
    assert other.frontier is not None
    assert one.frontier.scores == pytest.approx(other.frontier.scores)


def test_units_of_unequal_size_are_drawn_whole_and_means_are_over_questions() -> None:
    """Intervals are those of the ratio of drawn sums to drawn sizes."""
    traces = to_trace_set(copies(random_records(80, seed=5), lambda number: 1 + 3 * (number % 4)))
    result = compared(traces, split="all", resamples=4000).result
    measures = Measures(traces)
    scored, units = measures.scores(), measures.units
    known = scored.labelled
    random = np.random.default_rng(0)
    numbers = np.unique(units[known])
    for policy in result.policies:
        values = policy.at_stops.scores["f1"][known]
        assert policy.f1 == pytest.approx(values.mean())
        assert policy.mean_rounds == pytest.approx(policy.stops.mean())
        sums, sizes = (
            np.array([part[units[known] == unit].sum() for unit in numbers])
            for part in (values, np.ones(len(values)))
        )
        drawn = random.integers(0, len(numbers), (4000, len(numbers)))
        ratios = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
        low, high = np.percentile(ratios, [2.5, 97.5])
        assert policy.interval is not None
        assert policy.interval.high - policy.interval.low == pytest.approx(high - low, rel=0.12)


def test_from_sums_units_count_once_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    records = copies(random_records(60, seed=5), lambda number: 1 + number % 4)
    records = [records[n] for n in np.random.default_rng(0).permutation(len(records))]
    renamed = [
        replace(record, question=replace(record.question, id=f"{number:03d}"))
        for number, record in enumerate(records)
    ]
    write_traces(renamed, tmp_path / "t.parquet")
    whole = compared(read_traces(tmp_path / "t.parquet")).result
    monkeypatch.setattr(sums, "SUMS_ABOVE", 20)
    monkeypatch.setattr("suffice.measures.shards.shards_of.__defaults__", (40,))
    for lazily_above in (10**9, 0):
        drawn = compared(read_traces(tmp_path / "t.parquet", lazily_above=lazily_above)).result
        assert " units" in " ".join(drawn.notes)
        for one, other in zip(drawn.policies, whole.policies, strict=True):
            assert (one.em, one.f1, one.mean_rounds, one.costs, one.stop_counts) == (
                other.em,
                other.f1,
                other.mean_rounds,
                other.costs,
                other.stop_counts,
            )
            assert (one.precision, one.recall) == (other.precision, other.recall)
            assert one.interval is not None
            assert other.interval is not None
            width = other.interval.high - other.interval.low
            assert one.interval.high - one.interval.low == pytest.approx(width, rel=0.25)


def test_breakdown_diagnosis_and_selection_resample_units() -> None:
    records = sampled_records(80)
    once, repeated = (to_trace_set(made) for made in (records, copies(records, lambda _: 4)))
    results = []
    for traces in (once, repeated):
        comparison = compare(
            traces, ComparisonSettings(policies=("fixed-2", "fixed-4"), split="eval")
        )
        (typed, *_) = breakdown(comparison.measures, comparison.result)
        delta = typed["policies"][1]["delta_f1"]
        assert delta is not None
        few = DiagnosisSettings(signals=("self_consistency",), resamples=200)
        asked = replace(few, confidence="self_consistency")
        confident, *_ = selective_prediction(comparison.measures, comparison.result, asked)
        found = diagnose(traces, few)
        pooled = [*found.signals[0]["parts"].values()][-1]
        results.append(
            [
                (delta.low, delta.high),
                *((confident[of].low, confident[of].high) for of in ("auroc", "aurc")),
                (confident["answers"]["em"].low, confident["answers"]["em"].high),
                *((pooled[of].low, pooled[of].high) for of in ("auroc", "d")),
            ]
        )
    for one, other in zip(*results, strict=True):
        assert one[0] is not None
        assert one[1] - one[0] == pytest.approx(other[1] - other[0], rel=0.02, abs=1e-9)


# --- divisions ---------------------------------------------------------------------------------------
def parted(traces: TraceSet, parts: list[str | None]) -> bool:
    units = Measures(traces).units
    return any(len({parts[n] for n in np.flatnonzero(units == unit)}) > 1 for unit in units)


def test_a_split_keeps_units_together(tmp_path: Path) -> None:
    records = [
        replace(record, question=replace(record.question, split=None))
        for record in copies(random_records(40), lambda number: 1 + number % 3)
    ]
    write_traces(records, tmp_path / "t.parquet")
    split_traces(tmp_path / "t.parquet", tmp_path / "split.parquet", shares={"a": 0.5, "b": 0.5})
    traces = read_traces(tmp_path / "split.parquet")
    assert not parted(traces, traces.of_questions("split"))
    assert abs(traces.splits["a"] - traces.splits["b"]) <= 6


def test_folds_keep_units_together() -> None:
    traces = to_trace_set(copies(random_records(60), lambda number: 1 + number % 3))
    data = fit_data(traces, ["overlap"])
    part = Measures(traces).only_split("tune")
    assert not parted(part.traces, data.folds().tolist())
    assert len(set(data.folds().tolist())) == 5


def test_a_drawn_share_is_of_whole_units() -> None:
    units = np.repeat(np.arange(50), np.arange(50) % 4 + 1)
    for seed in range(20):
        chosen = drawn_units(units, 40, seed)
        assert 40 <= chosen.sum() < 44
        assert all(len(set(chosen[units == unit].tolist())) == 1 for unit in range(50))
    alone = np.arange(30)
    order = np.random.default_rng(3).permutation(30)
    assert set(np.flatnonzero(drawn_units(alone, 12, 3))) == set(order[:12].tolist())


def test_fits_divide_between_units() -> None:
    """Every copy of a question is on one side; with both sides alike the promise would not hold."""
    records = copies(sampled_records(100), lambda _: 3)
    traces = to_trace_set(records)
    seen: list[list[str]] = []
    take = Measures.take

    def watched(self: Measures, which: np.ndarray) -> Measures:
        part = take(self, which)
        seen.append([question.text for question in part.traces.questions])
        return part

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Measures, "take", watched)
        fit_method("micp", traces, "corrected", "tune", alpha=0.2, weight=1.0)
    first, second = seen[:2]
    assert first
    assert second
    assert not set(first) & set(second)


@pytest.mark.parametrize("above", [None, 30])
def test_a_search_counts_copies_as_a_replay_does(
    monkeypatch: pytest.MonkeyPatch, above: int | None
) -> None:
    if above is not None:  # from sums, in blocks that a unit lies across
        monkeypatch.setattr(sums, "SUMS_ABOVE", above)
        monkeypatch.setattr(sums, "_CELLS", 200)
    asked = SearchSettings(
        signals=("overlap", "answer_stable"), metric="f1", resamples=200, cost="rounds"
    )
    records = copies(random_records(80, seed=6), lambda number: 1 + number % 4)
    traces = to_trace_set(records)
    found = search(traces, asked)
    for rule in found.rules[:3]:
        of_rule = ComparisonSettings(
            rules=(rule.rule,), metric="f1", split="eval", cost="rounds", resamples=200
        )
        (replayed,) = [
            one for one in compare(traces, of_rule).result.policies if one.name == rule.rule
        ]
        assert rule.interval.estimate == pytest.approx(replayed.f1)
        assert rule.cost == pytest.approx(replayed.mean_rounds)
        assert rule.interval.low < rule.interval.estimate < rule.interval.high

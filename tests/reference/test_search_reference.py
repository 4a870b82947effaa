"""The search of paper 0 on a real trace against array code of its own, and its rules replayed."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffice.costs.usage import CostModel
from suffice.evaluation.choose.search import search
from suffice.evaluation.replay.named_policies import named_policies
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import ComparisonSettings, SearchSettings
from suffice.measures.measures import Measures
from suffice.signals.signal_table import signal_table
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.trace_set import TraceSet

pd = pytest.importorskip("pandas")

SIX = (
    *("answer_stable", "answer_in_evidence", "answer_token_margin", "overlap"),
    *("margin_min", "verbalized_confidence"),
)
BINARY = SIX[:2]
CAP = 3.0


def rounds_of(traces: TraceSet, split: str) -> Any:
    """A row for every question and round, with its signals, F1 and EM."""
    part = traces.only_split(split)
    table, scored = signal_table(part, SIX), Measures(part).scores()
    index = pd.MultiIndex.from_product(
        [part.question_ids, range(1, part.n_rounds + 1)], names=["question", "round"]
    )
    columns = {name: table.signal(name).ravel() for name in SIX}
    return pd.DataFrame({**columns, "f1": scored.f1.ravel(), "em": scored.em.ravel()}, index=index)


def at_stop(frame: Any, fires: Any) -> Any:
    """The row each question stops at: its first firing round, else the last."""
    last = frame.index.get_level_values("round") == frame.index.get_level_values("round").max()
    return frame[fires | last].groupby(level="question").head(1)


def chosen_thresholds(tune: Any) -> dict[str, float | None]:
    """The best of each signal's grid on tune; ``None``: none under the cap."""
    thresholds: dict[str, float | None] = {}
    for name in SIX:
        if name in BINARY:
            continue
        best: tuple[float, float] | None = None
        for threshold in np.linspace(tune[name].min(), tune[name].max(), 40):
            stopped = at_stop(tune, tune[name] > threshold)
            calls = stopped.index.get_level_values("round").to_series().mean()
            if calls <= CAP and (best is None or stopped.f1.mean() > best[0] + 1e-12):
                best = stopped.f1.mean(), float(threshold)
        thresholds[name] = None if best is None else best[1]
    return thresholds


def figures_of(evaluated: Any, thresholds: dict[str, float | None]) -> dict[str, Any]:
    """(F1, EM, rounds) on eval of every OR and AND subset under these thresholds."""
    fires: dict[str, Any] = {}
    for name in SIX:
        threshold = thresholds.get(name, 0.0)
        fires[name] = evaluated[name] > (np.inf if threshold is None else threshold)
    figures = {}
    for size in range(1, 7):
        for chosen in combinations(SIX, size):
            columns = pd.concat([fires[name] for name in chosen], axis=1)
            for word, held in ((" or ", columns.any(axis=1)), (" and ", columns.all(axis=1))):
                stopped = at_stop(evaluated, held)
                rounds = stopped.index.get_level_values("round").to_series().mean()
                figures[word.join(chosen)] = (stopped.f1.mean(), stopped.em.mean(), rounds)
    return figures


@pytest.fixture(scope="module")
def qwen(qwen_traces: Path) -> TraceSet:
    return read_traces(qwen_traces)


def test_the_published_search(qwen: TraceSet) -> None:
    tune, evaluated = rounds_of(qwen, "tune"), rounds_of(qwen, "eval")
    thresholds = chosen_thresholds(tune)
    for form in ("or", "and"):
        settings = SearchSettings(
            signals=SIX,
            form=form,
            max_cost=CAP,
            resamples=20,
            cost_model=CostModel(charge="published"),  # as the paper charges
        )
        result = search(qwen, settings)
        conditions = {}
        for each in result.thresholds:
            conditions[each.condition] = each.signal
            if each.signal in BINARY:
                continue
            expected = thresholds[each.signal]
            assert each.never == (expected is None)
            if expected is not None:
                # written short, and nothing on tune lies between the two
                assert len(repr(each.threshold)) <= min(6, len(repr(expected)))
                assert (tune[each.signal] > each.threshold).equals(tune[each.signal] > expected)
        written = {each.signal: each.threshold for each in result.thresholds}
        figures = figures_of(evaluated, {name: written[name] for name in thresholds})
        assert result.evaluated == 63
        for rule in result.rules:
            word = f" {form} "
            key = word.join(
                sorted((conditions[each] for each in rule.rule.split(word)), key=SIX.index)
            )
            f1, em, rounds = figures[key]
            assert rule.f1 == pytest.approx(f1, abs=1e-12)
            assert rule.em == pytest.approx(em, abs=1e-12)
            assert rule.mean_rounds == pytest.approx(rounds, abs=1e-12)


def replays_alike(traces: TraceSet, settings: SearchSettings, every: int) -> None:
    result = search(traces, settings)
    chosen = result.rules[::every]
    named = named_policies(traces, ["fixed-1"], [each.rule for each in chosen])
    again = replay(
        traces.only_split(settings.eval_split),
        named,
        ComparisonSettings(baseline="fixed-1", resamples=2),
    )
    for rule, found in zip(chosen, again.policies[1:], strict=True):
        assert found.f1 == pytest.approx(rule.f1, abs=1e-12)
        assert found.em == pytest.approx(rule.em, abs=1e-12)
        assert found.mean_rounds == pytest.approx(rule.mean_rounds, abs=1e-12)
        assert found.costs[result.cost.name] == pytest.approx(rule.cost, abs=1e-12)


@pytest.mark.parametrize(("form", "every"), [("or", 1), ("dnf", 29), ("vote", 7)])
@pytest.mark.parametrize("cap", [None, 2.0])
def test_rules_replay_to_their_figures(
    qwen: TraceSet, form: str, every: int, cap: float | None
) -> None:
    """2.0 calls on tune leave some signals without a threshold: conditions that never fire."""
    signals = (
        "answer_stable",
        "calibrated(answer_token_margin)",
        "calibrated(verbalized_confidence)",
        "normalized_entropy",
        "overlap",
        "margin_min",
    )
    settings = SearchSettings(signals=signals, form=form, max_cost=cap, resamples=5)
    replays_alike(qwen, settings, every)


def test_rules_over_three_routes_replay_to_their_figures(data_folder: Path) -> None:
    """One split on both sides: in-sample, except that calibrated values on tune are out of fold."""
    traces = read_traces(data_folder / "traces" / "routes_llama8b_dev.parquet")
    signals = ("answer_stable", "abstained", "answer_similarity_f1", "answer_similarity_seq")
    settings = SearchSettings(
        signals=signals, form="dnf", eval_split="tune", objective="gain-at-cost", resamples=5
    )
    replays_alike(traces, settings, 5)

"""What signals tell about the gain of going on: against SciPy, a planted signal and noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import pearsonr

from suffice.evaluation.diagnose.gains import CURVES, TOGETHER, gains, shown
from suffice.evaluation.diagnose.signal_diagnostics import diagnose
from suffice.evaluation.settings import DiagnosisSettings
from suffice.measures.measures import Measures
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import StoppedBy

ROUNDS = 3


def record(
    scores: Iterable[np.ndarray],
    told: Callable[[int, int], float],
    *,
    ends: StoppedBy | None = None,
) -> Measures:
    made = []
    for q, of_question in enumerate(scores):
        signals = [{"hint": told(q, t)} for t in range(len(of_question))]
        one = make_record(f"q{q:03d}", ["x"] * len(of_question), signals=signals)
        kept = {t: float(score) for t, score in enumerate(of_question, start=1)}
        made.append(replace(one, scores=kept, stopped_by=ends))
    return Measures(to_trace_set(made))


def drawn(seed: int, count: int = 80) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.integers(0, 2, (count, ROUNDS)).astype(float), generator.random(
        (count, ROUNDS)
    )


def test_a_correlation_is_pearson_s_within_rounds_before_the_last() -> None:
    scores, noise = drawn(1)
    found = gains(record(scores, lambda q, t: noise[q, t] + t), ("hint",), seed=1)
    assert found is not None
    gain, hint = scores[:, [-1]] - scores[:, :-1], noise[:, :-1]
    expected = pearsonr(
        (hint - hint.mean(axis=0)).ravel(), (gain - gain.mean(axis=0)).ravel()
    ).statistic
    assert found["signals"]["hint"]["r"].estimate == pytest.approx(expected)
    assert found["rounds"] == 160
    assert found["mean_gain"] == pytest.approx(gain.mean())


def test_a_planted_signal_is_shown() -> None:
    scores, noise = drawn(0)
    planted = gains(
        record(scores, lambda q, t: scores[q, -1] - scores[q, t] + noise[q, t]), ("hint",), seed=0
    )
    assert planted is not None
    assert set(shown(planted)) == {"hint", TOGETHER, CURVES}
    assert planted["signals"][TOGETHER]["r"].estimate > 0.5


def many(seed: int, kind: str, count: int, signals: int) -> tuple[Measures, list[str]]:
    """Scores of questions, some of which are hard, and signals; the first may tell by a curve."""
    generator = np.random.default_rng([seed, count])
    hard = generator.beta(0.5, 0.5, (count, 1)) if kind == "alike" else 0.5
    scores = (generator.random((count, 4)) < hard).astype(float)
    shape = (count, 4, signals)
    of_question = 0.7 * generator.standard_normal((count, 1, signals))
    noise = generator.standard_normal(shape)
    values = of_question + 0.7 * noise if kind == "alike" else noise
    gain = scores[:, [-1]] - scores
    if kind == "u":  # both very low and very high values mean that going on helps
        side = generator.choice([-1.5, 1.5], gain.shape)
        values[:, :, 0] = np.where(gain > 0, side, 0.0) + noise[:, :, 0]
    if kind == "hump":  # values near 0 do
        values[:, :, 0] *= np.where(gain > 0, 0.5, 1.0)
    names, made = [f"s{at}" for at in range(signals)], []
    for q, of_rounds in enumerate(values):
        told = [dict(zip(names, of.tolist(), strict=True)) for of in of_rounds]
        one = make_record(f"q{q:03d}", ["x"] * 4, signals=told)
        kept = {t: float(score) for t, score in enumerate(scores[q], start=1)}
        made.append(replace(one, scores=kept))
    return Measures(to_trace_set(made)), names


@pytest.mark.parametrize("draws", [40, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("kind", "count", "signals"), [("plain", 60, 1), ("alike", 80, 6), ("alike", 200, 12)]
)
def test_noise_is_shown_no_more_often_than_stated(
    kind: str, count: int, signals: int, draws: int
) -> None:
    """Any row, in at most 5% of draws; and the two rows of all signals never by the wrong sign."""
    wrong = 0
    for seed in range(draws):
        measures, names = many(seed, kind, count, signals)
        found = gains(measures, names, seed=0)
        assert found is not None
        told = shown(found)
        wrong += bool(told)
        assert all(
            (found["signals"][name]["z"] or 0) > 0 for name in {TOGETHER, CURVES} & set(told)
        )
    assert wrong <= 0.05 * draws + 3 * np.sqrt(0.05 * 0.95 * draws)


@pytest.mark.parametrize("kind", ["u", "hump"])
def test_a_curve_is_shown_where_no_line_is(kind: str) -> None:
    """A signal whose extremes, or whose middle, tells the gain has no correlation with it."""
    curves = lines = 0
    for seed in range(10):
        measures, names = many(seed, kind, 200, 4)
        found = gains(measures, names, seed=0)
        assert found is not None
        curves += CURVES in shown(found)
        lines += TOGETHER in shown(found)
    assert curves >= 8
    assert lines <= 2


def test_a_record_that_was_cut_or_small_says_nothing() -> None:
    scores, noise = drawn(2)

    def told(q: int, t: int) -> float:
        return float(noise[q, t])

    assert gains(record(scores[:10], told), ("hint",), seed=0) is None
    assert gains(record(scores[:, :1], told), ("hint",), seed=0) is None
    cut = record([row[: 2 + q % 2] for q, row in enumerate(scores)], told, ends="policy")
    assert gains(cut, ("hint",), seed=0) is None


def test_the_diagnosis_of_a_record_without_gold_answers_holds_it() -> None:
    scores, noise = drawn(3)
    found = diagnose(
        record(scores, lambda q, t: noise[q, t]).by("f1"), DiagnosisSettings(resamples=50)
    )
    document = found.to_json()["gains"]
    assert document["metric"] == "score"
    assert {"hint", TOGETHER, CURVES} <= set(document["signals"])
    assert any(table.name == "gains" for table in found.tables())

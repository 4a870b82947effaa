"""What signals tell about the gain of going on: against SciPy, a planted signal and noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import pearsonr

from suffice.evaluation.diagnose.gains import TOGETHER, gains, shown
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
    found = gains(record(scores, lambda q, t: noise[q, t] + t), ("hint",), resamples=200, seed=1)
    assert found is not None
    gain, hint = scores[:, [-1]] - scores[:, :-1], noise[:, :-1]
    expected = pearsonr(
        (hint - hint.mean(axis=0)).ravel(), (gain - gain.mean(axis=0)).ravel()
    ).statistic
    assert found["signals"]["hint"]["r"].estimate == pytest.approx(expected)
    assert found["rounds"] == 160
    assert found["mean_gain"] == pytest.approx(gain.mean())


def test_a_planted_signal_is_shown_and_noise_is_not() -> None:
    wrong = 0
    for seed in range(60):
        scores, noise = drawn(seed)
        of_noise = gains(record(scores, lambda q, t: noise[q, t]), ("hint",), resamples=200, seed=0)  # noqa: B023
        assert of_noise is not None
        wrong += bool(shown(of_noise))
    assert wrong <= 8  # 5% of 60 are 3; 9 or more by chance: 0.4%
    planted = gains(
        record(scores, lambda q, t: scores[q, -1] - scores[q, t] + noise[q, t]),
        ("hint",),
        resamples=200,
        seed=0,
    )
    assert planted is not None
    assert set(shown(planted)) == {"hint", TOGETHER}
    assert planted["signals"][TOGETHER]["r"].estimate > 0.5


def test_a_record_that_was_cut_or_small_says_nothing() -> None:
    scores, noise = drawn(2)

    def told(q: int, t: int) -> float:
        return float(noise[q, t])

    assert gains(record(scores[:10], told), ("hint",), resamples=50, seed=0) is None
    assert gains(record(scores[:, :1], told), ("hint",), resamples=50, seed=0) is None
    cut = record([row[: 2 + q % 2] for q, row in enumerate(scores)], told, ends="policy")
    assert gains(cut, ("hint",), resamples=50, seed=0) is None


def test_the_diagnosis_of_a_record_without_gold_answers_holds_it() -> None:
    scores, noise = drawn(3)
    found = diagnose(
        record(scores, lambda q, t: noise[q, t]).by("f1"), DiagnosisSettings(resamples=50)
    )
    document = found.to_json()["gains"]
    assert document["metric"] == "score"
    assert {"hint", TOGETHER} <= set(document["signals"])
    assert any(table.name == "gains" for table in found.tables())

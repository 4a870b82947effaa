"""Cohen's d by hand and from resampled sums; what is undefined says why."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.replay.diagnose.signal_checks import ResampledD, Rows, figures_of, separations
from suffice.stats.intervals import resampled_counts


def rows(n_questions: int = 40, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    values = 1e6 + rng.normal(size=n_questions * 3)
    return Rows(
        values=values,
        right=rng.random(n_questions * 3) < 1 / (1 + np.exp(1e6 - values)),
        questions=np.repeat(np.arange(n_questions), 3),
    )


def test_d_by_hand() -> None:
    """Right 4, 8: mean 6, SD 2 sqrt 2. Wrong 1, 3: mean 2, SD sqrt 2. d = 4 / (1.5 sqrt 2)."""
    values = np.array([1.0, 4.0, 3.0, 8.0])
    right = np.array([False, True, False, True])
    # a shift and a scale change nothing
    for of, sign in ((values, 1), (-values, -1), (7 * values - 3, 1)):
        found = figures_of(Rows(values=of, right=right, questions=np.arange(4)))[0]
        assert found == pytest.approx(sign * 4 / (1.5 * math.sqrt(2)))


def test_r_is_that_of_numpy_and_scipy() -> None:
    scipy = pytest.importorskip("scipy.stats")
    for seed in range(5):
        given = rows(seed=seed)
        found = figures_of(given)[1]
        match = given.right.astype(float)
        assert found == pytest.approx(np.corrcoef(given.values, match)[0, 1], abs=1e-9)
        assert found == pytest.approx(scipy.pearsonr(given.values, match).statistic, abs=1e-9)


def test_resampled_r_equals_the_definition_on_the_drawn_rows() -> None:
    given = rows()
    resampled = ResampledD(given, 40)
    for block in resampled_counts(40, resamples=20, seed=3):
        found = resampled.correlations(resampled.sums @ block.T, block.T)
        for number, counts in enumerate(block):
            times = counts[given.questions].astype(int)
            drawn = np.repeat(given.values, times), np.repeat(given.right, times)
            assert found[number] == pytest.approx(np.corrcoef(*drawn)[0, 1], abs=1e-7)


@pytest.mark.parametrize(
    ("values", "right", "why_area", "why_d"),
    [
        ([], [], "defined in no labelled round", None),
        ([1.0, 2.0], [True, True], "no wrong answer among these rounds", None),
        ([1.0, 2.0], [False, False], "no right answer among these rounds", None),
        ([3.0, 3.0], [True, False], "the signal is 3 in all of these rounds", None),
        ([1.0, 2.0], [True, False], None, "fewer than two rounds"),
        ([1.0, 1.0, 2.0, 2.0], [True, True, False, False], None, "varies neither"),
        ([1.0, math.inf, 2.0, 3.0], [True, True, False, False], None, "infinite"),
    ],
)
def test_undefined_says_why(
    values: list[float], right: list[bool], why_area: str | None, why_d: str | None
) -> None:
    given = Rows(
        values=np.array(values), right=np.array(right, bool), questions=np.arange(len(values))
    )
    ((found, _),) = separations([given], max(1, len(values)), resamples=20, seed=0)
    if why_area is not None:
        assert found["auroc"].estimate is None
        assert found["auroc"].reason == found["d"].reason == found["d_signed"].reason == why_area
        assert found["pearson"].reason == why_area
    else:
        assert found["auroc"].estimate is not None
    if why_d is not None:
        assert found["d"].estimate is None
        assert why_d in (found["d"].reason or "")


@pytest.mark.parametrize("form", [np.arctan, np.sign, np.round])
def test_draws_from_sums_are_spread_as_resamples_are(
    form: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> None:
    rng = np.random.default_rng(5)
    sure, number = rng.normal(size=1500), np.repeat(np.arange(500), 3)
    sure += rng.normal(size=500)[number]  # so that the rounds of a question are alike
    right = sure + rng.normal(size=1500) > 0.4
    parts = [
        Rows(values=form(sure)[some], right=right[some], questions=number[some], sign=sign)
        for some, sign in ((slice(None), 1.0), (slice(0, None, 3), -1.0))
    ]
    resampled = separations(parts, 500, resamples=800, seed=1)
    by_sums = separations(parts, 500, resamples=800, seed=1, by_sums=True)
    for (plain, draws), (same, drawn) in zip(resampled, by_sums, strict=True):
        assert same["auroc"].estimate == plain["auroc"].estimate
        for one, other in zip(draws, drawn, strict=True):
            assert other.std() == pytest.approx(one.std(), rel=0.12)
            assert abs(other.mean() - one.mean()) < 0.2 * one.std()

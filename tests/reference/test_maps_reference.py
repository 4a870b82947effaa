"""Maps from a signal to a probability, and scores of them, against scikit-learn and venn-abers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.stats.maps import LogisticMap, fit_isotonic, fit_per_round, fit_platt, fit_venn_abers

isotonic = pytest.importorskip("sklearn.isotonic", reason="scikit-learn is a development tool")


def draw(
    rng: np.random.Generator, rows: int, digits: int, *, binary: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A noisy rising relation; few digits make ties."""
    x = np.round(rng.normal(1.0, 2.0, rows), digits)
    chance = 1 / (1 + np.exp(-x))
    return x, (rng.random(rows) < chance).astype(float) if binary else np.clip(
        chance + rng.normal(0, 0.3, rows), 0, 1
    )


@pytest.mark.parametrize("digits", [0, 1, 12])
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("rows", [5, 20, 100, 2000])
def test_predictions_agree_with_scikit_learn(rows: int, digits: int, binary: bool) -> None:
    rng = np.random.default_rng(rows + digits)
    for _ in range(20):
        x, y = draw(rng, rows, digits, binary=binary)
        if len(np.unique(x)) < 2:
            continue
        ours = fit_isotonic(x, y)
        theirs = isotonic.IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(x, y)
        asked = np.concatenate([x, rng.normal(1, 4, 200), [x.min() - 9, x.max() + 9]])
        np.testing.assert_allclose(ours.predict(asked), theirs.predict(asked), rtol=0, atol=1e-12)
        if (
            binary
        ):  # Thinned alike; its running means may break a plateau by an ulp, our sums do not.
            assert set(ours.x) <= set(theirs.X_thresholds_)
            assert len(ours.x) >= len(np.unique(theirs.y_thresholds_.round(12)))


def test_rounds_agree_with_scikit_learn_after_dropping_undefined_rows() -> None:
    rng = np.random.default_rng(42)
    x, y = draw(rng, 500, 1, binary=True)
    values, em = x.reshape(100, 5), y.reshape(100, 5)
    values = np.where(rng.random(values.shape) < 0.2, np.nan, values)
    em = np.where(rng.random(em.shape) < 0.1, np.nan, em)
    for number, ours in enumerate(fit_per_round(values, em)):
        usable = ~np.isnan(values[:, number]) & ~np.isnan(em[:, number])
        theirs = isotonic.IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        theirs.fit(values[usable, number], em[usable, number])
        asked = np.linspace(-9, 9, 301)
        np.testing.assert_allclose(ours.predict(asked), theirs.predict(asked), rtol=0, atol=1e-12)


calibration = pytest.importorskip(
    "sklearn.calibration", reason="scikit-learn is a development tool"
)


def loss(p: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Cross-entropy against Platt's smoothed targets."""
    right, wrong = y.sum(), len(y) - y.sum()
    targets = np.where(y == 1, (right + 1) / (right + 2), 1 / (wrong + 2))
    return float(-(targets * np.log(p) + (1 - targets) * np.log(1 - p)).sum())


@pytest.mark.parametrize("rows", [8, 30, 500])
@pytest.mark.parametrize("slope", [-1.5, 0.3, 2.0])
def test_platt_curves_agree_with_scikit_learn(rows: int, slope: float) -> None:
    rng = np.random.default_rng(rows)
    compared = 0
    for _ in range(10):
        x = rng.normal(1.0, 2.0, rows)
        y = (rng.random(rows) < 1 / (1 + np.exp(-slope * x))).astype(float)
        if len(np.unique(y)) < 2:
            continue
        ours = fit_platt(x, y)
        theirs = calibration._SigmoidCalibration().fit(x, y)
        assert isinstance(ours, LogisticMap)
        asked = np.linspace(-6, 8, 201)
        np.testing.assert_allclose(ours.predict(asked), theirs.predict(asked), atol=2e-4)
        assert loss(ours.predict(x), y) <= loss(theirs.predict(x), y) + 1e-9
        compared += 1
    assert compared >= 5


with np.errstate():  # importing it silences numpy's warnings for the whole process
    settings = np.geterr()
    package = pytest.importorskip("venn_abers", reason="venn-abers is a development tool")
    np.seterr(**settings)


@pytest.mark.filterwarnings("ignore:All-NaN slice")
@pytest.mark.parametrize("digits", [0, 1, 12])
@pytest.mark.parametrize("rows", [5, 12, 60, 400])
def test_probabilities_agree_with_the_package(rows: int, digits: int) -> None:
    rng = np.random.default_rng(rows + digits)
    for _ in range(10):
        x = np.round(rng.normal(0.0, 2.0, rows), digits)
        y = (rng.random(rows) < 1 / (1 + np.exp(-x))).astype(float)
        if len(np.unique(x)) < 2:
            continue
        asked = np.concatenate([x, rng.normal(0, 4, 100), [x.min() - 1, x.max() + 1]])
        with np.errstate(all="ignore"):  # its slopes divide by zero
            p0, p1, points = package.calc_p0p1(np.stack([-x, x], axis=1), y)
            theirs, _ = package.calc_probs(p0, p1, points, np.stack([-asked, asked], axis=1))
        np.testing.assert_allclose(
            fit_venn_abers(x, y).predict(asked), theirs[:, 1], rtol=0, atol=1e-9
        )

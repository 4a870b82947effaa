"""Simultaneous bands against their definition, and what they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.stats.simultaneous import (
    SimultaneousBand,
    paired_p_values,
    questions_to_tell,
    simultaneous_bands,
)

Array = NDArray[np.float64]


def bands(
    values: Array, references: Any = (None,), resamples: int = 200, seed: int = 42
) -> tuple[SimultaneousBand, ...]:
    return simultaneous_bands(
        values.shape[1], lambda part: values[:, part], references, resamples=resamples, seed=seed
    )


def slow_band(values: Array, reference: Array | None, resamples: int, seed: int) -> dict[str, Any]:
    """Every resample gathered row by row."""
    if reference is not None:
        values = values - reference[:, None]
    n, columns = values.shape
    drawn = np.random.default_rng(seed).integers(0, n, size=(resamples, n))
    means = np.array([values[rows].mean(axis=0) for rows in drawn])
    estimate = values.mean(axis=0)
    errors = [float(np.std(means[:, c], ddof=1)) for c in range(columns)]
    greatest = []
    for draw in means:
        deviations = [
            abs(draw[c] - estimate[c]) / errors[c] for c in range(columns) if errors[c] > 1e-12
        ]
        greatest.append(max(deviations, default=0.0))
    critical = float(np.quantile(greatest, 0.95))
    errors = [each if each > 1e-12 else 0.0 for each in errors]
    return {
        "estimate": estimate,
        "low": estimate - critical * np.array(errors),
        "high": estimate + critical * np.array(errors),
        "naive_low": np.percentile(means, 2.5, axis=0),
        "naive_high": np.percentile(means, 97.5, axis=0),
        "critical": critical,
    }


def test_a_band_is_its_definition() -> None:
    generator = np.random.default_rng(1)
    values = generator.random((37, 9)) * np.linspace(0.01, 3, 9)
    values[:, 4] = 0.3  # no spread
    reference = generator.random(37)
    for found, given in zip(bands(values, (None, reference)), (None, reference), strict=True):
        for name, expected in slow_band(values, given, 200, 42).items():
            np.testing.assert_allclose(getattr(found, name), expected, atol=1e-12, err_msg=name)


def test_a_large_family_in_blocks_is_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).random((40, 1100))
    asked = []

    def columns(part: slice) -> Array:
        asked.append(part)
        return values[:, part]

    blocks = simultaneous_bands(1100, columns, (None,), resamples=50)[0]
    assert len(asked) > 2
    monkeypatch.setattr("suffice.stats.simultaneous._BLOCK", 5000)
    whole = bands(values, resamples=50)[0]
    for name in ("estimate", "low", "high", "naive_low", "naive_high"):
        np.testing.assert_allclose(getattr(blocks, name), getattr(whole, name), atol=1e-12)
    assert blocks.critical == pytest.approx(whole.critical)


def test_all_means_are_covered_at_once() -> None:
    """400 samples of 150 questions under 40 correlated columns with known means."""
    generator = np.random.default_rng(5)
    truth = generator.uniform(0.2, 0.8, 40)
    together = alone = 0
    draws = 400
    for draw in range(draws):
        rng = np.random.default_rng([6, draw])
        shared = rng.normal(size=(150, 1))
        values = truth + 0.3 * (0.6 * shared + 0.8 * rng.normal(size=(150, 40)))
        found = bands(values, resamples=300, seed=draw)[0]
        together += bool(((found.low <= truth) & (truth <= found.high)).all())
        alone += bool(((found.naive_low <= truth) & (truth <= found.naive_high)).all())
    error = (0.95 * 0.05 / draws) ** 0.5
    # bootstrap errors at 150 questions are a little small: 2 points beside the binomial error
    assert together / draws >= 0.95 - 3 * error - 0.02
    assert together / draws <= 0.95 + 3 * error
    assert alone / draws < 0.6


def test_paired_p_values_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(7)
    first, second = generator.random((2, 25, 30))
    second += np.linspace(-0.5, 0.5, 30)
    expected = stats.ttest_rel(first, second, axis=0).pvalue
    np.testing.assert_allclose(paired_p_values(first - second), expected, rtol=1e-8)
    assert expected.min() < 1e-4
    assert expected.max() > 0.5


def test_so_many_questions_find_a_difference_as_often_as_promised() -> None:
    needed = int(questions_to_tell(0.05, 0.4, level=0.01, power=0.9))
    drawn = np.random.default_rng(7).normal(0.05, 0.4, (needed, 1000))
    found = float((paired_p_values(drawn) <= 0.01).mean())
    assert abs(found - 0.9) < 0.04  # four standard errors
    assert questions_to_tell(0.0, 0.4) == np.inf
    assert questions_to_tell(-0.05, 0.4) == questions_to_tell(0.05, 0.4)
    with pytest.raises(UsageError, match="level"):
        questions_to_tell(0.1, 0.4, level=0.0)

"""Risk-coverage curves against every order of the ties."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.stats.intervals import resampled_counts
from suffice.stats.risk_coverage import ResampledAurc, aurc, optimal_aurc, risk_coverage


def every_order(confidence: list[float], losses: list[float]) -> float:
    """The mean area over all orders of answering that respect the confidence."""
    areas = []
    for order in itertools.permutations(range(len(losses))):
        ordered = [confidence[i] for i in order]
        if ordered == sorted(ordered, reverse=True):
            taken = [losses[i] for i in order]
            areas.append(
                statistics.fmean(statistics.fmean(taken[: k + 1]) for k in range(len(taken)))
            )
    return statistics.fmean(areas)


@pytest.mark.parametrize("seed", range(4))
def test_ties_are_averaged_over_their_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    confidence = rng.integers(0, 3, size=6).astype(float)
    losses = np.round(rng.random(6), 2)
    expected = every_order(confidence.tolist(), losses.tolist())
    assert aurc(confidence, losses) == pytest.approx(expected, abs=1e-12)


def test_curve_by_hand() -> None:
    """Right, then a tie of right and wrong, then wrong: risks 0, 1/4, 1/3, 1/2."""
    losses = np.array([0.0, 1.0, 0.0, 1.0])
    found = risk_coverage(np.array([0.9, 0.5, 0.5, 0.1]), {"em": losses})
    assert found.coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert found.risk["em"].tolist() == pytest.approx([0.0, 0.25, 1 / 3, 0.5])
    assert found.confidence.tolist() == [0.9, 0.5, 0.5, 0.1]
    assert aurc(np.array([0.9, 0.5, 0.5, 0.1]), losses) == pytest.approx((0.25 + 1 / 3 + 0.5) / 4)
    # the best order: right, right, wrong, wrong
    assert optimal_aurc(losses) == pytest.approx((0 + 0 + 1 / 3 + 2 / 4) / 4)
    assert aurc(np.zeros(4), losses) == 0.5


def test_undefined_ones_are_answered_last_and_low_may_be_confident() -> None:
    losses = {"em": np.array([0.0, 1.0, 0.0])}
    found = risk_coverage(np.array([np.nan, 0.2, 0.7]), losses, sign=-1.0)
    assert found.to_json()["confidence"] == [0.2, 0.7, None]
    assert found.risk["em"].tolist() == pytest.approx([1.0, 0.5, 1 / 3])


def drawn(values: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.repeat(values, counts.astype(int))


def test_resampled_areas_equal_those_of_the_drawn_answers() -> None:
    rng = np.random.default_rng(5)
    confidence = np.round(rng.random(50), 1)
    losses = (rng.random(50) > confidence).astype(float)
    resampled = ResampledAurc(confidence, losses)
    assert resampled.plain[1] == pytest.approx(aurc(confidence, losses) - optimal_aurc(losses))
    for block in resampled_counts(50, resamples=30):
        found = resampled(block)
        for number, counts in enumerate(block):
            taken = drawn(losses, counts)
            area = aurc(drawn(confidence, counts), taken)
            assert found[0, number] == pytest.approx(area, abs=1e-12)
            assert found[1, number] == pytest.approx(area - optimal_aurc(taken), abs=1e-12)

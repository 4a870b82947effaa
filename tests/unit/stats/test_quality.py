"""Brier, log loss and calibration error: by hand and against scikit-learn, ties, refusals."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError
from suffice.stats.auroc import ResampledAuroc, auroc, average_ranks
from suffice.stats.intervals import resampled_counts
from suffice.stats.quality import brier, expected_calibration_error, log_loss, squared_errors
from suffice.stats.risk_coverage import ResampledAurc, aurc, risk_coverage

NAN = math.nan
P, Y = [0.1, 0.4, 0.8, NAN, 0.9], [0.0, 1.0, 1.0, 1.0, NAN]


def test_values_by_hand() -> None:
    assert brier(P, Y) == pytest.approx((0.01 + 0.36 + 0.04) / 3)
    assert log_loss(P, Y) == pytest.approx(-(math.log(0.9) + math.log(0.4) + math.log(0.8)) / 3)
    assert expected_calibration_error(P, Y, buckets=1) == pytest.approx(2 / 3 - 1.3 / 3)
    assert expected_calibration_error(P, Y, buckets=3) == pytest.approx((0.1 + 0.6 + 0.2) / 3)
    # no bucket ends within the three of .5
    ties = [0.5, 0.5, 0.5, 0.9], [1.0, 0.0, 1.0, 1.0]
    assert expected_calibration_error(*ties, buckets=2) == pytest.approx((3 / 6 + 0.1) / 4)


def test_a_certain_error_costs_what_the_clip_says() -> None:
    assert log_loss([0.0], [1.0]) == pytest.approx(-math.log(1e-15))
    assert log_loss([1.0], [0.0]) == pytest.approx(-math.log(1e-15), rel=1e-2)
    assert 0 <= log_loss([1.0, 0.0], [1.0, 0.0]) < 1e-14


def test_undefined_rows_are_left_out_and_nothing_left_is_undefined() -> None:
    assert np.isnan(squared_errors(P, Y)).tolist() == [False, False, False, True, True]
    for score in (brier, log_loss, expected_calibration_error):
        assert math.isnan(score([], []))
        assert math.isnan(score([NAN, 0.5], [1.0, NAN]))
        assert score(P, Y) == score(P[:3], Y[:3])


def test_refusals() -> None:
    for score in (brier, log_loss, expected_calibration_error):
        with pytest.raises(DataError, match=r"column predicted: .* found 1.5"):
            score([1.5], [1.0])
        with pytest.raises(DataError, match=r"column outcome: .* found -1.0"):
            score([0.5], [-1.0])
        with pytest.raises(DataError, match="outcomes"):
            score([0.5, 0.5], [1.0])
    with pytest.raises(UsageError, match="at least 1, found 0"):
        expected_calibration_error([0.5], [1.0], buckets=0)


@pytest.mark.parametrize("n_values", [2, 5, 1000])
def test_it_equals_scikit_learn(n_values: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(n_values)
    values = np.floor(rng.random(300) * n_values)
    right = rng.random(300) < 0.2 + 0.6 * values / n_values
    assert auroc(values, right) == pytest.approx(metrics.roc_auc_score(right, values), abs=1e-12)
    assert auroc(-values, right) == pytest.approx(1 - auroc(values, right), abs=1e-12)


def test_one_class_is_undefined_plain_and_in_a_resample() -> None:
    assert math.isnan(auroc(np.arange(3.0), np.ones(3, bool)))
    assert math.isnan(auroc(np.zeros(0), np.zeros(0, bool)))
    counts = np.array([[1.0, 2.0], [1.0, 0.0]])
    found = ResampledAuroc(np.array([0.0, 1.0]), np.array([False, True]), np.arange(2), 2)(counts)
    assert found[0] == 1.0
    assert math.isnan(found[1])
    for right in (np.ones(2, bool), np.zeros(2, bool)):
        assert np.isnan(ResampledAuroc(np.arange(2.0), right, np.arange(2), 2)(counts)).all()


def test_average_ranks_equal_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = np.floor(np.random.default_rng(0).random(200) * 30)
    np.testing.assert_array_equal(average_ranks(values), stats.rankdata(values))


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
    assert aurc(-losses, losses) == pytest.approx((0 + 0 + 1 / 3 + 2 / 4) / 4)
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
    assert resampled.plain[1] == pytest.approx(aurc(confidence, losses) - aurc(-losses, losses))
    for block in resampled_counts(50, resamples=30):
        found = resampled(block)
        for number, counts in enumerate(block):
            taken = drawn(losses, counts)
            area = aurc(drawn(confidence, counts), taken)
            assert found[0, number] == pytest.approx(area, abs=1e-12)
            assert found[1, number] == pytest.approx(area - aurc(-taken, taken), abs=1e-12)


@pytest.mark.parametrize("rows", [10, 200, 3000])
def test_brier_and_log_loss_agree_with_scikit_learn(rows: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(rows)
    p = rng.random(rows)
    y = (rng.random(rows) < p).astype(float)
    y[:2] = 0.0, 1.0
    assert brier(p, y) == pytest.approx(metrics.brier_score_loss(y, p), abs=1e-12)
    assert log_loss(p, y) == pytest.approx(metrics.log_loss(y, p), abs=1e-12)


def test_buckets_are_those_of_a_calibration_curve() -> None:
    """Its curve gives a point a bucket; without ties and empty ones, equal-size buckets weigh alike."""
    calibration = pytest.importorskip("sklearn.calibration")
    rng = np.random.default_rng(1)
    p = rng.random(1000)
    y = (rng.random(1000) < p**2).astype(float)
    right, predicted = calibration.calibration_curve(y, p, n_bins=10, strategy="quantile")
    expected = np.abs(right - predicted).mean()
    assert expected_calibration_error(p, y) == pytest.approx(expected, abs=1e-12)

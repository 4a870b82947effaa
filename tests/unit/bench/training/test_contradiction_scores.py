"""The measures of a detector by hand, and their intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.bench.training.contradiction import counted_metrics, measure
from suffice.bench.training.contradiction_pairs import Kind, Pair
from suffice.errors import UsageError


class ByStep:
    """The value a pair's step spells."""

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        return np.array([float(step) for step, _ in pairs])


def pair(value: float, *, conflict: bool, kind: Kind = "aspect", family: str = "a") -> Pair:
    return Pair(step=str(value), candidate="x", conflict=conflict, kind=kind, family=family)


def test_counts_by_hand() -> None:
    found = counted_metrics(
        np.array([[3.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 2.0, 0.0], [4.0, 1.0, 5.0]])
    )
    np.testing.assert_allclose(found[:, 0], [0.7, 0.75, 0.6, 2 / 3])
    np.testing.assert_allclose(found[:, 1], [1 / 3, np.nan, 0.0, 0.0])
    np.testing.assert_allclose(found[:, 2], [1.0, np.nan, np.nan, np.nan])


def test_measures_by_kind_and_family() -> None:
    pairs = [
        pair(0.9, conflict=True, kind="opposite"),
        pair(0.5, conflict=True, kind="opposite", family="b"),
        pair(0.2, conflict=True, kind="negated", family="b"),
        pair(0.6, conflict=False, kind="paraphrase"),
        pair(0.1, conflict=False, kind="unrelated", family="b"),
    ]
    found = measure(ByStep(), pairs, resamples=50)
    values = {name: each.estimate for name, each in found.metrics.items()}
    assert values == pytest.approx(
        {"accuracy": 0.6, "precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3, "auroc": 4 / 6}
    )
    assert found.flagged_by_kind == {
        "opposite": 1.0,
        "negated": 0.0,
        "paraphrase": 1.0,
        "unrelated": 0.0,
    }
    assert found.accuracy_by_family == pytest.approx({"a": 0.5, "b": 2 / 3})
    assert found.seconds_a_pair > 0
    strict = measure(ByStep(), pairs, threshold=0.7, resamples=50)
    assert strict.metrics["precision"].estimate == 1.0
    assert strict.metrics["auroc"] == found.metrics["auroc"]


def test_intervals_resample_families() -> None:
    """A family that is right throughout and one that is wrong: accuracy is 0, 0.5 or 1."""
    pairs = [pair(0.9, conflict=True, family="a"), pair(0.1, conflict=False, family="a")] * 20
    pairs += [pair(0.1, conflict=True, family="b"), pair(0.9, conflict=False, family="b")] * 20
    found = measure(ByStep(), pairs, resamples=400).metrics["accuracy"]
    assert (found.estimate, found.low, found.high) == (0.5, 0.0, 1.0)


def test_no_pairs() -> None:
    with pytest.raises(UsageError, match="no pairs"):
        measure(ByStep(), [])

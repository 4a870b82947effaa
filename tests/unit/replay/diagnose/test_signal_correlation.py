"""Spearman's correlation against scipy, and what it rests on."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.replay.diagnose.signal_correlation import correlations, spearman
from suffice.results.as_json import as_json


@pytest.mark.parametrize("n_values", [2, 4, 1000])
def test_it_equals_scipys(n_values: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(n_values)
    first = np.floor(rng.random(150) * n_values)
    second = first + np.floor(rng.normal(size=150) * n_values)
    expected = stats.spearmanr(first, second).statistic
    assert spearman(first, second) == pytest.approx(expected, abs=1e-12)


def test_the_matrix_takes_rounds_where_both_are_defined() -> None:
    nan = np.nan
    found = correlations(
        {
            "a": np.array([1.0, 2.0, 3.0, nan]),
            "b": np.array([nan, 5.0, 4.0, 1.0]),
            "c": np.array([7.0, 7.0, 7.0, 7.0]),
        }
    )
    assert found.signals == ("a", "b", "c")
    assert found.rows == ((3, 2, 3), (2, 3, 3), (3, 3, 4))
    assert found.rho[0] == (1.0, -1.0, None)
    assert found.rho[2] == (None, None, None)
    assert as_json(found)["rho"][1] == [-1.0, 1.0, None]


def test_too_few_rounds() -> None:
    assert spearman(np.ones(1), np.ones(1)) is None
    assert spearman(np.zeros(0), np.zeros(0)) is None

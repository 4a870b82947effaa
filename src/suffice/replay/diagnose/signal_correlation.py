"""How much two signals say the same: Spearman's rank correlation of every pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.numbers.auroc import average_ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlations:
    """Spearman's rho of every pair of signals and the rounds it rests on, both square.

    ``rho`` is ``None`` where fewer than two rounds define both signals or one of them does not vary
    there.
    """

    signals: tuple[str, ...]
    rho: tuple[tuple[float | None, ...], ...]
    rows: tuple[tuple[int, ...], ...]


def spearman(first: NDArray[np.float64], second: NDArray[np.float64]) -> float | None:
    """Pearson's correlation of the average ranks, in [-1, 1] (Spearman, 1904); no NaN allowed.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([9.0, 8.0, 5.0]))
    -1.0
    """
    if len(first) < 2:
        return None
    ranks = [average_ranks(values) for values in (first, second)]
    centred = [each - each.mean() for each in ranks]
    length = float(np.sqrt((centred[0] @ centred[0]) * (centred[1] @ centred[1])))
    if length == 0.0:
        return None
    return float(np.clip((centred[0] @ centred[1]) / length, -1.0, 1.0))


def correlations(signals: Mapping[str, NDArray[np.float64]]) -> Correlations:
    """Every pair over the rounds where both are defined; all arrays of one shape, NaN: undefined."""
    names = tuple(signals)
    flat = [signals[name].ravel() for name in names]
    defined = [~np.isnan(each) for each in flat]
    rho: list[list[float | None]] = [[None] * len(names) for _ in names]
    rows = [[0] * len(names) for _ in names]
    for i, first in enumerate(flat):
        for j in range(i, len(names)):
            both = defined[i] & defined[j]
            rho[i][j] = rho[j][i] = spearman(first[both], flat[j][both])
            rows[i][j] = rows[j][i] = int(both.sum())
    return Correlations(signals=names, rho=tuple(map(tuple, rho)), rows=tuple(map(tuple, rows)))

"""Isotonic regression: the non-decreasing map from a signal to P(EM = 1) that fits best.

Breakpoints and interpolation are those of scikit-learn's ``IsotonicRegression(y_min=0, y_max=1,
out_of_bounds="clip")``, which the tests compare with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from suffice.errors import DataError, UsageError
from suffice.stats.fields import check_points, probability_or_none
from suffice.stats.maps.per_round import FittedMap, PerRoundCalibrator

_BLOCK = 1 << 15  # values looked up together; the temporaries stay in the cache
MINIMUM_ROWS = 5
STRENGTH = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IsotonicMap(FittedMap):
    """A fitted non-decreasing map into [0, 1]: linear between breakpoints, constant outside."""

    kind: ClassVar[str] = "isotonic"
    title: ClassVar[str] = "an isotonic map"

    x: tuple[float, ...]
    y: tuple[float, ...]
    undefined: float | None = None

    def __post_init__(self) -> None:
        # Adding 0.0 turns -0.0 into 0.0, which arithmetic would do on one path only.
        object.__setattr__(self, "x", tuple(float(value) + 0.0 for value in self.x))
        object.__setattr__(self, "y", tuple(float(value) + 0.0 for value in self.y))
        _check_breakpoints(self.x, self.y)
        probability_or_none(self.undefined, "undefined")

    def predict(self, values: ArrayLike) -> NDArray[np.float64]:
        """The map at every value, shape kept."""
        flat = np.asarray(values, np.float64)
        undefined = math.nan if self.undefined is None else self.undefined
        result = np.full(flat.size, undefined)
        if self.x:
            source = flat.ravel()
            for start in range(0, flat.size, _BLOCK):
                result[start : start + _BLOCK] = self._block(source[start : start + _BLOCK])
            if self.undefined is not None:
                result[np.isnan(source)] = undefined
        return result.reshape(flat.shape)

    def _block(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """NaN stays NaN. A flat segment of width 1 behind the last breakpoint ends the map."""
        x, y = np.array(self.x), np.array(self.y)
        width, height = np.append(np.diff(x), 1.0), np.append(np.diff(y), 0.0)
        values = np.clip(values, x[0], x[-1])
        left = np.minimum(np.searchsorted(x, values, side="right"), len(x)) - 1
        share = (values - x[left]) / width[left]
        rising = share * height[left] + y[left]
        probabilities: NDArray[np.float64] = np.minimum(rising, np.append(y[1:], y[-1])[left])
        return probabilities


def _check_breakpoints(x: Sequence[float], y: Sequence[float]) -> None:
    if len(x) != len(y):
        raise DataError(f"needs one y for each x, found {len(x)} x and {len(y)} y", column="y")
    check_points(x)
    for value in y:
        if not 0.0 <= value <= 1.0:
            raise DataError(f"must be in [0, 1], found {value!r}", column="y")
    for before, after in pairwise(y):
        if before > after:
            raise DataError(f"must not decrease, found {after!r} after {before!r}", column="y")
    if x and math.isinf(x[-1] - x[0]):
        raise DataError(f"{x[0]!r} to {x[-1]!r} is wider than a float can say", column="x")


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRows:
    """The rows where signal and outcome are both defined, in the order given.

    ``mean`` is the mean outcome over all labelled rows, those without a signal included; NaN without
    a labelled row.
    """

    values: NDArray[np.float64]  # (n_usable,)
    outcomes: NDArray[np.float64]  # (n_usable,)
    mean: float

    @property
    def labelled(self) -> bool:
        """Whether any row had an outcome."""
        return not math.isnan(self.mean)


def fit_rows(x: ArrayLike, y: ArrayLike) -> FitRows:
    """Pair signal values with outcomes."""
    values, outcomes = np.asarray(x, np.float64).ravel(), np.asarray(y, np.float64).ravel()
    if values.shape != outcomes.shape:
        raise DataError(f"{values.size} signal values for {outcomes.size} outcomes", column="y")
    labelled = ~np.isnan(outcomes)
    outside = labelled & ((outcomes < 0) | (outcomes > 1))
    if outside.any():
        raise DataError(f"must be in [0, 1], found {float(outcomes[outside][0])!r}", column="y")
    usable = labelled & np.isfinite(values)
    return FitRows(
        values=values[usable],
        outcomes=outcomes[usable],
        mean=float(outcomes[labelled].mean()) if labelled.any() else math.nan,
    )


def constant_map(mean: float, undefined: float | None = None) -> IsotonicMap:
    """The map of rounds that cannot be fitted: ``mean`` everywhere; an empty map for NaN.

    When ``undefined`` is set, NaN maps to the constant too, as the published code of paper 0 does.
    """
    if math.isnan(mean):
        return IsotonicMap(x=(), y=(), undefined=undefined)
    return IsotonicMap(x=(0.0,), y=(mean,), undefined=None if undefined is None else mean)


def fit_isotonic(
    x: ArrayLike,
    y: ArrayLike,
    *,
    minimum_rows: int = MINIMUM_ROWS,
    undefined: float | None = None,
) -> IsotonicMap:
    """Least-squares non-decreasing fit of ``y`` on ``x``.

    Rows with equal x are averaged first; then neighbours that fall are pooled. With fewer than
    ``minimum_rows`` rows where both are defined, or one distinct x, the map is the constant mean of
    y over all labelled rows, those without x included; without a labelled row it is empty and maps
    everything to ``undefined``, which is what NaN maps to (``None``: NaN; else a constant map maps NaN to
    its constant, as the published code of paper 0 does).

    >>> fit_isotonic([1, 2, 3, 4, 5], [0, 1, 0, 1, 1])
    IsotonicMap(x=(1.0, 2.0, 3.0, 4.0, 5.0), y=(0.0, 0.5, 0.5, 1.0, 1.0), undefined=None)
    """
    rows = fit_rows(x, y)
    distinct, group = np.unique(rows.values, return_inverse=True)
    if len(rows.values) < minimum_rows or len(distinct) < 2:
        return constant_map(rows.mean, undefined)
    counts = np.bincount(group).astype(np.float64)
    sums = np.bincount(group, weights=rows.outcomes).astype(np.float64)
    fitted = _pooled(sums, counts)
    corner = np.ones(len(distinct), bool)
    corner[1:-1] = (fitted[1:-1] != fitted[:-2]) | (fitted[1:-1] != fitted[2:])
    return IsotonicMap(
        x=tuple(distinct[corner].tolist()), y=tuple(fitted[corner].tolist()), undefined=undefined
    )


def _pooled(sums: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pool adjacent violators, (n_distinct,): whatever does not rise is one block with what follows.

    All runs that do not rise are pooled at once, again and again while they grow fewer; what is left, one
    block after the other. Sums of outcomes 0 and 1 are whole, so the order changes no bit.
    """
    lengths = np.ones(len(sums), np.int64)  # distinct x of each block
    while True:
        starts = np.flatnonzero(np.diff(sums / counts, prepend=-1.0) > 0.0)
        groups = len(sums)
        sums, counts, lengths = (
            np.add.reduceat(values, starts) for values in (sums, counts, lengths)
        )
        if 10 * len(sums) > 9 * groups:
            break
    blocks: list[tuple[float, float, int]] = []
    for group in zip(sums.tolist(), counts.tolist(), lengths.tolist(), strict=True):
        total, count, length = group
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
            before = blocks.pop()
            total, count, length = total + before[0], count + before[1], length + before[2]
        blocks.append((total, count, length))
    # Rounding may lift a mean of ones and fractions above 1.
    means = [min(total / count, 1.0) for total, count, _ in blocks]
    return np.repeat(means, [length for _, _, length in blocks])


def fit_per_round(
    values: NDArray[np.float64],
    em: NDArray[np.float64],
    *,
    minimum_rows: int = MINIMUM_ROWS,
    undefined: float | None = None,
) -> tuple[IsotonicMap, ...]:
    """One :func:`fit_isotonic` a round (paper 0)."""
    if values.shape != em.shape:
        raise DataError(f"signal of shape {values.shape} for outcomes of shape {em.shape}")
    return tuple(
        fit_isotonic(signal, outcome, minimum_rows=minimum_rows, undefined=undefined)
        for signal, outcome in zip(values.T, em.T, strict=True)
    )


def mix(first: IsotonicMap, second: IsotonicMap, weight: float) -> IsotonicMap:
    """The map ``weight * first + (1 - weight) * second``, which is again an isotonic one.

    Its breakpoints are those of both. ``undefined`` is mixed alike, and stays ``None`` where either
    is. A map without breakpoints leaves the other as it is.

    >>> mix(IsotonicMap(x=(0, 2), y=(0, 1)), IsotonicMap(x=(1,), y=(0.5,)), 0.5)
    IsotonicMap(x=(0.0, 2.0), y=(0.25, 0.75), undefined=None)
    """
    if not 0.0 <= weight <= 1.0:
        raise UsageError(f"a weight must be in [0, 1], found {weight!r}")
    if not first.x or weight == 0.0:
        return second
    if not second.x or weight == 1.0:
        return first
    # a single breakpoint is a constant: where it stands means nothing
    x = np.unique(
        [*(first.x if len(first.x) > 1 else ()), *(second.x if len(second.x) > 1 else ())]
    )
    x = x if x.size else np.zeros(1)
    y = np.minimum(weight * first.predict(x) + (1.0 - weight) * second.predict(x), 1.0)
    undefined = None
    if first.undefined is not None and second.undefined is not None:
        undefined = min(weight * first.undefined + (1.0 - weight) * second.undefined, 1.0)
    return IsotonicMap(x=tuple(x.tolist()), y=tuple(y.tolist()), undefined=undefined)


def fit_shrunken(
    values: NDArray[np.float64],
    em: NDArray[np.float64],
    *,
    strength: float = STRENGTH,
    undefined: float | None = None,
) -> PerRoundCalibrator:
    """Each round's isotonic map, mixed with the global one by ``n_t / (n_t + strength)``.

    50: a share has a standard error of 0.07 on 50 rows, about what rounds differ by; 0: the per-round fit.

    ``n_t`` counts the round's rows with signal and outcome. A round without any, and every round past
    the last, has weight 0: the global map.
    """
    if not 0.0 <= strength < math.inf:
        raise UsageError(f"the strength must be a finite number from 0, found {strength!r}")
    own = fit_per_round(values, em, undefined=undefined)
    pooled = fit_isotonic(values, em, undefined=undefined)
    counts = (np.isfinite(values) & ~np.isnan(em)).sum(axis=0).tolist()
    maps = tuple(
        mix(fitted_map, pooled, count / (count + strength) if count else 0.0)
        for fitted_map, count in zip(own, counts, strict=True)
    )
    return PerRoundCalibrator(maps=maps, beyond=pooled)

"""Inductive Venn-Abers prediction, merged into one probability (Vovk, Petej and Fedorova 2015).

For a value s the calibration rows are fitted twice, once with (s, wrong) and once with (s, right)
added; the two fits at s, p0 and p1, enclose what the data support, and ``p1 / (1 - p0 + p1)`` is the
probability of least worst-case log loss between them. It depends on s only through its place among
the calibration values, so the whole predictor is a step function, kept here as numbers. The tests
compare with the package ``venn-abers``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from suffice.errors import DataError
from suffice.stats.fields import check_points, probability_or_none
from suffice.stats.maps.isotonic import MINIMUM_ROWS, IsotonicMap, constant_map, fit_rows
from suffice.stats.maps.per_round import FittedMap


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMap(FittedMap):
    """A fitted map into [0, 1] with a value at each of its points and one between any two."""

    kind: ClassVar[str] = "step"
    title: ClassVar[str] = "a step map"

    x: tuple[float, ...]
    at: tuple[float, ...]
    between: tuple[float, ...]
    undefined: float | None = None

    def __post_init__(self) -> None:
        for column in ("x", "at", "between"):
            values = tuple(float(value) + 0.0 for value in getattr(self, column))
            object.__setattr__(self, column, values)
        self._check()
        probability_or_none(self.undefined, "undefined")

    def _check(self) -> None:
        for column, wanted in (("at", len(self.x)), ("between", len(self.x) + 1)):
            if len(getattr(self, column)) != wanted:
                raise DataError(
                    f"needs {wanted} values for {len(self.x)} x, found {len(getattr(self, column))}",
                    column=column,
                )
            for value in getattr(self, column):
                if not 0.0 <= value <= 1.0:
                    raise DataError(f"must be in [0, 1], found {value!r}", column=column)
        check_points(self.x)
        for below, value, above in zip(self.between, self.at, self.between[1:], strict=False):
            if not below <= value <= above:
                raise DataError(
                    f"must not decrease, found {below!r}, {value!r}, {above!r}", column="at"
                )

    def predict(self, values: ArrayLike) -> NDArray[np.float64]:
        """The map at every value, shape kept."""
        flat = np.asarray(values, np.float64)
        source = flat.ravel()
        x, between = np.array(self.x), np.array(self.between)
        place = np.searchsorted(x, source, side="left")
        probabilities: NDArray[np.float64] = between[place]
        if self.x:
            near = np.minimum(place, len(x) - 1)
            probabilities = np.where(x[near] == source, np.array(self.at)[near], probabilities)
        probabilities[np.isnan(source)] = math.nan if self.undefined is None else self.undefined
        return probabilities.reshape(flat.shape)


_Blocks = tuple[float, float, Any] | None  # sum, count, and the next block further out


def multiprobabilities(
    sums: NDArray[np.float64], counts: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(p0, p1) in every gap between calibration values, each (n_distinct + 1,).

    Notes
    -----
    Violators may be pooled in any order: the rows on either side of a gap are pooled once for all
    gaps, and the added row then takes in blocks of either side. A row added exactly at value i is
    pooled with it from the gap above when wrong, and from the gap below when right.
    """
    rows = list(zip(sums.tolist(), counts.tolist(), strict=True))
    below = _pooled(rows, falls=lambda outer, inner: outer >= inner)
    above = _pooled(rows[::-1], falls=lambda outer, inner: outer <= inner)[::-1]
    sides = list(zip(below, above, strict=True))
    p0, p1 = ([_added(label, *side) for side in sides] for label in (0.0, 1.0))
    return np.array(p0), np.array(p1)


def _pooled(
    rows: Sequence[tuple[float, float]], falls: Callable[[float, float], bool]
) -> list[_Blocks]:
    """Blocks of the first i rows, nearest first, for every i from 0; the lists share their tails."""
    blocks: _Blocks = None
    stacks = [blocks]
    for total, count in rows:
        while blocks is not None and falls(blocks[0] / blocks[1], total / count):
            total, count = total + blocks[0], count + blocks[1]  # noqa: PLW2901 - it grows
            blocks = blocks[2]
        blocks = (total, count, blocks)
        stacks.append(blocks)
    return stacks


def _added(label: float, below: _Blocks, above: _Blocks) -> float:
    """The isotonic value of one row with this label between the two."""
    total, count = label, 1.0
    while True:
        if below is not None and below[0] / below[1] >= total / count:
            total, count, below = total + below[0], count + below[1], below[2]
        elif above is not None and above[0] / above[1] <= total / count:
            total, count, above = total + above[0], count + above[1], above[2]
        else:
            return min(total / count, 1.0)


def fit_venn_abers(
    x: ArrayLike, y: ArrayLike, *, undefined: float | None = None
) -> StepMap | IsotonicMap:
    """The merged Venn-Abers probability of a right answer, as a step map.

    Never 0 or 1: n rows that are all wrong still leave 1 / (n + 2) or more. With fewer than five
    rows where both are defined, or one distinct x, the map is the constant mean of y over all
    labelled rows, as in :func:`~suffice.stats.maps.isotonic.fit_isotonic`.

    >>> fit_venn_abers([1, 2, 3, 4, 5], [0, 0, 0, 1, 1]).predict([0.0, 3.5, 9.0]).round(9).tolist()
    [0.2, 0.5, 0.75]
    """
    rows = fit_rows(x, y)
    distinct, group = np.unique(rows.values, return_inverse=True)
    if len(rows.values) < MINIMUM_ROWS or len(distinct) < 2:
        return constant_map(rows.mean, undefined)
    p0, p1 = multiprobabilities(
        np.bincount(group, weights=rows.outcomes).astype(np.float64),
        np.bincount(group).astype(np.float64),
    )
    # running maxima take back what rounding may have lowered
    steps = np.maximum.accumulate(
        np.stack([_merged(p0, p1), _merged(np.append(p0[1:], p0[-1]), p1)], axis=1).ravel()[:-1]
    )
    between, at = steps[0::2], steps[1::2]
    needed = (between[:-1] != at) | (at != between[1:])
    return StepMap(
        x=tuple(distinct[needed].tolist()),
        at=tuple(at[needed].tolist()),
        between=(float(between[0]), *between[1:][needed].tolist()),
        undefined=undefined,
    )


def _merged(p0: NDArray[np.float64], p1: NDArray[np.float64]) -> NDArray[np.float64]:
    return p1 / (1.0 - p0 + p1)

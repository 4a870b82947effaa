"""Calibration maps: from a signal to P(EM = 1), fitted, and stored as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from suffice.contracts import Calibrator
from suffice.errors import DataError, UsageError
from suffice.stats.fields import (
    check_points,
    map_fields,
    number,
    number_or_none,
    numbers,
    probability_or_none,
)
from suffice.stats.logistic import least_cross_entropy, sigmoids
from suffice.stats.units import Array

_PLAIN = "isotonic"  # what a map without a kind is


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedMap:
    kind: ClassVar[str]
    title: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; :meth:`from_json` restores the same bits."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        document = {} if self.kind == _PLAIN else {"kind": self.kind}
        return document | {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }

    @classmethod
    def from_json(cls, document: object) -> Self:
        parts = map_fields(document, cls.title, ("kind", *(field.name for field in fields(cls))))
        read: dict[str, Any] = {}
        for field in fields(cls):
            value = parts.get(field.name)
            if field.name == "undefined":
                read[field.name] = number_or_none(value, field.name)
            else:
                of_kind = numbers if str(field.type).startswith("tuple") else number
                read[field.name] = of_kind(value, field.name)
        return cls(**read)


@dataclass(frozen=True, slots=True)
class PerRoundCalibrator:
    """Map a signal to a probability by a fit for each round; ``falls``: fits of its negative."""

    maps: tuple[Calibrator, ...] = ()
    absent: float | None = None
    beyond: Calibrator | None = None
    falls: bool = False

    def predict(self, round_number: int, values: Array) -> Array:
        """Return probabilities of one round's values, same shape; NaN if undefined."""
        fitted = self.maps[round_number - 1] if round_number <= len(self.maps) else self.beyond
        if fitted is not None:
            return fitted.predict(-values if self.falls else values)
        return np.full(values.shape, math.nan if self.absent is None else self.absent)

    def predict_rounds(self, values: Array) -> Array:
        """Return probabilities of every round's values, (n_questions, n_rounds), round-major."""
        predicted = np.empty(values.shape[::-1])
        for index, column in enumerate(values.T):
            predicted[index] = self.predict(index + 1, column)
        return predicted.T


# --- documents ------------------------------------------------------------------------------------
def read_map(document: object) -> Calibrator:
    """Read a map from a JSON object; without ``kind`` it is isotonic."""
    kind = document.get("kind", _PLAIN) if isinstance(document, Mapping) else _PLAIN
    if not isinstance(kind, str) or kind not in _MAPS:
        raise DataError(f"unknown map {kind!r}; known: {', '.join(sorted(_MAPS))}", column="kind")
    return _MAPS[kind].from_json(document)


def calibrator_document(calibrator: PerRoundCalibrator) -> dict[str, Any]:
    document: dict[str, Any] = {
        "absent": calibrator.absent,
        "rounds": [fitted_map.to_json() for fitted_map in calibrator.maps],
    }
    if calibrator.beyond is not None:
        document["beyond"] = calibrator.beyond.to_json()
    return document | ({"falls": True} if calibrator.falls else {})


def read_calibrator(document: object, column: str) -> PerRoundCalibrator:
    """Read what :func:`calibrator_document` returned; ``column`` is its place in the file."""
    if not isinstance(document, dict) or not isinstance(document.get("rounds"), list):
        raise DataError('must be an object with a list "rounds"', column=column)
    beyond, falls = document.get("beyond"), document.get("falls", False)
    if not isinstance(falls, bool):
        raise DataError(f"must be true or false, found {falls!r}", column=f"{column}.falls")
    return PerRoundCalibrator(
        maps=tuple(
            _placed(part, f"{column}.rounds[{index}]")
            for index, part in enumerate(document["rounds"])
        ),
        absent=probability_or_none(document.get("absent"), f"{column}.absent"),
        beyond=None if beyond is None else _placed(beyond, f"{column}.beyond"),
        falls=falls,
    )


def _placed(document: object, column: str) -> Calibrator:
    try:
        return read_map(document)
    except DataError as error:
        place = column if error.column is None else f"{column}.{error.column}"
        raise DataError(error.message, column=place) from error


# --- isotonic regression --------------------------------------------------------------------------
MINIMUM_ROWS = 5
STRENGTH = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IsotonicMap(FittedMap):
    """Hold a non-decreasing map into [0, 1]: linear between breakpoints, constant outside."""

    kind: ClassVar[str] = "isotonic"
    title: ClassVar[str] = "an isotonic map"

    x: tuple[float, ...]
    y: tuple[float, ...]
    undefined: float | None = None

    def __post_init__(self) -> None:
        # Adding 0.0 turns -0.0 into 0.0, which arithmetic would do on one path only.
        object.__setattr__(self, "x", tuple(float(value) + 0.0 for value in self.x))
        object.__setattr__(self, "y", tuple(float(value) + 0.0 for value in self.y))
        x, y = self.x, self.y
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
            raise DataError(f"{x[0]!r} to {x[-1]!r} is wider than the range of a float", column="x")
        probability_or_none(self.undefined, "undefined")

    def predict(self, values: ArrayLike) -> Array:
        given = np.asarray(values, np.float64)
        source, undefined = given.ravel(), math.nan if self.undefined is None else self.undefined
        if not self.x:
            return np.full(given.shape, undefined)
        x, y = np.array(self.x), np.array(self.y)
        # a flat segment of width 1 behind the last breakpoint ends the map
        width, height = np.append(np.diff(x), 1.0), np.append(np.diff(y), 0.0)
        within = np.clip(source, x[0], x[-1])
        left = np.minimum(np.searchsorted(x, within, side="right"), len(x)) - 1
        rising = (within - x[left]) / width[left] * height[left] + y[left]
        probabilities: Array = np.minimum(rising, np.append(y[1:], y[-1])[left])
        probabilities[np.isnan(source)] = undefined
        return probabilities.reshape(given.shape)


def _fit_rows(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array, float]:
    """Return values and outcomes of rows with both, (n_usable,), and the labeled rows' mean outcome."""
    values, outcomes = np.asarray(x, np.float64).ravel(), np.asarray(y, np.float64).ravel()
    if values.shape != outcomes.shape:
        raise DataError(f"{values.size} signal values for {outcomes.size} outcomes", column="y")
    labelled = ~np.isnan(outcomes)
    outside = labelled & ((outcomes < 0) | (outcomes > 1))
    if outside.any():
        raise DataError(f"must be in [0, 1], found {float(outcomes[outside][0])!r}", column="y")
    usable = labelled & np.isfinite(values)
    mean = float(outcomes[labelled].mean()) if labelled.any() else math.nan
    return values[usable], outcomes[usable], mean


def constant_map(mean: float, undefined: float | None = None) -> IsotonicMap:
    """Return a map that is ``mean`` everywhere, for rounds without a fit; NaN gives an empty map."""
    if math.isnan(mean):
        return IsotonicMap(x=(), y=(), undefined=undefined)
    return IsotonicMap(x=(0.0,), y=(mean,), undefined=None if undefined is None else mean)


def fit_isotonic(
    x: ArrayLike, y: ArrayLike, *, minimum_rows: int = MINIMUM_ROWS, undefined: float | None = None
) -> IsotonicMap:
    """Fit a non-decreasing map of ``y`` on ``x`` by least squares.

    Rows with equal x are averaged first; then neighbors that fall are pooled. With fewer than
    ``minimum_rows`` rows with both, or one distinct x, the map is constant. Its value is the mean of y over
    all labeled rows, with or without x. Without a labeled row it maps everything to ``undefined``. NaN maps
    to ``undefined`` (``None``: NaN). A constant map then maps NaN to its constant, as paper 0's code does.

    >>> fit_isotonic([1, 2, 3, 4, 5], [0, 1, 0, 1, 1])
    IsotonicMap(x=(1.0, 2.0, 3.0, 4.0, 5.0), y=(0.0, 0.5, 0.5, 1.0, 1.0), undefined=None)
    """
    from scipy.optimize import isotonic_regression

    values, outcomes, mean = _fit_rows(x, y)
    distinct, group = np.unique(values, return_inverse=True)
    if len(values) < minimum_rows or len(distinct) < 2:
        return constant_map(mean, undefined)
    counts = np.bincount(group).astype(np.float64)
    means = np.bincount(group, weights=outcomes) / counts
    # rounding may lift a mean of ones and fractions above 1
    fitted = np.minimum(isotonic_regression(means, weights=counts).x, 1.0)
    corner = np.ones(len(distinct), bool)
    corner[1:-1] = (fitted[1:-1] != fitted[:-2]) | (fitted[1:-1] != fitted[2:])
    return IsotonicMap(
        x=tuple(distinct[corner].tolist()), y=tuple(fitted[corner].tolist()), undefined=undefined
    )


def fit_per_round(
    values: Array, em: Array, *, minimum_rows: int = MINIMUM_ROWS, undefined: float | None = None
) -> tuple[IsotonicMap, ...]:
    """Fit one :func:`fit_isotonic` per round (paper 0)."""
    if values.shape != em.shape:
        raise DataError(f"signal of shape {values.shape} for outcomes of shape {em.shape}")
    return tuple(
        fit_isotonic(signal, outcome, minimum_rows=minimum_rows, undefined=undefined)
        for signal, outcome in zip(values.T, em.T, strict=True)
    )


def mix(first: IsotonicMap, second: IsotonicMap, weight: float) -> IsotonicMap:
    """Return the isotonic map ``weight * first + (1 - weight) * second``."""
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
    values: Array, em: Array, *, strength: float = STRENGTH, undefined: float | None = None
) -> PerRoundCalibrator:
    """Fit each round's isotonic map, mixed with the global one by ``n_t / (n_t + strength)``."""
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


# --- Platt scaling --------------------------------------------------------------------------------
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticMap(FittedMap):
    """Hold a map ``1 / (1 + exp(-(slope * value + intercept)))`` into [0, 1]."""

    kind: ClassVar[str] = "logistic"
    title: ClassVar[str] = "a logistic map"

    slope: float
    intercept: float
    undefined: float | None = None

    def __post_init__(self) -> None:
        for column in ("slope", "intercept"):
            value = float(getattr(self, column))
            object.__setattr__(self, column, value)
            if not math.isfinite(value):
                raise DataError(f"must be finite, found {value!r}", column=column)
        probability_or_none(self.undefined, "undefined")

    def predict(self, values: ArrayLike) -> Array:
        source = np.asarray(values, np.float64)
        within = np.clip(source, -_LARGEST, _LARGEST)
        with np.errstate(over="ignore"):
            probabilities = sigmoids(self.slope * within + self.intercept)
        probabilities[np.isnan(source)] = math.nan if self.undefined is None else self.undefined
        return probabilities


def fit_platt(
    x: ArrayLike, y: ArrayLike, *, undefined: float | None = None
) -> LogisticMap | IsotonicMap:
    """Fit a logistic map of ``y`` on ``x`` by maximum likelihood with Platt's smoothed targets.

    A right answer counts as ``(N1 + 1) / (N1 + 2)`` and a wrong one as ``1 / (N0 + 2)``. N1 and N0 are their
    numbers. So separable data give finite numbers. With fewer than five rows with both, one distinct x or one
    class of outcome, the map is constant. Its value is that of :func:`~suffice.stats.maps.fit_isotonic`. The
    direction of the signal is found, not assumed: see ``slope`` of :class:`LogisticMap`.

    >>> fit_platt([1, 2, 3, 4, 5, 6], [0, 0, 1, 0, 1, 1]).predict([1, 3.5, 6]).round(3).tolist()
    [0.208, 0.5, 0.792]
    """
    values, outcomes, mean = _fit_rows(x, y)
    fitted = _logistic(values, outcomes, undefined)
    return constant_map(mean, undefined) if fitted is None else fitted


def _logistic(values: Array, outcomes: Array, undefined: float | None) -> LogisticMap | None:
    right = float(outcomes.sum())
    wrong = len(outcomes) - right
    if len(values) < MINIMUM_ROWS or right == 0 or wrong == 0:
        return None
    low, high = float(values.min()), float(values.max())
    # the fit runs on [-1, 1], where any unit of the signal is well conditioned
    centre, half = low / 2 + high / 2, high / 2 - low / 2
    if half == 0.0:
        return None
    targets = outcomes * ((right + 1) / (right + 2)) + (1 - outcomes) / (wrong + 2)

    design = np.stack([(values - centre) / half, np.ones_like(targets)])
    with np.errstate(over="ignore"):
        scaled_slope, offset = least_cross_entropy(design, targets, np.zeros(2)).tolist()
        slope = float(np.float64(scaled_slope) / half)
        intercept = float(offset - np.float64(slope) * centre)
    if not (math.isfinite(slope) and math.isfinite(intercept)):
        return None  # values too close for a slope that a float can hold
    return LogisticMap(slope=slope, intercept=intercept, undefined=undefined)


# --- Venn-Abers -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class StepMap(FittedMap):
    """Hold a map into [0, 1] with one value at each point and one between any two."""

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
        probability_or_none(self.undefined, "undefined")

    def predict(self, values: ArrayLike) -> Array:
        flat = np.asarray(values, np.float64)
        source = flat.ravel()
        x, between = np.array(self.x), np.array(self.between)
        place = np.searchsorted(x, source, side="left")
        probabilities: Array = between[place]
        if self.x:
            near = np.minimum(place, len(x) - 1)
            probabilities = np.where(x[near] == source, np.array(self.at)[near], probabilities)
        probabilities[np.isnan(source)] = math.nan if self.undefined is None else self.undefined
        return probabilities.reshape(flat.shape)


_Blocks = tuple[float, float, Any] | None  # sum, count, and the next block further out


def multiprobabilities(sums: Array, counts: Array) -> tuple[Array, Array]:
    """Return (p0, p1) in every gap between calibration values, each (n_distinct + 1,)."""
    # violators may be pooled in any order: those beside a gap once for all gaps, then the row that is added
    rows = list(zip(sums.tolist(), counts.tolist(), strict=True))
    below = _stacked(rows, falls=lambda outer, inner: outer >= inner)
    above = _stacked(rows[::-1], falls=lambda outer, inner: outer <= inner)[::-1]
    sides = list(zip(below, above, strict=True))
    p0, p1 = ([_added(label, *side) for side in sides] for label in (0.0, 1.0))
    return np.array(p0), np.array(p1)


def _stacked(
    rows: Sequence[tuple[float, float]], falls: Callable[[float, float], bool]
) -> list[_Blocks]:
    """Return the blocks of the first i rows for every i, nearest first, as shared lists."""
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
    """Return the isotonic value of a row with this label between the two."""
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
    """Fit the merged Venn-Abers probability of a right answer, as a step map.

    Never 0 or 1: n rows that are all wrong still leave 1 / (n + 2) or more. With fewer than five rows with
    both, or one distinct x, the map is constant. Its value is that of
    :func:`~suffice.stats.maps.fit_isotonic`.

    >>> fit_venn_abers([1, 2, 3, 4, 5], [0, 0, 0, 1, 1]).predict([0.0, 3.5, 9.0]).round(9).tolist()
    [0.2, 0.5, 0.75]
    """
    values, outcomes, mean = _fit_rows(x, y)
    distinct, group = np.unique(values, return_inverse=True)
    if len(values) < MINIMUM_ROWS or len(distinct) < 2:
        return constant_map(mean, undefined)
    p0, p1 = multiprobabilities(
        np.bincount(group, weights=outcomes).astype(np.float64),
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


def _merged(p0: Array, p1: Array) -> Array:
    return p1 / (1.0 - p0 + p1)


_MAPS: Mapping[str, type[IsotonicMap | LogisticMap | StepMap]] = MappingProxyType(
    {kind.kind: kind for kind in (IsotonicMap, LogisticMap, StepMap)}
)
"""By the kind that a document states."""

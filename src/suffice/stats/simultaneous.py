"""Intervals that hold for a whole family of policies at once, and tests corrected for its size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.stats.intervals import Interval, Sums, resampled_means
from suffice.stats.p_values import student_t_upper
from suffice.stats.units import Array

_BLOCK = 512  # columns resampled at a time
_LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class SimultaneousBand:
    """Hold means of many columns with intervals, each array (n_columns,).

    ``low`` and ``high`` cover all means at once with 95% confidence: the estimate plus and minus ``critical``
    bootstrap standard errors. ``critical`` is the 95% quantile of the greatest standardized deviation over
    all columns. ``naive_low`` and ``naive_high`` are the percentile intervals that look at one column at a
    time.
    """

    estimate: Array
    low: Array
    high: Array
    naive_low: Array
    naive_high: Array
    critical: float

    def at_once(self, column: int) -> Interval:
        """Return a column's mean with the interval that holds together with all others."""
        return _interval(self.estimate[column], self.low[column], self.high[column])

    def alone(self, column: int) -> Interval:
        return _interval(self.estimate[column], self.naive_low[column], self.naive_high[column])

    def of(self, columns: NDArray[np.intp]) -> SimultaneousBand:
        """Return the bands of columns that equal these, by number."""
        names = ("estimate", "low", "high", "naive_low", "naive_high")
        return replace(self, **{name: getattr(self, name)[columns] for name in names})


def _interval(estimate: float, low: float, high: float) -> Interval:
    return Interval(estimate=float(estimate), low=float(low), high=float(high))


def simultaneous_bands(
    n_columns: int,
    columns: Callable[[slice], Array],
    references: Sequence[Array | None],
    *,
    resamples: int = 1000,
    seed: int = 42,
) -> tuple[SimultaneousBand, ...]:
    """Return bands of the columns' means, once for every subtracted reference (n_questions,).

    ``columns(slice)`` gives some of them, (n_questions, n), asked for in blocks.

    The maximum over the family follows White (2000), "A reality check for data snooping", with
    standardised deviations. A column without spread has an interval of width 0 and does not enter
    the maximum.
    """
    if n_columns < 1:
        raise UsageError("a family needs at least one member")
    parts: list[list[_Part]] = [[] for _ in references]
    greatest = np.zeros((len(references), resamples))
    drawn = partial(resampled_means, resamples=resamples, seed=seed)
    offsets = [None if reference is None else drawn(reference[:, None]) for reference in references]
    for start in range(0, n_columns, _BLOCK):
        block = columns(slice(start, min(start + _BLOCK, n_columns)))
        draws = drawn(block)
        estimate = block.mean(axis=0)
        for number, reference in enumerate(references):
            offset = offsets[number]
            shifted = draws if offset is None else draws - offset
            centre = estimate if reference is None else estimate - reference.mean()
            part, deviation = _part(shifted, centre)
            parts[number].append(part)
            np.maximum(greatest[number], deviation, out=greatest[number])
    return tuple(
        _band(part, float(np.quantile(most, _LEVEL)))
        for part, most in zip(parts, greatest, strict=True)
    )


def bands_from_sums(
    sums: Sums,
    n_columns: int,
    references: Sequence[int | None],
    *,
    resamples: int = 1000,
    seed: int = 42,
) -> tuple[SimultaneousBand, ...]:
    """Return :func:`simultaneous_bands` of a record that is too large to resample."""
    if n_columns < 1:
        raise UsageError("a family needs at least one member")
    draws, bands = sums.draws(resamples=resamples, seed=seed), []
    for reference in references:
        if reference is None:
            shifted, centre, error = draws, sums.mean, sums.error
        else:
            shifted = draws - draws[:, [reference]]
            centre, error = sums.less(reference)
        part, deviation = _part(shifted[:, :n_columns], centre[:n_columns], error=error[:n_columns])
        bands.append(_band([part], float(np.quantile(deviation, _LEVEL))))
    return tuple(bands)


@dataclass(frozen=True, slots=True)
class _Part:
    estimate: Array
    error: Array
    naive: Array  # (2, n_columns)


def _part(draws: Array, centre: Array, *, error: Array | None = None) -> tuple[_Part, Array]:
    """Estimate and errors of a block, and each resample's greatest standardised deviation."""
    if error is None:
        error = draws.std(axis=0, ddof=1) if len(draws) > 1 else np.zeros(draws.shape[1])
    spread = error > 1e-12  # rounding alone gives less
    safe = np.where(spread, error, 1.0)
    deviation = np.abs(draws - centre) / safe * spread
    naive = np.percentile(draws, [2.5, 97.5], axis=0)
    return _Part(centre, np.where(spread, error, 0.0), naive), deviation.max(axis=1)


def _band(parts: Sequence[_Part], critical: float) -> SimultaneousBand:
    estimate = np.concatenate([part.estimate for part in parts])
    half = critical * np.concatenate([part.error for part in parts])
    naive = np.concatenate([part.naive for part in parts], axis=1)
    return SimultaneousBand(
        estimate=estimate,
        low=estimate - half,
        high=estimate + half,
        naive_low=naive[0],
        naive_high=naive[1],
        critical=critical,
    )


def paired_p_values(differences: Array) -> Array:
    """Test "the mean difference is 0" two-sided by Student's t, (n_columns,), n - 1 degrees.

    ``differences`` (n_questions, n_columns). A column of zeros gives 1, a constant other one 0; one
    question gives 1.
    """
    n_questions = differences.shape[0]
    if n_questions < 2:
        return np.ones(differences.shape[1])
    error = differences.std(axis=0, ddof=1) / np.sqrt(n_questions)
    return _p_values(differences.mean(axis=0), error, n_questions)


def paired_p_values_from_sums(sums: Sums, reference: int) -> Array:
    """Test every column's difference to one of them, (n_columns,)."""
    mean, error = sums.less(reference)
    return _p_values(mean, error * np.sqrt(sums.n / max(sums.n - 1, 1)), sums.n)


def _p_values(mean: Array, error: Array, n_questions: int) -> Array:
    some = error > 1e-15
    t = np.where(some, np.abs(mean) / np.where(some, error, 1.0), np.where(mean == 0, 0.0, np.inf))
    return np.minimum(1.0, 2.0 * student_t_upper(t, n_questions - 1))

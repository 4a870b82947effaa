"""Paired bootstrap by question, with the published draws; of large records draws from sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.stats.intervals.sums import Sums, from_sums
from suffice.stats.units import numbered_units

_MAX_CELLS = 4_000_000  # indices drawn at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A point estimate with its 95% percentile interval; the estimate is the plain one."""

    estimate: float
    low: float
    high: float


def resampled_counts(
    n_questions: int,
    *,
    resamples: int = 1000,
    seed: int = 42,
    units: NDArray[np.intp] | None = None,
) -> Iterator[NDArray[np.float64]]:
    """How often each question is drawn, in blocks of resamples (n_draws, n_questions).

    The draws are those of :func:`resampled_means`, for statistics that are no means. Questions of one of
    ``units`` (n_questions,) are drawn together.
    """
    if units is not None:
        unit = numbered_units(units)
        for drawn in resampled_counts(int(unit.max()) + 1, resamples=resamples, seed=seed):
            yield drawn[:, unit]
        return
    generator = np.random.default_rng(seed)
    step = max(1, _MAX_CELLS // n_questions)
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        # drawn in blocks: the generator's stream is the same as in one call
        chosen = generator.integers(0, n_questions, size=(count, n_questions))
        offsets = np.arange(count)[:, None] * n_questions
        flat = (chosen + offsets).ravel()
        counts = np.bincount(flat, minlength=count * n_questions)
        yield counts.reshape(count, n_questions).astype(np.float64)


def resampled_means(
    values: NDArray[np.float64], *, resamples: int = 1000, seed: int = 42
) -> NDArray[np.float64]:
    """Column means over resampled questions, (resamples, n_columns), of values (n_questions, n_columns).

    Questions are sorted by id, and the draws ``default_rng(seed).integers(0, n, size=(resamples, n))``
    (METHODS 1; published), the same for every column; of more than ``SUMS_ABOVE`` they come from sums.
    """
    if len(values) == 1:
        return np.broadcast_to(values, (resamples, values.shape[1]))
    if from_sums(len(values)):
        return Sums.of(values).draws(resamples=resamples, seed=seed)
    means = np.empty((resamples, values.shape[1]))
    start = 0
    for counts in resampled_counts(values.shape[0], resamples=resamples, seed=seed):
        means[start : start + len(counts)] = counts @ values / values.shape[0]
        start += len(counts)
    return means


def with_rare_weights(
    draws: NDArray[np.float64],
    values: NDArray[np.float64],
    largest: NDArray[np.float64],
    *,
    centred: bool = False,
    seed: int = 42,
) -> NDArray[np.float64]:
    """Draws of weighted means as wide as what a few questions of great weight leave open.

    A resample holds no weighted question that the sample lacks, so where few stand for many its percentiles
    are too narrow: with 2 expected to count, of 40 explored, 91 intervals of 100 cover. To every draw is
    added what Gamma(1/2) more such questions would bring: Jeffreys' prior for the rate of a rare event.
    ``largest`` (n_columns,) is the greatest weight in each, 0 where none is weighted; columns of equal values
    get the same. Values that differ from what was expected (``centred``) get it to either side, with as much
    variance.
    """
    if not largest.any():
        return draws
    _, alike = np.unique(values, axis=1, return_inverse=True)
    shape = (draws.shape[0], int(alike.max()) + 1)
    more = np.random.default_rng([seed, 1]).gamma(0.5, size=shape)
    if centred:
        more = (more - np.random.default_rng([seed, 2]).gamma(0.5, size=shape)) / np.sqrt(2.0)
    return np.asarray(draws + more[:, alike] * largest / len(values))


def percentile_interval(estimate: float, draws: NDArray[np.float64]) -> Interval:
    """The 2.5 and 97.5 percentiles of the draws around the plain estimate."""
    low, high = np.percentile(draws, [2.5, 97.5])
    return Interval(estimate=estimate, low=float(low), high=float(high))

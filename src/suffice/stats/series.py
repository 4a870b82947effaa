"""Changes of a number from round to round: change, gain, rounds since its best, stalling.

Every function takes values (n_questions, n_rounds) and returns the same shape. Round t depends on rounds
1..t alone, and the arithmetic rounds alike for one question and for many. NaN is undefined.

Gain and states are LoopGain's (0.6.5): its loop gain and the states of its trajectory classifier. The error
is at least 0 and should fall to 0. They are undefined in round 1. They are also undefined once a round has a
negative value or none that is finite.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

_FROM_ZERO = 2.05
"""LoopGain's gain of an error that was 0 and is not: one above its upper band."""
_LEAST = 1e-12
_FAST, _HALF, _MARGIN = 0.1, 0.5, 1.0 + 0.10
"""Errors relative to the first: converging fast, converging, diverging."""
_RIPPLE, _FLAT = 0.30, 0.05
"""Standard deviation about the trend, and its slope a round, of log10 of the error, of an oscillation."""
_PATIENCE = 3
_Z = 1.959963984540054
_T1 = math.tan(0.475 * math.pi)
"""Beyond these a slope differs from 0 at 5%, two-sided: normal, and t with one degree of freedom."""

_CONVERGING, _STALLING, _OSCILLATING, _DIVERGING = 1, 2, 3, 4


def change(values: Values) -> Values:
    """Return the value minus the previous round's; undefined in round 1."""
    with np.errstate(invalid="ignore"):  # infinity less infinity: undefined
        return np.diff(values, prepend=np.nan)


def mean_of(values: Values, rounds: int) -> Values:
    """The mean of the last ``rounds`` values; undefined before round ``rounds`` or where one of them is."""
    means = np.full(values.shape, np.nan)
    if values.shape[1] >= rounds:
        windows = np.lib.stride_tricks.sliding_window_view(values, rounds, axis=1)
        means[:, rounds - 1 :] = windows.mean(axis=-1)
    return means


def occurrences(values: Values) -> Values:
    """Count the rounds so far with this round's value; undefined where the value is."""
    counts = np.full(values.shape, np.nan)
    rows, columns = np.nonzero(~np.isnan(values))
    # equal ones of a question side by side
    order = np.lexsort((columns, values[rows, columns], rows))
    rows, columns = rows[order], columns[order]
    held, place = values[rows, columns], np.arange(len(order))
    begins = np.ones(len(order), bool)
    begins[1:] = (rows[1:] != rows[:-1]) | (held[1:] != held[:-1])
    counts[rows, columns] = place - np.maximum.accumulate(np.where(begins, place, 0)) + 1
    return counts


def running_best(values: Values, *, first: bool = False) -> NDArray[np.int16]:
    """Return the round so far with the greatest value, from 1; the latest of equals; NaN never counts."""
    best = np.full(len(values), -np.inf)
    at = np.zeros(len(values), np.int16)
    rounds = np.empty(values.shape, np.int16)
    for number, column in enumerate(values.T, start=1):
        better = column > best if first else column >= best
        best, at = np.where(better, column, best), np.where(better, number, at).astype(np.int16)
        rounds[:, number - 1] = np.where(at == 0, number, at)
    return rounds


def since_highest(values: Values) -> Values:
    """Count rounds since the first one with the highest value so far; 0: a new best.

    Undefined where the round's value is; earlier undefined rounds count as rounds without a better value.
    """
    best = np.full(len(values), -np.inf)
    at = np.zeros(len(values))
    since = np.full(values.shape, np.nan)
    for number in range(values.shape[1]):
        column = values[:, number]
        defined = np.isfinite(column)
        better = defined & (column > best)
        best, at = np.where(better, column, best), np.where(better, number, at)
        since[defined, number] = number - at[defined]
    return since


def since_lowest(values: Values) -> Values:
    """Count rounds since the first one with the lowest value so far; 0: a new lowest."""
    return since_highest(-values)


def rounds_with(values: Values) -> Values:
    """Count consecutive rounds up to this one with a value other than 0; undefined where the value is."""
    return _in_a_row(values, values != 0)


def rounds_without(values: Values) -> Values:
    """Count consecutive rounds up to this one with the value 0; undefined where the value is."""
    return _in_a_row(values, values == 0)


def _in_a_row(values: Values, counts: NDArray[np.bool_]) -> Values:
    counts = counts & ~np.isnan(values)
    numbers = np.arange(1.0, values.shape[1] + 1)
    broken = np.maximum.accumulate(np.where(counts, 0.0, numbers), axis=1)
    return np.where(np.isnan(values), np.nan, numbers - broken)


def gain(values: Values) -> Values:
    """Return a round's factor on the error, averaged half and half with the earlier rounds' gain.

    Below 1 the error falls. The first ratio counts whole; an error of 0 that stays has ratio 0.
    """
    gains = np.full(values.shape, np.nan)
    defined = _an_error(values)
    for number in range(1, values.shape[1]):
        before, now = values[:, number - 1], values[:, number]
        ratio = np.where(now == 0.0, 0.0, _FROM_ZERO)
        with np.errstate(over="ignore"):  # from next to nothing: an infinite gain
            np.divide(now, before, out=ratio, where=defined[:, number] & (before > 0.0))
        if number > 1:
            ratio = 0.5 * ratio + 0.5 * gains[:, number - 1]
        gains[:, number] = np.where(defined[:, number], ratio, np.nan)
    return gains


def diverging(values: Values) -> Values:
    """Return 1.0 where the log error rises significantly and is 10% above the first, else 0.0.

    In round 2 the 10% decide.
    """
    return _is(_DIVERGING, values)


def oscillating(values: Values) -> Values:
    """Return 1.0 where the error swings by a factor of about 2 around a flat level, else 0.0.

    From round 3 on, where it neither converges nor diverges.
    """
    return _is(_OSCILLATING, values)


def stalling(values: Values) -> Values:
    """Count consecutive rounds in which the error neither converges, diverges nor oscillates.

    The error converges at a tenth of the first one, or if its falling trend is significant or has halved it.
    It does not converge after 3 rounds without a new lowest error.
    """
    states = _states(values)
    counts = np.full(values.shape, np.nan)
    running = np.zeros(len(values))
    for number in range(1, values.shape[1]):
        state = states[:, number]
        running = np.where(state == _STALLING, running + 1.0, 0.0)
        counts[:, number] = np.where(state == 0, np.nan, running)
    return counts


def _is(state: int, values: Values) -> Values:
    states = _states(values)
    return np.where(states == 0, np.nan, states == state)


def _an_error(values: Values) -> NDArray[np.bool_]:
    """Say where all rounds so far hold a finite value of at least 0."""
    fit = np.isfinite(values) & (values >= 0.0)
    return np.logical_and.accumulate(fit, axis=1)


def _states(values: Values) -> NDArray[np.int8]:
    """Return LoopGain's state of every round, (n_questions, n_rounds); 0: undefined."""
    states = np.zeros(values.shape, np.int8)
    if values.shape[1] < 2:
        return states
    defined = _an_error(values)
    held = np.where(defined, values, 1.0)
    first = np.maximum(held[:, 0], _LEAST)
    logs = _log10(np.maximum(held, _LEAST))
    since = since_lowest(held)
    for number in range(1, values.shape[1]):
        with np.errstate(over="ignore"):
            ratio = held[:, number] / first
        if number == 1:
            low_high = [ratio < 1.0, ratio > _MARGIN]
            state = np.select(low_high, [_CONVERGING, _DIVERGING], _STALLING)
        else:
            state = _later(logs[:, : number + 1], ratio, since[:, number] < _PATIENCE)
        states[:, number] = np.where(defined[:, number], state, 0)
    return states


def _log10(values: Values) -> Values:
    """Return ``math.log10`` bit for bit, which numpy's may not be."""
    return np.array([math.log10(value) for value in values.ravel().tolist()]).reshape(values.shape)


def _later(logs: Values, ratio: Values, improving: NDArray[np.bool_]) -> NDArray[np.int8]:
    """Return the states in the last round of ``logs`` (n_questions, n), n at least 3."""
    slope, squares, significant = _trend(logs)
    falling = (slope < 0.0) & (significant | (ratio <= _HALF))
    return np.select(
        [
            improving & ((ratio <= _FAST) | falling),
            (slope > 0.0) & significant & (ratio > _MARGIN),
            (np.abs(slope) < _FLAT) & (np.sqrt(squares / logs.shape[1]) >= _RIPPLE),
        ],
        [_CONVERGING, _DIVERGING, _OSCILLATING],
        _STALLING,
    ).astype(np.int8)


def _trend(logs: Values) -> tuple[Values, Values, NDArray[np.bool_]]:
    """Return a least-squares slope, the squared residuals, and whether the slope is significant."""
    count = logs.shape[1]
    centre = (count - 1) / 2
    level = _summed(logs) / count
    spread = count * (count * count - 1) / 12  # exact, as the sum of (place - centre) ** 2 is
    slope = _summed((np.arange(count) - centre) * (logs - level[:, None])) / spread
    start = level - slope * centre
    squares = _summed((logs - (start[:, None] + slope[:, None] * np.arange(count))) ** 2)
    freedom = count - 2
    error = np.sqrt(squares / freedom / spread)
    t = np.full(len(logs), np.inf)
    np.divide(np.abs(slope), error, out=t, where=error > 0.0)
    with np.errstate(invalid="ignore"):  # infinity over infinity, where there is no error
        if freedom == 1:
            significant = t > _T1
        elif freedom == 2:
            significant = t / np.sqrt(2.0 + t * t) > 0.95
        else:
            significant = (
                t * (1.0 - 1.0 / (4.0 * freedom)) / np.sqrt(1.0 + t * t / (2.0 * freedom)) > _Z
            )
    return slope, squares, np.where(error > 0.0, significant, slope != 0.0)


def _summed(parts: Values) -> Values:
    """Sum rows from left to right, (n_questions,), as LoopGain does, by the faster of two ways."""
    if parts.shape[1] > len(parts):
        return np.asarray(np.cumsum(parts, axis=1)[:, -1])
    total = np.zeros(len(parts))
    for column in parts.T:
        total = total + column
    return total

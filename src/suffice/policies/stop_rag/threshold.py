"""The threshold a learned value of stopping must exceed, chosen on validation questions.

A difference says how much better stopping looks than going on: Q(s, STOP) - Q(s, CONT), or a logit.
The loop stops at the first round t < T_i whose difference exceeds the threshold, else in its last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from suffice.errors import UsageError
from suffice.policies.stop_rag.targets import rounds_left

_UNIT_BITS = 60  # rewards are added up as whole multiples of 2^-60, so sums do not drift
_TIE_BITS = 40  # means less than 2^-40 (1e-12) apart are equal: 1/3 + 2/3 is not 1 in floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The best of ``candidates`` thresholds: the mean reward of the rounds stopped in, and their mean."""

    threshold: float
    score: float
    mean_rounds: float
    candidates: int


def stop_rounds(differences: ArrayLike, lengths: ArrayLike, threshold: float) -> NDArray[np.int16]:
    """The first round whose difference exceeds ``threshold``, else the last, (n,), 1-based."""
    if math.isnan(threshold):
        raise UsageError("a threshold must be a number, found nan")
    differences = np.asarray(differences, np.float64)
    left = rounds_left(lengths, differences.shape)
    stops = (differences > threshold) | (left == 0)
    return np.asarray(stops.argmax(axis=1) + 1, np.int16)


def choose_threshold(
    differences: ArrayLike, rewards: ArrayLike, lengths: ArrayLike, *, ends: bool
) -> Choice:
    """The threshold with the highest mean reward; of equal ones that with the fewest mean rounds.

    Candidates are the midpoints of neighbouring differences observed at t < T_i. A midpoint that
    rounds to the upper of the two is replaced by the lower, which still lies between in the sense of
    "exceeds". Means less than 2^-40 apart count as equal. Rounds never fall as the threshold rises,
    so of equal candidates the lowest wins.

    Paper 1, section 5.3, tunes a threshold on validation questions and does not say among which;
    candidates and ties are ours. Cost O(n T log(n T)).

    >>> differences, rewards = [[0.1, 0.3, 0.0], [0.2, 0.0, 0.0]], [[0.0, 1.0, 0.5], [1.0, 0.0, 0.5]]
    >>> found = choose_threshold(differences, rewards, [3, 3], ends=False)
    >>> round(found.threshold, 3), found.score, found.mean_rounds, found.candidates
    (0.15, 1.0, 1.5, 3)
    """
    differences, rewards = (np.asarray(values, np.float64) for values in (differences, rewards))
    left = rounds_left(lengths, differences.shape)
    observed = np.unique(_checked(differences, rewards, left))
    thresholds = _midpoints(observed)
    if ends or not len(thresholds):
        thresholds = np.concatenate([_below(observed), thresholds, observed[-1:] + 1.0])
    totals = _totals(differences, rewards, left, thresholds)
    tie = len(left) << (_UNIT_BITS - _TIE_BITS)
    # each raises the rounds of the one before, or changes nothing
    threshold = float(thresholds[np.flatnonzero(totals > totals.max() - tie)[0]])
    stops = stop_rounds(differences, lengths, threshold)
    earned = rewards[np.arange(len(stops)), stops - 1]
    return Choice(
        threshold=threshold,
        score=math.fsum(earned.tolist()) / len(stops),
        mean_rounds=float(stops.mean(dtype=np.float64)),
        candidates=len(thresholds),
    )


def _checked(
    differences: NDArray[np.float64], rewards: NDArray[np.float64], left: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The differences of all decisions, (n_decisions,)."""
    if rewards.shape != differences.shape:
        raise UsageError(
            f"rewards must have the shape {differences.shape} of the differences, found {rewards.shape}"
        )
    decides = left > 0
    if not decides.any():
        raise UsageError(
            "no trajectory has two rounds, so there is nothing to decide; choose a threshold on "
            "questions recorded for at least 2 rounds"
        )
    # beyond the largest number itself no threshold is left
    beyond = decides & ~(np.abs(differences) < np.finfo(np.float64).max)
    if beyond.any():
        row, column = np.argwhere(beyond)[0]
        raise UsageError(
            f"a difference must be finite, found {differences[row, column]} in round {column + 1} of "
            f"trajectory {row} (counted from 0)"
        )
    outside = (left >= 0) & ~((rewards >= 0.0) & (rewards <= 1.0))
    if outside.any():
        row, column = np.argwhere(outside)[0]
        raise UsageError(
            f"a reward must lie in [0, 1], found {rewards[row, column]} in round {column + 1} of "
            f"trajectory {row} (counted from 0); leave out questions that are not usable"
        )
    return differences[decides]


def _midpoints(observed: NDArray[np.float64]) -> NDArray[np.float64]:
    """One threshold between each two neighbours of sorted distinct numbers: at or above the lower one."""
    low, high = observed[:-1], observed[1:]
    middle = low / 2 + high / 2  # the sum itself may overflow
    return np.where(middle < high, middle, low)


def _below(observed: NDArray[np.float64]) -> NDArray[np.float64]:
    """A finite threshold that the lowest of these exceeds, (1,)."""
    return np.minimum(observed[:1] - 1.0, np.nextafter(observed[:1], -np.inf))


def _totals(
    differences: NDArray[np.float64],
    rewards: NDArray[np.float64],
    left: NDArray[np.int64],
    thresholds: NDArray[np.float64],
) -> NDArray[np.object_]:
    """Total reward under each of the sorted thresholds in units of 2^-60, (n_thresholds,) of int."""
    decides = left > 0
    known = np.where(decides, differences, -np.inf)
    highest = np.maximum.accumulate(known, axis=1)
    leads = decides.copy()
    leads[:, 1:] &= known[:, 1:] > highest[:, :-1]
    units = np.rint(np.where(left >= 0, rewards, 0.0) * 2.0**_UNIT_BITS).astype(np.int64)
    following = units[left == 0]
    gains = np.zeros(units.shape, np.int64)
    for column in range(units.shape[1] - 1, -1, -1):
        here = leads[:, column]
        gains[here, column] = (following - units[:, column])[here]
        following = np.where(here, units[:, column], following)
    passed = known[leads]
    order = np.argsort(passed)
    # int64 would overflow from the ninth reward of 1
    total = np.cumsum(
        np.concatenate([[int(following.astype(object).sum())], gains[leads][order].astype(object)])
    )
    return np.asarray(total[np.searchsorted(passed[order], thresholds, side="right")])

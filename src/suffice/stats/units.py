"""Means and weights of observations that count as one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Units = NDArray[np.intp]


def numbered_units(keys: Array | Units) -> Units:
    """Number units from 0 by first occurrence, (n,), given a number of each (n,).

    >>> numbered_units(np.array([7.0, 3.0, 7.0, 5.0])).tolist()
    [0, 1, 0, 2]
    """
    _, first, unit = np.unique(keys, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.intp)
    number[np.argsort(first)] = np.arange(len(first))
    return number[unit.reshape(-1)]


def per_unit(values: Array, units: Units) -> Array:
    """Sum up observations (n, ...) unit by unit, (n_units, ...), by first occurrence.

    The plain mean of the result is the mean over observations, and its spread that of independent units of
    unequal size (the linearized ratio of sums to sizes). Where every unit is one observation it is the values
    themselves, to the last bit.

    >>> per_unit(np.array([1.0, 4.0, 2.0]), np.array([7, 3, 7])).round(3).tolist()
    [1.222, 3.444]
    """
    unit = numbered_units(units)
    count = int(unit.max(initial=-1)) + 1
    if count == len(values):
        return values
    mean = values.mean(axis=0)
    return np.asarray(mean + unit_sums(values - mean, unit) * (count / len(values)))


def equally_many(units: Units, weights: Array | None = None) -> float:
    """Return how many units of equal weight say as much as these (Kish 1965), by weights of questions (n,).

    >>> equally_many(np.array([1, 2, 3])), round(equally_many(np.array([1, 1, 1, 2])), 3)
    (3.0, 1.6)
    """
    sums = np.bincount(numbered_units(units), weights)
    return float(sums.sum() ** 2 / max((sums**2).sum(), 1e-300))


def unit_sums(values: Array, units: Units) -> Array:
    """Sum the observations (n, ...) of units numbered from 0, (n_units, ...)."""
    order = np.argsort(units, kind="stable")
    sizes = np.bincount(units)
    return np.asarray(np.add.reduceat(values[order], np.append(0, np.cumsum(sizes)[:-1]), axis=0))


def drawn_units(units: Units, count: int, seed: int) -> Mask:
    """Say which observations (n,) are drawn if whole units are, until there are ``count``."""
    unit = numbered_units(units)
    sizes = np.bincount(unit)
    order = np.random.default_rng(seed).permutation(len(sizes))
    before = np.cumsum(sizes[order]) - sizes[order]
    chosen = np.zeros(len(sizes), bool)
    chosen[order[before < count]] = True
    return np.asarray(chosen[unit])


def lots(key: str, question_ids: Sequence[str]) -> Array:
    """Draw a uniform number in [0, 1) per question, (n_questions,), by hash of key and id."""
    if not all(question_ids):
        raise UsageError(
            "this policy decides by a random draw of each question's own and needs to know whose: "
            "start(question) with the question's text, or start(question_id=...)"
        )
    before, sha256 = f"{key}:".encode(), hashlib.sha256
    digests = b"".join([sha256(before + name.encode()).digest()[:8] for name in question_ids])
    return np.asarray((np.frombuffer(digests, ">u8") >> 11) / 2.0**53, np.float64)

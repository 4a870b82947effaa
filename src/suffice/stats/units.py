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


def unit_weights(units: Units) -> Array:
    """Weight observations so that every unit counts 1, (n,): 1 over its unit's size.

    >>> unit_weights(np.array([0, 1, 0, 2])).tolist()
    [0.5, 1.0, 0.5, 1.0]
    """
    _, unit, sizes = np.unique(units, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / sizes[unit.reshape(-1)])


def unit_means(values: Array, units: Units) -> Array:
    """Average the observations (n, ...) of each unit, (n_units, ...), by first occurrence.

    Where every unit is one observation they are the values themselves, to the last bit.

    >>> unit_means(np.array([1.0, 4.0, 2.0]), np.array([7, 3, 7])).tolist()
    [1.5, 4.0]
    """
    unit = numbered_units(units)
    sizes = np.bincount(unit)
    if len(sizes) == len(values):
        return values
    order = np.argsort(unit, kind="stable")
    sums = np.add.reduceat(values[order], np.append(0, np.cumsum(sizes)[:-1]), axis=0)
    return np.asarray(sums / sizes.reshape(-1, *[1] * (values.ndim - 1)))


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

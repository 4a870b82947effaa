"""Many tests at once: which hypotheses may be rejected together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError

__all__ = ["fixed_sequence", "holm"]


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Holm's step-down adjusted p-values, (n,), in the order given.

    Rejecting where they are at most delta keeps the chance of any false rejection at most delta,
    however the tests depend on each other (Holm 1979).

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise UsageError("p-values must lie in [0, 1]")
    order = np.argsort(values, kind="stable")
    left = len(values) - np.arange(len(values))
    stepped = np.maximum.accumulate(np.minimum(values[order] * left, 1.0))
    adjusted = np.empty_like(values)
    adjusted[order] = stepped
    return adjusted


def fixed_sequence(p_values: NDArray[np.float64], delta: float) -> NDArray[np.bool_]:
    """Which hypotheses are rejected when tested in the order given until the first failure, (n,).

    The chance of any false rejection is at most delta, each test at the full level; the order must
    not depend on the data of the tests (Angelopoulos et al. 2021, "Learn then Test", section 3).

    >>> fixed_sequence(np.array([0.01, 0.04, 0.2, 0.001]), 0.05).tolist()
    [True, True, False, False]
    """
    return np.logical_and.accumulate(np.asarray(p_values, np.float64) <= delta)

"""Oracles: what a policy that saw the gold answers would have done. Upper bounds, never deployable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from suffice.policies.outcomes import Outcomes

__all__ = ["ORACLES", "oracle_em", "oracle_f1"]


def oracle_em(outcomes: Outcomes, last: NDArray[np.int16]) -> NDArray[np.int16]:
    """The earliest round with an exact match, else the last recorded one (paper 0, text)."""
    right = outcomes.em == 1.0
    return np.where(right.any(axis=1), right.argmax(axis=1) + 1, last).astype(np.int16)


def oracle_f1(outcomes: Outcomes, last: NDArray[np.int16]) -> NDArray[np.int16]:
    """The first round that reaches the question's best F1 (paper 0, tables).

    An all-wrong question stops at round 1; an unlabelled one at its last round.
    """
    scored = np.where(np.isnan(outcomes.f1), -1.0, outcomes.f1)
    return np.where(outcomes.labelled, scored.argmax(axis=1) + 1, last).astype(np.int16)


ORACLES: Mapping[str, Callable[[Outcomes, NDArray[np.int16]], NDArray[np.int16]]] = (
    MappingProxyType({"oracle-em": oracle_em, "oracle-f1": oracle_f1})
)

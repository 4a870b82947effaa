"""What a figure does over repetitions of an experiment: its mean, least and greatest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Band:
    """Mean, least and greatest over repetitions on the same questions; no confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def estimate(self) -> float:
        """The mean, as a table names it."""
        return self.mean

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Band | None:
        """The band of values; ``None`` where one is undefined."""
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        return cls(float(np.mean(known)), min(known), max(known))


def seeds_named(first: int, count: int) -> str:
    """The seeds of repetitions, each 1 more than the one before.

    >>> seeds_named(42, 1), seeds_named(42, 3)
    ('seed 42', 'seeds 42 to 44')
    """
    return f"seed {first}" if count == 1 else f"seeds {first} to {first + count - 1}"

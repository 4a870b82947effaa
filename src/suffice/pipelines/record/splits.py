"""Which split a question falls in: exact shares, stable when more questions follow."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from suffice.errors import UsageError


def parse_splits(text: str) -> dict[str, float]:
    """``tune=0.4,eval=0.6`` as shares that sum to 1.

    >>> parse_splits("tune=0.4,eval=0.6")
    {'tune': 0.4, 'eval': 0.6}
    """
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        try:
            value = float(share)
        except ValueError:
            value = -1.0
        if not name.strip() or not 0.0 <= value <= 1.0 or name.strip() in shares:
            raise UsageError(f"--splits {text!r}: expected name=share,..., as in tune=0.4,eval=0.6")
        shares[name.strip()] = value
    if abs(sum(shares.values()) - 1.0) > 1e-9:
        raise UsageError(f"--splits {text!r}: the shares sum to {sum(shares.values()):g}, not to 1")
    return shares


def assign_splits(count: int, shares: Mapping[str, float], *, seed: int) -> list[str]:
    """A split for each of the first ``count`` questions, in order.

    Each goes to the split furthest behind its share, with a seeded disturbance so that the pattern
    cannot fall in step with the data's own. Every prefix holds each share to within about one
    question, and the first assignments do not depend on how many follow.
    """
    names = list(shares)
    targets = np.array([shares[name] for name in names])
    taken = np.zeros(len(names))
    disturbance = np.random.default_rng(seed).uniform(-0.5, 0.5, size=(count, len(names)))
    assigned: list[str] = []
    for number in range(count):
        behind = targets * (number + 1) - taken + disturbance[number]
        pick = int(np.where(targets > 0, behind, -np.inf).argmax())
        taken[pick] += 1
        assigned.append(names[pick])
    return assigned

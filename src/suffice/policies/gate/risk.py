"""How risky a step is, and how confident that makes the gate (paper 4, Eqs. 13-17)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from suffice.errors import UsageError
from suffice.stats.logistic import sigmoid


def remaining_share(done: int, total: int) -> float:
    """DR: the share of a task's steps still to come (Eq. 15), in [0, 1].

    1 before the first step, ``1 / total`` before the last, 0 for a plan as long as the task or longer.
    """
    if total < 1:
        raise UsageError(f"a task has at least one step, found total_steps={total}")
    return max(0, total - done) / total


def retrieval_depth(confidence: float, tau_low: float, k_max: int) -> int:
    """How many documents a retrieval asks for: more the lower the confidence, in 1..``k_max``.

    ``1 + round((k_max - 1) (1 - c / tau_low))``; the paper says only that it grows as confidence falls,
    to at most 6. 1 where confidence reaches ``tau_low``.

    >>> [retrieval_depth(c, 0.25, 6) for c in (0.25, 0.12, 0.02)]
    [1, 4, 6]
    """
    if tau_low <= 0.0:
        return 1
    grown = 1 + round((k_max - 1) * (1.0 - confidence / tau_low))
    return min(k_max, max(1, grown))


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskModel:
    """R = w1 (1 - SC) + w2 CD + w3 DR and c = sigmoid(b - R) (Eqs. 16 and 17)."""

    disagreement: float = 1.0
    contradiction: float = 2.0
    remaining: float = 1.0
    intercept: float = 0.0

    def __post_init__(self) -> None:
        for name in ("disagreement", "contradiction", "remaining"):
            value = getattr(self, name)
            if not 0.0 <= value < math.inf:
                raise UsageError(f"the risk weight {name} must be at least 0, found {value!r}")
        if not math.isfinite(self.intercept):
            raise UsageError(f"the intercept must be a finite number, found {self.intercept!r}")

    def risk(self, *, agreement: float, contradiction: float, remaining: float) -> float:
        """R, at least 0, at most :attr:`largest`; SC, CD and DR lie in [0, 1]."""
        return (
            self.disagreement * (1.0 - agreement)
            + self.contradiction * contradiction
            + self.remaining * remaining
        )

    def confidence(self, risk: float) -> float:
        """C of a risk, in (0, 1), high for safe; NaN stays NaN."""
        return sigmoid(self.intercept - risk)

    @property
    def largest(self) -> float:
        """The largest risk: candidates differ, one contradicts the plan, all steps are to come."""
        return self.disagreement + self.contradiction + self.remaining

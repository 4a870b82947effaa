"""Settings of a gate: its risk model, its thresholds or costs, and its limits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from suffice.errors import SufficeWarning, UsageError
from suffice.stats.logistic import sigmoids
from suffice.stats.units import Array

_Number = TypeVar("_Number", float, Array)


def remaining_share(done: int, total: int) -> float:
    """Return DR, the remaining share of a task's steps (Eq. 15), in [0, 1]."""
    if total < 1:
        raise UsageError(f"a task has at least one step, found total_steps={total}")
    return max(0, total - done) / total


def retrieval_depth(confidence: float, tau_low: float, k_max: int) -> int:
    """Return the number of documents to retrieve, 1..``k_max``: more for a lower confidence."""
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

    def risk(self, *, agreement: _Number, contradiction: _Number, remaining: float) -> _Number:
        """Return R, at least 0, for numbers or arrays; SC, CD and DR lie in [0, 1]."""
        return (
            self.disagreement * (1.0 - agreement)
            + self.contradiction * contradiction
            + self.remaining * remaining
        )

    def values(self, agreement: float, contradiction: float, remaining: float) -> dict[str, float]:
        """Return SC, CD, DR, the risk and the confidence by the names of signals."""
        risk = self.risk(agreement=agreement, contradiction=contradiction, remaining=remaining)
        return {
            "candidate_agreement": agreement,
            "contradiction": contradiction,
            "remaining_share": remaining,
            "risk": risk,
            "confidence": self.confidence(risk),
        }

    def confidence(self, risk: float) -> float:
        """Return c of a risk, in (0, 1), high for safe; NaN stays NaN."""
        return float(sigmoids(np.array(self.intercept - risk)))

    @property
    def formula(self) -> str:
        return (
            f"sigmoid({self.intercept:.3g} - {self.disagreement:.3g} (1 - SC) - "
            f"{self.contradiction:.3g} CD - {self.remaining:.3g} DR)"
        )


Order = Literal["retrieve-first", "replan-first"]
ORDERS: tuple[Order, ...] = get_args(Order)
MARKERS = "markers"
"""The published detector of contradictions, whose verdict is 0 or 1."""
PUBLISHED_LOW, PUBLISHED_HIGH = 0.25, 0.75
BUDGET = 3
"""Default number of retrievals of a task."""
MOST_STEPS = 6
"""T_max: default number of decisions of a run, and of steps of a task."""


class PlanAction(StrEnum):
    """An action of a planning agent on its next step (Eq. 2)."""

    EXECUTE = "EXECUTE"
    RETRIEVE = "RETRIEVE"
    REPLAN = "REPLAN"
    ASK = "ASK"
    STOP = "STOP"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCosts:
    """Costs of actions, above 0 in any one unit (Eqs. 5 and 12).

    ``retrieval`` is c_r, ``failure`` L_f, the cost of a failed plan. ``ask`` and ``stop`` are the costs of
    asking the user and of ending early; ``None``: as a retrieval, and never worth it.

    >>> GateCosts(retrieval=1, failure=4).tau_low
    0.75
    """

    retrieval: float
    failure: float
    ask: float | None = None
    stop: float | None = None

    def __post_init__(self) -> None:
        for name in ("retrieval", "failure", "ask", "stop"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < math.inf:
                raise UsageError(f"the cost {name} must be above 0, found {value!r}")

    @property
    def tau_low(self) -> float:
        """Retrieve below it: P(fail) L_f > c_r exactly where c < 1 - c_r / L_f (Eq. 12)."""
        return 1.0 - self.retrieval / self.failure

    @property
    def tau_high(self) -> float:
        """Execute from here on: asking would cost more than the expected failure."""
        return self.tau_low if self.ask is None else 1.0 - self.ask / self.failure

    @property
    def tau_stop(self) -> float | None:
        """End early up to here; ``None``: never."""
        return None if self.stop is None else 1.0 - self.stop / self.failure


DEFAULT_COSTS = GateCosts(retrieval=1.0, failure=2.0)
"""The default: act if more likely right than wrong."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    action: PlanAction
    why: str

    def __str__(self) -> str:
        return f"{self.action} can never be chosen: {self.why}"


@dataclass(frozen=True, kw_only=True)
class GateSettings:
    """The numbers of a gate. :meth:`published` has the paper's; fit corrected ones on traces.

    ``risk`` holds weights and intercept. RETRIEVE where c <= ``tau_low``, EXECUTE where c >= ``tau_high``
    (Eq. 18), in any order of size. Otherwise STOP where c <= ``tau_stop``, else ASK; ``None``: always ASK,
    as in Algorithm 1. REPLAN where CD > ``kappa``. ``budget`` is B, the retrievals of a task; ``None``: any
    number. A retrieval at step t allows the next one at step t + ``cooldown``, of at most ``k_max``
    documents (the paper's 6). The paper leaves kappa, B and cool-down open; ours: 0.5, 3 and 1.

    ``order``: ``retrieve-first`` is Algorithm 1, ``replan-first`` is Eq. 18. They differ where a candidate
    contradicts the plan at low confidence. A blocked retrieval leads to the next test in both.
    ``revises``: RETRIEVE and an answered ASK draw the step again with the new information, and REPLAN also
    drops the contradicted step. Published: they append the first candidate. ``detector`` finds
    contradictions: ``markers`` (published), or the user's name of another. ``costs``, ``preset`` and
    ``fitted_on`` tell the origin of the numbers; they decide nothing.

    Numbers out of range raise a UsageError that names them. Building warns of :attr:`unreachable` actions,
    unless STOP without ``tau_stop`` is the only one.
    """

    risk: RiskModel = field(default_factory=RiskModel)
    tau_low: float = PUBLISHED_LOW
    tau_high: float = PUBLISHED_HIGH
    tau_stop: float | None = None
    kappa: float = 0.5
    budget: int | None = BUDGET
    cooldown: int = 1
    k_max: int = 6
    order: Order = "retrieve-first"
    revises: bool = False
    detector: str = MARKERS
    costs: GateCosts | None = None
    preset: str | None = None
    fitted_on: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("tau_low", "tau_high", "tau_stop", "kappa"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise UsageError(f"{name} must be a finite number, found {value!r}")
        for name, low in (("budget", 0), ("cooldown", 0), ("k_max", 1)):
            value = getattr(self, name)
            if value is not None and value < low:
                raise UsageError(f"{name} must be at least {low}, found {value!r}")
        if self.order not in ORDERS:
            raise UsageError(f"order must be one of {', '.join(ORDERS)}, found {self.order!r}")
        never = self.unreachable
        # Algorithm 1 has no STOP: a gate without tau_stop leaves it out on purpose
        if any(
            unreached.action is not PlanAction.STOP or self.tau_stop is not None
            for unreached in never
        ):
            warnings.warn("; ".join(map(str, never)), SufficeWarning, stacklevel=3)

    @classmethod
    def published(cls, **changes: Any) -> GateSettings:
        """Return the paper's numbers with changes; ``costs`` replace the thresholds 0.25 and 0.75.

        Without an intercept c < 0.5, so EXECUTE is out of reach.
        """
        return _with_costs({"preset": "published", **changes})

    @classmethod
    def corrected(cls, risk: RiskModel, costs: GateCosts, **changes: Any) -> GateSettings:
        """Return a fitted risk model with thresholds from costs and actions that revise the plan."""
        return _with_costs(
            {"risk": risk, "costs": costs, "revises": True, "preset": "corrected", **changes}
        )

    @property
    def unreachable(self) -> tuple[Unreachable, ...]:
        """Actions out of reach in runs of at most :data:`MOST_STEPS` steps."""
        return unreachable(self)

    @property
    def summary(self) -> str:
        return (
            f"c = {self.risk.formula}; tau_low {self.tau_low:.4g}, tau_high {self.tau_high:.4g}, "
            f"kappa {self.kappa:.4g}, {self.order}"
        )

    def to_json(self) -> dict[str, Any]:
        held = asdict(self)
        weights = held.pop("risk")
        return {"weights": weights, "intercept": weights.pop("intercept"), **held}


def _with_costs(fields: dict[str, Any]) -> GateSettings:
    costs = fields.get("costs")
    if costs is None:
        return GateSettings(**fields)
    from_costs = {name: getattr(costs, name) for name in ("tau_low", "tau_high", "tau_stop")}
    return GateSettings(**{**from_costs, **fields})


def chosen_action(
    settings: GateSettings, confidence: float, contradiction: float, *, may_retrieve: bool
) -> PlanAction:
    """Return the action for a confidence and a contradiction (Algorithm 1, or Eq. 18 by ``order``)."""
    conflict = contradiction > settings.kappa
    wanted = confidence <= settings.tau_low
    if settings.order == "replan-first" and conflict:
        return PlanAction.REPLAN
    if wanted and may_retrieve:
        return PlanAction.RETRIEVE
    if conflict:
        return PlanAction.REPLAN
    if confidence >= settings.tau_high:
        return PlanAction.EXECUTE
    if settings.tau_stop is not None and confidence <= settings.tau_stop:
        return PlanAction.STOP
    return PlanAction.ASK


def action_reason(action: PlanAction, seen: Mapping[str, float], settings: GateSettings) -> str:
    """Give the reason of an action of :func:`chosen_action`, with the numbers."""
    confidence = f"confidence {seen['confidence']:.4g}"
    return {
        PlanAction.RETRIEVE: f"{confidence} is at or below tau_low {settings.tau_low:g}",
        PlanAction.REPLAN: f"contradiction {seen['contradiction']:.4g} is above kappa {settings.kappa:g}",
        PlanAction.EXECUTE: f"{confidence} reaches tau_high {settings.tau_high:g}",
        PlanAction.ASK: f"{confidence} is below tau_high {settings.tau_high:g}",
        PlanAction.STOP: f"{confidence} is at or below tau_stop",
    }[action]


def unreachable(
    settings: GateSettings, steps: int = MOST_STEPS, *, blocks: bool = True
) -> tuple[Unreachable, ...]:
    """Return the actions that no state and no history of retrievals leads to, with reasons.

    SC and CD lie in [0, 1]; CD of the ``markers`` is 0 or 1. A run makes at most ``steps`` decisions, and the
    plan holds fewer steps at each, so DR lies in [1 / ``steps``, 1], also in longer tasks. ``blocks``: budget
    and cool-down apply.
    """
    kappa, model = settings.kappa, settings.risk
    graded = settings.detector != MARKERS
    conflicts = {0.0, 1.0}
    if graded:
        conflicts |= {at for at in (kappa, math.nextafter(kappa, 2.0)) if 0.0 <= at <= 1.0}

    def confidence(agreement: float, conflict: float, remaining: float) -> float:
        return model.confidence(
            model.risk(agreement=agreement, contradiction=conflict, remaining=remaining)
        )

    spans: dict[float, tuple[float, float]] = {}  # confidences by the least contradiction they have
    for above in (False, True):
        held = sorted(at for at in conflicts if (at > kappa) is above)
        pairs = [(held[0], held[-1])] if graded and held else [(at, at) for at in held]
        for least, most in pairs:
            spans[least] = confidence(0.0, most, 1.0), confidence(1.0, least, 1.0 / steps)
    limits = [t for t in (settings.tau_low, settings.tau_high, settings.tau_stop) if t is not None]
    beside = [math.nextafter(limit, side) for limit in limits for side in (-math.inf, math.inf)]
    allowed = not blocks or settings.budget != 0
    can_block = blocks and (settings.budget is not None or settings.cooldown > 1)
    permissions = [may for may, possible in ((True, allowed), (False, can_block)) if possible]
    reached = {
        chosen_action(settings, sure, conflict, may_retrieve=permission)
        for conflict, (low, high) in spans.items()
        for sure in (low, high, *(at for at in (*limits, *beside) if low < at < high))
        for permission in permissions
    }
    within = f"in a run of at most {steps} steps " if model.remaining > 0.0 else ""
    lows, highs = zip(*spans.values(), strict=True)
    why = (
        f"{within}confidence lies in [{min(lows):.3g}, {max(highs):.3g}]; tau_low is "
        f"{settings.tau_low:g}, tau_high {settings.tau_high:g}, kappa {kappa:g}"
    )
    known = {PlanAction.RETRIEVE: "the retrieval budget is 0"} if settings.budget == 0 else {}
    if settings.tau_stop is None:
        known[PlanAction.STOP] = "tau_stop is not set"
    return tuple(
        Unreachable(action, known.get(action, why))
        for action in PlanAction
        if action not in reached
    )

"""What a gate goes by: its risk model, its thresholds or the costs they stand for, and its limits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, get_args

from suffice.errors import SufficeWarning, UsageError
from suffice.policies.gate.risk import RiskModel, remaining_share

Order = Literal["retrieve-first", "replan-first"]
ORDERS: tuple[Order, ...] = get_args(Order)
MARKERS = "markers"
"""The published detector of contradictions, whose verdict is 0 or 1."""
PUBLISHED_LOW, PUBLISHED_HIGH = 0.25, 0.75
BUDGET = 3
"""Retrievals a task may make where nothing else is said."""
MOST_STEPS = 6
"""T_max: decisions of a run, and steps of a task, where nothing else is said."""


class PlanAction(StrEnum):
    """What a planning agent may do with its next step (Eq. 2)."""

    EXECUTE = "EXECUTE"
    RETRIEVE = "RETRIEVE"
    REPLAN = "REPLAN"
    ASK = "ASK"
    STOP = "STOP"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCosts:
    """What acting costs, in any one unit (Eqs. 5 and 12).

    Parameters
    ----------
    retrieval
        c_r, of looking something up, above 0.
    failure
        L_f, of a plan that fails, above 0.
    ask, stop
        Of asking the user, and of ending early; ``None``: as a retrieval, and never worth it.

    Raises
    ------
    UsageError
        For a cost that is not above 0.

    Examples
    --------
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
        """Execute from here on: asking would cost more than the failure it may avert."""
        return self.tau_low if self.ask is None else 1.0 - self.ask / self.failure

    @property
    def tau_stop(self) -> float | None:
        """End early up to here."""
        return None if self.stop is None else 1.0 - self.stop / self.failure

    def to_json(self) -> dict[str, float | None]:
        """Strict JSON."""
        names = ("retrieval", "failure", "ask", "stop")
        return {name: getattr(self, name) for name in names}


DEFAULT_COSTS = GateCosts(retrieval=1.0, failure=2.0)
"""Where nothing else is said: act when more likely right than wrong."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """An action that a gate can never choose, and why."""

    action: PlanAction
    why: str

    def __str__(self) -> str:
        return f"{self.action} can never be chosen: {self.why}"


@dataclass(frozen=True, kw_only=True)
class GateSettings:
    """A gate's numbers. :meth:`published` are the paper's; fit corrected ones on traces.

    Parameters
    ----------
    risk
        Weights and intercept.
    tau_low, tau_high
        RETRIEVE where c <= tau_low, EXECUTE where c >= tau_high (Eq. 18), in any order of size.
    tau_stop
        Of what is left, STOP where c <= tau_stop, else ASK; ``None``: always ASK, as in Algorithm 1.
    kappa
        REPLAN where CD > kappa. The paper leaves it open; ours: 0.5.
    budget
        Retrievals a task may make, B; ``None``: any number. Open in the paper; ours: 3.
    cooldown
        A retrieval at step t allows the next one at step t + cooldown. Open in the paper; ours: 1.
    k_max
        Documents a retrieval asks for at most; the paper's: 6.
    order
        ``retrieve-first`` is Algorithm 1, ``replan-first`` is Eq. 18: they differ where a candidate
        contradicts the plan and confidence is low. A retrieval that is blocked falls through to the
        next test in both.
    revises
        Whether actions change the plan as their names say: RETRIEVE and an answered ASK draw the step
        again with what was learnt, REPLAN drops the contradicted step and draws again. Published:
        all of them append the first candidate as it was drawn.
    detector
        Who finds contradictions: ``markers`` (published), or what the user calls another.
    costs
        What the thresholds were made of; decides nothing.
    preset, fitted_on
        Where the numbers come from; decide nothing.

    Raises
    ------
    UsageError
        For numbers out of range, naming them.

    Warns
    -----
    SufficeWarning
        When built, naming actions that can never be chosen, unless STOP without ``tau_stop`` is the only
        one; :attr:`unreachable` keeps them.
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
        """The paper's numbers, or these changed: no intercept, so that c < 0.5 and EXECUTE is out of reach.

        ``costs`` among the changes give the thresholds in place of 0.25 and 0.75.
        """
        return _with_costs({"preset": "published", **changes})

    @classmethod
    def corrected(cls, risk: RiskModel, costs: GateCosts, **changes: Any) -> GateSettings:
        """A fitted risk model, thresholds from costs, and actions that do what they are called."""
        return _with_costs(
            {"risk": risk, "costs": costs, "revises": True, "preset": "corrected", **changes}
        )

    @property
    def unreachable(self) -> tuple[Unreachable, ...]:
        """Actions that no state of a run of at most :data:`MOST_STEPS` steps leads to."""
        return unreachable(self)

    @property
    def summary(self) -> str:
        """The numbers in one line."""
        model = self.risk
        return (
            f"c = sigmoid({model.intercept:.3g} - {model.disagreement:.3g} (1 - SC) - "
            f"{model.contradiction:.3g} CD - {model.remaining:.3g} DR); tau_low {self.tau_low:.4g}, "
            f"tau_high {self.tau_high:.4g}, kappa {self.kappa:.4g}, {self.order}"
        )

    def to_json(self) -> dict[str, Any]:
        """Strict JSON; what a policy file holds of it."""
        model = self.risk
        return {
            "weights": {
                "disagreement": model.disagreement,
                "contradiction": model.contradiction,
                "remaining": model.remaining,
            },
            "intercept": model.intercept,
            "tau_low": self.tau_low,
            "tau_high": self.tau_high,
            "tau_stop": self.tau_stop,
            "kappa": self.kappa,
            "budget": self.budget,
            "cooldown": self.cooldown,
            "k_max": self.k_max,
            "order": self.order,
            "revises": self.revises,
            "detector": self.detector,
            "costs": None if self.costs is None else self.costs.to_json(),
            "preset": self.preset,
            "fitted_on": dict(self.fitted_on),
        }


def _with_costs(fields: dict[str, Any]) -> GateSettings:
    costs = fields.get("costs")
    if costs is None:
        return GateSettings(**fields)
    from_costs = {name: getattr(costs, name) for name in ("tau_low", "tau_high", "tau_stop")}
    return GateSettings(**{**from_costs, **fields})


@dataclass(frozen=True, slots=True)
class _Span:
    """Confidences from ``low`` to ``high``; without ``closed``, only below ``high``."""

    low: float
    high: float
    closed: bool = True

    def reaches(self, least: float) -> bool:
        """Whether some confidence is at least that."""
        return self.high >= least if self.closed else self.high > least

    def exceeds(self, floor: float) -> bool:
        """Whether some confidence is above that."""
        return self.high > floor


def unreachable(settings: GateSettings, steps: int = MOST_STEPS) -> tuple[Unreachable, ...]:
    """Actions that no state of a run and no history of retrievals leads to, with reasons.

    SC and CD lie in [0, 1], with the ``markers`` CD is 0 or 1. A run makes at most ``steps`` decisions,
    each while a step is still to come: fewer than ``steps`` are in the plan, so that a task of N steps
    has DR >= 1 / N where N <= ``steps`` and DR >= (N - ``steps`` + 1) / N where it is longer. Both are at
    least 1 / ``steps``, and DR lies in [1 / ``steps``, 1].
    """
    model, kappa = settings.risk, settings.kappa
    graded = settings.detector != MARKERS
    quiet = min(kappa, 1.0) if graded else float(kappa >= 1.0)  # largest CD that is no conflict
    calm_risk = model.disagreement + model.contradiction * max(quiet, 0.0) + model.remaining
    to_come = model.remaining * remaining_share(steps - 1, steps)
    calm = _Span(model.confidence(calm_risk), model.confidence(to_come)) if kappa >= 0.0 else None
    conflict = None
    if kappa < 1.0:
        least = max(kappa, 0.0) if graded or kappa < 0.0 else 1.0
        conflict = _Span(
            model.confidence(model.largest),
            model.confidence(model.contradiction * least + to_come),
            closed=not graded or kappa < 0.0 or model.contradiction == 0.0,
        )
    within = f"in a run of at most {steps} steps " if model.remaining > 0.0 else ""
    reasons = {
        PlanAction.RETRIEVE: _no_retrieve(settings, calm, conflict),
        PlanAction.REPLAN: _no_replan(settings, conflict, within),
        PlanAction.EXECUTE: _no_execute(settings, calm, within),
        **_no_rest(settings, calm, within),
    }
    return tuple(Unreachable(action, why) for action, why in reasons.items() if why is not None)


def _always_conflict(settings: GateSettings) -> str:
    return f"every contradiction score is above kappa {settings.kappa:g}, so REPLAN comes before"


def _can_block(settings: GateSettings) -> bool:
    return settings.budget is not None or settings.cooldown > 1


def _no_retrieve(settings: GateSettings, calm: _Span | None, conflict: _Span | None) -> str | None:
    if settings.budget == 0:
        return "the retrieval budget is 0"
    spans = [calm] if settings.order == "replan-first" else [calm, conflict]
    lows = [span.low for span in spans if span is not None]
    if not lows:
        return _always_conflict(settings)
    if min(lows) > settings.tau_low:
        return f"confidence is at least {min(lows):.3g}, above tau_low {settings.tau_low:g}"
    return None


def _no_replan(settings: GateSettings, conflict: _Span | None, within: str) -> str | None:
    if conflict is None:
        return f"no contradiction score is above kappa {settings.kappa:g}"
    passed_on = settings.order == "replan-first" or _can_block(settings)
    if not passed_on and not conflict.exceeds(settings.tau_low):
        return (
            f"{within}a contradiction leaves confidence at or below tau_low {settings.tau_low:g}, "
            "and RETRIEVE, which is never blocked, comes first"
        )
    return None


def _no_execute(settings: GateSettings, calm: _Span | None, within: str) -> str | None:
    if calm is None:
        return _always_conflict(settings)
    if not calm.reaches(settings.tau_high):
        return (
            f"{within}confidence is at most {calm.high:.3g}, below tau_high {settings.tau_high:g}"
        )
    if not _can_block(settings) and not calm.exceeds(settings.tau_low):
        return (
            f"{within}confidence never exceeds tau_low {settings.tau_low:g}, and RETRIEVE is never "
            "blocked"
        )
    return None


def _no_rest(
    settings: GateSettings, calm: _Span | None, within: str
) -> dict[PlanAction, str | None]:
    """ASK and STOP: what is neither retrieved for, nor replanned, nor executed."""
    ask, stop = PlanAction.ASK, PlanAction.STOP
    unset = None if settings.tau_stop is not None else "tau_stop is not set"
    if calm is None:
        return {ask: _always_conflict(settings), stop: _always_conflict(settings)}
    # below tau_high, and above tau_low where a retrieval is never blocked
    above = -math.inf if _can_block(settings) else settings.tau_low
    left = (
        f"no confidence {within}lies between tau_low {settings.tau_low:g} and tau_high "
        f"{settings.tau_high:g}"
    )
    ends = -math.inf if settings.tau_stop is None else settings.tau_stop
    return {
        ask: None if _some(calm, max(above, ends), settings.tau_high) else left,
        stop: unset
        or (
            None
            if _some(calm, above, min(settings.tau_high, math.nextafter(ends, math.inf)))
            else f"no confidence {within}that is neither retrieved for nor executed is at or below {ends:g}"
        ),
    }


def _some(span: _Span, above: float, below: float) -> bool:
    """Whether the span holds a confidence strictly between the two."""
    if span.low == span.high:
        return above < span.low < below
    return max(span.low, math.nextafter(above, math.inf)) < below and span.high > above

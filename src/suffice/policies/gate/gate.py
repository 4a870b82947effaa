"""The gate: from candidate next steps to an action (paper 4, Eq. 18 and Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from suffice.contracts import ContradictionDetector
from suffice.errors import UsageError
from suffice.policies.gate.gate_settings import (
    MARKERS,
    GateCosts,
    GateSettings,
    PlanAction,
    RiskModel,
    Unreachable,
    chosen_action,
    remaining_share,
    retrieval_depth,
)
from suffice.signals.samples import MarkerDetector, agreement

Blocked = Literal["budget", "cool-down"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the gate sees in a step, by the names of the signals; which step of the plan is contradicted."""

    values: Mapping[str, float]
    conflict: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """An action and what it rests on."""

    action: PlanAction
    reason: str
    values: Mapping[str, float]
    k: int = 0
    blocked: Blocked | None = None
    conflict: int | None = None


def read_step(
    model: RiskModel,
    detector: ContradictionDetector,
    candidates: Sequence[str],
    plan: Sequence[str],
    total_steps: int,
) -> Reading:
    """SC, CD, DR, R and c of a step; candidates that are all empty agree on nothing (SC 0)."""
    if not candidates:
        raise UsageError("a gate compares candidates for the next step, found none")
    contradiction, conflict = 0.0, None
    pairs = [(step, candidate) for candidate in candidates if candidate for step in plan]
    if pairs:
        scores = detector.contradictions(pairs)
        strongest = int(np.argmax(scores))
        contradiction = float(scores[strongest])
        conflict = strongest % len(plan) if contradiction > 0.0 else None
    remaining = remaining_share(len(plan), total_steps)
    return Reading(model.values(agreement(candidates), contradiction, remaining), conflict)


class Gate:
    """Decides the steps of one task at a time; :meth:`start` begins the next one.

    It counts its own retrievals, against the budget and the cool-down. Tasks that run side by side need
    a gate each.

    Parameters
    ----------
    settings
        The numbers; ``None``: the published ones.
    detector
        Finds contradictions; ``None``: the published markers.

    Raises
    ------
    UsageError
        When the settings name another detector than the markers and none is given.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # the published gate says that it can never EXECUTE
    ...     gate = Gate.published()
    >>> [str(unreached.action) for unreached in gate.unreachable]
    ['EXECUTE', 'STOP']
    >>> decision = gate.act(["Open port 443", "Create the subnet"], [], step=1, total_steps=4)
    >>> str(decision.action), decision.k, round(decision.values["confidence"], 3)
    ('RETRIEVE', 4, 0.119)
    """

    def __init__(
        self, settings: GateSettings | None = None, detector: ContradictionDetector | None = None
    ) -> None:
        self.settings = GateSettings.published() if settings is None else settings
        if detector is None and self.settings.detector != MARKERS:
            raise UsageError(
                f"this gate was fitted with the detector {self.settings.detector!r}; give it as detector=..."
            )
        self.detector = MarkerDetector() if detector is None else detector
        self._retrievals = 0
        self._next = 0  # the first step at which the cool-down allows a retrieval
        self._last = 0

    @classmethod
    def published(cls, detector: ContradictionDetector | None = None, **changes: Any) -> Self:
        """With the paper's numbers, or these changed; see :class:`GateSettings`."""
        return cls(GateSettings.published(**changes), detector)

    @classmethod
    def corrected(
        cls,
        risk: RiskModel,
        costs: GateCosts,
        detector: ContradictionDetector | None = None,
        **changes: Any,
    ) -> Self:
        """With a fitted risk model and thresholds from costs."""
        return cls(GateSettings.corrected(risk, costs, **changes), detector)

    @property
    def unreachable(self) -> tuple[Unreachable, ...]:
        """Actions it can never choose."""
        return self.settings.unreachable

    @property
    def retrievals(self) -> int:
        """How many it has chosen so far."""
        return self._retrievals

    def start(self) -> Gate:
        """Forget the retrievals and begin a new task."""
        self._retrievals = self._next = self._last = 0
        return self

    def read(self, candidates: Sequence[str], plan: Sequence[str], total_steps: int) -> Reading:
        """What it sees in a step, without choosing."""
        return read_step(self.settings.risk, self.detector, candidates, plan, total_steps)

    def act(
        self, candidates: Sequence[str], plan: Sequence[str], step: int, total_steps: int
    ) -> GateDecision:
        """Choose the action of a step.

        Parameters
        ----------
        candidates
            Proposals for the next step, drawn independently; empty texts are failed ones.
        plan
            The steps taken so far; may be longer than the task.
        step
            A counter that grows by 1 with every step of the task, from 0 or 1.
        total_steps
            Of the task, at least 1.

        Raises
        ------
        UsageError
            For no candidates, a task without steps, or a step before the last one decided, which is
            another task's.
        """
        if step < self._last:
            raise UsageError(
                f"step {step} comes before step {self._last}, which this gate decided already; call "
                "gate.start() before another task"
            )
        seen = self.read(candidates, plan, total_steps)
        chosen = self.settings
        blocked = self._blocked(step)
        confidence, contradiction = seen.values["confidence"], seen.values["contradiction"]
        action = chosen_action(chosen, confidence, contradiction, may_retrieve=blocked is None)
        self._last = step
        k = 0
        if action is PlanAction.RETRIEVE:
            k = retrieval_depth(confidence, chosen.tau_low, chosen.k_max)
            self._retrievals += 1
            self._next = step + chosen.cooldown
        asked_first = action is PlanAction.REPLAN and chosen.order == "replan-first"
        missed = blocked if confidence <= chosen.tau_low and not asked_first else None
        return GateDecision(
            action=action,
            reason=_reason(action, seen.values, chosen, missed),
            values=seen.values,
            k=k,
            blocked=missed,
            conflict=seen.conflict,
        )

    def _blocked(self, step: int) -> Blocked | None:
        if self.settings.budget is not None and self._retrievals >= self.settings.budget:
            return "budget"
        return "cool-down" if step < self._next else None


def _reason(
    action: PlanAction, seen: Mapping[str, float], settings: GateSettings, missed: Blocked | None
) -> str:
    confidence = f"confidence {seen['confidence']:.3g}"
    because = {
        PlanAction.RETRIEVE: f"{confidence} is at or below tau_low {settings.tau_low:g}",
        PlanAction.REPLAN: f"contradiction {seen['contradiction']:.3g} is above kappa {settings.kappa:g}",
        PlanAction.EXECUTE: f"{confidence} reaches tau_high {settings.tau_high:g}",
        PlanAction.ASK: f"{confidence} is below tau_high {settings.tau_high:g}",
        PlanAction.STOP: f"{confidence} is at or below tau_stop",
    }[action]
    return because if missed is None else f"{because}; a retrieval was blocked by the {missed}"

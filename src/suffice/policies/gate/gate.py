"""The gate: from candidate next steps to an action (paper 4, Eq. 18 and Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from suffice.contracts import ContradictionDetector
from suffice.errors import UsageError
from suffice.policies.gate.gate_settings import (
    MARKERS,
    GateSettings,
    PlanAction,
    RiskModel,
    action_reason,
    chosen_action,
    remaining_share,
    retrieval_depth,
)
from suffice.signals.samples import MarkerDetector, agreement

Blocked = Literal["budget", "cool-down"]


@dataclass(frozen=True, slots=True)
class Reading:
    """The values of a step by the names of signals, and the contradicted step of the plan."""

    values: Mapping[str, float]
    conflict: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
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
    """Return SC, CD, DR, R and c of a step; SC of empty candidates is 0."""
    if not candidates:
        raise UsageError("a gate needs candidates for the next step, found none")
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
    """A gate that decides the steps of one task; :meth:`start` begins the next task.

    It counts its retrievals for the budget and the cool-down. Parallel tasks need a gate each.

    ``settings`` are its numbers (``None``: the published ones), ``detector`` finds contradictions (``None``:
    the published markers). Settings that name another detector need it.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # the published gate says that it can never EXECUTE
    ...     gate = Gate()
    >>> [str(unreached.action) for unreached in gate.settings.unreachable]
    ['EXECUTE', 'STOP']
    >>> decision = gate.act(["Open port 443", "Create the subnet"], [], step=1, total_steps=4)
    >>> str(decision.action), decision.k, round(decision.values["confidence"], 3)
    ('RETRIEVE', 4, 0.119)
    """

    def __init__(
        self, settings: GateSettings | None = None, detector: ContradictionDetector | None = None
    ) -> None:
        self.settings: GateSettings = GateSettings.published() if settings is None else settings
        if detector is None and self.settings.detector != MARKERS:
            raise UsageError(
                f"this gate was fitted with the detector {self.settings.detector!r}; give it as detector=..."
            )
        self.detector: ContradictionDetector = MarkerDetector() if detector is None else detector
        self.retrievals: int = 0
        self._next = 0  # the first step at which the cool-down allows a retrieval
        self._last = 0

    def start(self) -> Gate:
        """Begin a new task without retrievals."""
        self.retrievals = self._next = self._last = 0
        return self

    def act(
        self, candidates: Sequence[str], plan: Sequence[str], step: int, total_steps: int
    ) -> GateDecision:
        """Choose the action of a step.

        ``candidates`` are independent proposals for the next step; empty texts are failed ones. ``plan`` are
        the steps taken so far, perhaps more than the task has. ``step`` grows by 1 with every step, from 0
        or 1. ``total_steps`` are those of the task, at least 1. No candidates, or a step before the last
        decided one, raise a UsageError.
        """
        if step < self._last:
            raise UsageError(
                f"step {step} comes before step {self._last}, which this gate decided already; call "
                "gate.start() before another task"
            )
        chosen = self.settings
        seen = read_step(chosen.risk, self.detector, candidates, plan, total_steps)
        blocked: Blocked | None = "cool-down" if step < self._next else None
        if chosen.budget is not None and self.retrievals >= chosen.budget:
            blocked = "budget"
        confidence, contradiction = seen.values["confidence"], seen.values["contradiction"]
        action = chosen_action(chosen, confidence, contradiction, may_retrieve=blocked is None)
        self._last = step
        k = 0
        if action is PlanAction.RETRIEVE:
            k = retrieval_depth(confidence, chosen.tau_low, chosen.k_max)
            self.retrievals += 1
            self._next = step + chosen.cooldown
        asked_first = action is PlanAction.REPLAN and chosen.order == "replan-first"
        missed = blocked if confidence <= chosen.tau_low and not asked_first else None
        reason = action_reason(action, seen.values, chosen)
        if missed is not None:
            reason += f"; a retrieval was blocked by the {missed}"
        return GateDecision(
            action=action,
            reason=reason,
            values=seen.values,
            k=k,
            blocked=missed,
            conflict=seen.conflict,
        )

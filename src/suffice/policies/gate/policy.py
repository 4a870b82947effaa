"""The gate as a stopping policy for question answering: stop where it would EXECUTE."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import Explanation, Facts, LoopNeeds, PolicyTable
from suffice.errors import UsageError
from suffice.policies.gate.gate import Reading
from suffice.policies.gate.risk import remaining_share
from suffice.policies.gate.settings import MARKERS, GateSettings, PlanAction, chosen_action
from suffice.policies.method import loop_needs
from suffice.signals.registry import SignalSpec
from suffice.signals.samples import CANDIDATE_AGREEMENT, CONTRADICTION
from suffice.stats.fields import known
from suffice.stats.logistic import sigmoids

_REMAINING = "remaining_share"
_MOST_ROUNDS = int(np.iinfo(np.int16).max)
PUBLISHED_CANDIDATES = 2
_FOR_PLANS = (
    "this gate was fitted on plan traces and guides a planning agent; to stop a loop that answers "
    "questions, fit one on question traces: suffice fit gate TRACES --out policy.json"
)


def executes(
    settings: GateSettings, confidence: NDArray[np.float64], contradiction: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Where :func:`chosen_action` with every retrieval allowed is EXECUTE; never where undefined.

    The arrays have one shape, which is the result's.
    """
    calm = ~(contradiction > settings.kappa)
    wanted = confidence <= settings.tau_low
    fires: NDArray[np.bool_] = calm & ~wanted & (confidence >= settings.tau_high)
    return fires


@dataclass(frozen=True, kw_only=True)
class GatePolicy:
    """Stops at the first round after which the gate would EXECUTE (paper 4, Eqs. 13-18).

    The rounds of a loop stand for the steps of a plan and a round's samples for the candidates: SC is
    ``candidate_agreement`` of the samples, CD is ``contradiction`` of the answer and the previous one,
    DR = (R - t) / R after round t of R, 0 beyond. A loop can stop or go on, so only EXECUTE stops, and
    RETRIEVE, REPLAN, ASK and STOP all take another round; every round is a retrieval, so the retrieval
    budget and the cool-down of the settings do not apply. Confidence is undefined, and the loop
    goes on, where SC is (no samples) or CD is (this answer or the previous one is empty).

    ``published``: c = sigmoid(-R) is at most 0.5 and tau_high is 0.75, so that it equals the full
    budget and says so. ``corrected``: weights and intercept fitted to P(EM = 1), thresholds from costs.

    Parameters
    ----------
    settings
        The gate's numbers.
    rounds
        R, the full budget of the loop. ``None``: of a gate fitted on plan traces, which guides
        a planning agent and refuses to stop a loop.
    samples
        How many samples a round SC is taken over: what a live loop draws.

    Raises
    ------
    UsageError
        When built: rounds or samples below 1, or, with ``rounds``, another detector than the markers.
        When it decides: without ``rounds``.

    Examples
    --------
    >>> from suffice.policies.gate.risk import RiskModel
    >>> from suffice.policies.gate.settings import GateCosts
    >>> settings = GateSettings.corrected(
    ...     RiskModel(disagreement=3.0, contradiction=1.0, remaining=0.5, intercept=1.0),
    ...     GateCosts(retrieval=1, failure=2),
    ... )
    >>> GatePolicy(settings=settings, rounds=4).facts.summary
    'stop when sigmoid(1 - 3 (1 - SC) - 1 CD - 0.5 DR) > 0.5 and CD <= 0.5'
    """

    settings: GateSettings
    rounds: int | None = None
    samples: int = PUBLISHED_CANDIDATES
    kind: ClassVar[str] = "gate"

    def __post_init__(self) -> None:
        for name in ("rounds", "samples"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= _MOST_ROUNDS:
                raise UsageError(f"{name} must be from 1 to {_MOST_ROUNDS}, found {value!r}")
        if self.rounds is not None and self.settings.detector != MARKERS:
            raise UsageError(
                f"a gate that stops a loop finds contradictions by {MARKERS!r}, found the detector "
                f"{self.settings.detector!r}; fit it on question traces: suffice fit gate TRACES"
            )

    @property
    def preset(self) -> str | None:
        """Where its numbers come from."""
        return self.settings.preset

    @property
    def fitted_on(self) -> Mapping[str, Any]:
        """Where its numbers were learned; decides nothing."""
        return self.settings.fitted_on

    @property
    def specs(self) -> tuple[SignalSpec, ...]:
        """SC and CD; DR follows from the round."""
        return (CANDIDATE_AGREEMENT, CONTRADICTION)

    @property
    def signals(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(spec.name for spec in self.specs)

    @property
    def needs(self) -> LoopNeeds:
        """The samples of SC; one fitted on plan traces refuses every loop."""
        return loop_needs(
            self.specs, samples=self.samples, refusal=_FOR_PLANS if self.rounds is None else ""
        )

    @property
    def facts(self) -> Facts:
        """Its rule, and where it can never stop early."""
        why = self._never
        return Facts(
            name="gate-corrected" if self.preset == "corrected" else "gate",
            summary=self._summary,
            fitted_on=self.fitted_on,
            notes=() if why is None else (f"it equals the full budget: {why}",),
            max_rounds=self.rounds,
        )

    @property
    def _summary(self) -> str:
        chosen, model = self.settings, self.settings.risk
        low, high = chosen.tau_low, chosen.tau_high
        reached = f"> {low:.4g}" if low >= high else f">= {high:.4g}"
        return (
            f"stop when sigmoid({model.intercept:.3g} - {model.disagreement:.3g} (1 - SC) "
            f"- {model.contradiction:.3g} CD - {model.remaining:.3g} DR) {reached} and "
            f"CD <= {chosen.kappa:.4g}"
        )

    @property
    def _never(self) -> str | None:
        """Why no signal stops it before the last round; ``None``: some do."""
        if self.rounds is None or self.rounds == 1:
            return None
        chosen = self.settings
        if chosen.kappa < 0.0:
            return f"every contradiction is above kappa {chosen.kappa:g}, so it can never stop"
        calmest = chosen.risk.risk(
            agreement=1.0,
            contradiction=0.0,
            remaining=remaining_share(self.rounds - 1, self.rounds),
        )
        most = chosen.risk.confidence(calmest)
        if chosen_action(chosen, most, 0.0, may_retrieve=True) is PlanAction.EXECUTE:
            return None
        limit = max(
            ("tau_high", chosen.tau_high), ("tau_low", chosen.tau_low), key=lambda it: it[1]
        )
        return (
            f"it can never stop before the last round, since confidence is at most {most:.3g} "
            f"there and {limit[0]} is {limit[1]:g}"
        )

    # --- deciding --------------------------------------------------------------------------------
    def full_budget(self) -> int:
        """R, the rounds of the loop it stops.

        Raises
        ------
        UsageError
            For a gate fitted on plan traces, which stops none.
        """
        if self.rounds is None:
            raise UsageError(_FOR_PLANS)
        return self.rounds

    def explain(self, table: PolicyTable, question: int, round_number: int) -> Explanation:
        """What the gate would do after this round, with what it saw."""
        at = question, round_number - 1
        agreed, conflict = (float(table.signal(name)[at]) for name in self.signals)
        remaining = remaining_share(round_number, self.full_budget())
        seen = Reading.of(self.settings.risk, agreed, conflict, remaining).values
        confidence = seen["confidence"]
        values = {name: known(value) for name, value in seen.items()}
        if math.isnan(confidence):
            missing = " and ".join(
                f"{spec.name} is {table.undefined(spec, question, round_number)}"
                for spec in self.specs
                if values[spec.name] is None
            )
            reason = f"confidence is undefined at round {round_number}: {missing}"
        else:
            action = chosen_action(self.settings, confidence, conflict, may_retrieve=True)
            reason = self._reason(action, seen, round_number)
        return Explanation(reason=reason, values=values)

    def _reason(self, action: PlanAction, seen: Mapping[str, float], number: int) -> str:
        chosen, never = self.settings, self._never
        limits = {
            PlanAction.EXECUTE: f"reaches tau_high {chosen.tau_high:g}",
            PlanAction.RETRIEVE: f"is at or below tau_low {chosen.tau_low:g}",
            PlanAction.REPLAN: f"does not count: contradiction is above kappa {chosen.kappa:g}",
        }
        limit = limits.get(action, f"is below tau_high {chosen.tau_high:g}")
        listed = ", ".join(f"{name} = {seen[name]:.4g}" for name in (*self.signals, _REMAINING))
        verb = "stops" if action is PlanAction.EXECUTE else "goes on"
        return (
            f"{verb} at round {number}: confidence {seen['confidence']:.4g} {limit}; {listed}"
            + ("" if never is None else f"; {never}")
        )

    def confidence(self, table: PolicyTable) -> NDArray[np.float64]:
        """C (paper 4, Eq. 17), (n_questions, n_rounds) in (0, 1), NaN where undefined."""
        model, budget = self.settings.risk, self.full_budget()
        agreed, conflict = (table.signal(name).T for name in self.signals)
        confidence = np.empty(agreed.shape)
        for index in range(table.n_rounds):  # round by round, as signals are stored
            risk = (
                model.disagreement * (1.0 - agreed[index])
                + model.contradiction * conflict[index]
                + model.remaining * remaining_share(index + 1, budget)
            )
            confidence[index] = sigmoids(model.intercept - risk)
        return confidence.T

    def fires(self, table: PolicyTable) -> NDArray[np.bool_]:
        """Where the gate would EXECUTE."""
        return executes(self.settings, self.confidence(table), table.signal(CONTRADICTION.name))

    def document(self) -> dict[str, Any]:
        """What its file says: the settings, with what decides nothing of them beside."""
        settings = self.settings.to_json()
        beside = {name: settings.pop(name) for name in ("preset", "costs", "fitted_on")}
        return {
            "rounds": self.rounds,
            "samples": self.samples,
            "settings": settings,
            **{name: value for name, value in beside.items() if value},
        }

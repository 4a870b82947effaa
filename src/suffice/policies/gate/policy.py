"""The gate as a stopping policy: stop when it would EXECUTE."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from suffice.contracts import Explanation, Facts, LoopNeeds, PolicyTable
from suffice.errors import DataError, UsageError
from suffice.options import Option
from suffice.policies.gate.gate_settings import (
    BUDGET,
    DEFAULT_COSTS,
    MARKERS,
    ORDERS,
    GateCosts,
    GateSettings,
    PlanAction,
    RiskModel,
    action_reason,
    chosen_action,
    remaining_share,
    unreachable,
)
from suffice.policies.method import Fitted, Method, Preset, loop_needs
from suffice.signals.known_signals import SignalSpec
from suffice.signals.samples import CANDIDATE_AGREEMENT, CONTRADICTION
from suffice.stats.fields import Fields, known
from suffice.stats.logistic import sigmoids
from suffice.stats.units import Array, Mask

if TYPE_CHECKING:
    from suffice.measures.measures import Measures
    from suffice.trace.plan_traces import PlanSet


_REMAINING = "remaining_share"
_MOST_ROUNDS = int(np.iinfo(np.int16).max)
PUBLISHED_CANDIDATES = 2
_FOR_PLANS = (
    "this gate was fitted on plan traces and guides a planning agent; to stop a loop that answers "
    "questions, fit one on question traces: suffice fit gate TRACES --out policy.json"
)


@dataclass(frozen=True, kw_only=True)
class GatePolicy:
    """Stops at the first round after which the gate would EXECUTE (paper 4, Eqs. 13-18).

    Rounds are the steps of a plan, and the samples of a round are its candidates. SC is their
    ``candidate_agreement``, CD the ``contradiction`` of the answer and the previous one, and
    DR = (R - t) / R after round t of R, 0 beyond. Only EXECUTE stops a loop; RETRIEVE, REPLAN, ASK and STOP
    take another round. Every round retrieves, so the retrieval budget and the cool-down do not apply. If SC
    or CD is undefined (no samples, an empty answer), so is the confidence, and the loop goes on.

    ``published``: c = sigmoid(-R) is at most 0.5 and tau_high is 0.75, so it equals the full budget.
    ``corrected``: weights and intercept fitted to P(EM = 1), thresholds from costs.

    ``settings`` are the gate's numbers, ``rounds`` is R, the full budget of the loop, and ``samples`` those a
    round for SC. ``rounds=None`` is a gate of plan traces, which refuses to decide on a loop. A loop's gate
    takes no other detector than the markers.

    >>> from suffice.policies.gate.gate_settings import GateCosts, RiskModel
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
    specs: ClassVar[tuple[SignalSpec, ...]] = (CANDIDATE_AGREEMENT, CONTRADICTION)
    signals: ClassVar[tuple[str, ...]] = (CANDIDATE_AGREEMENT.name, CONTRADICTION.name)

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
        return self.settings.preset

    @property
    def needs(self) -> LoopNeeds:
        """The samples of SC; a gate of plan traces refuses every loop."""
        return loop_needs(
            self.specs, samples=self.samples, refusal=_FOR_PLANS if self.rounds is None else ""
        )

    @property
    def facts(self) -> Facts:
        """Its rule, and a note if it can never stop early."""
        why = self._never
        return Facts(
            name="gate-corrected" if self.preset == "corrected" else "gate",
            summary=self._summary,
            fitted_on=self.settings.fitted_on,
            notes=() if why is None else (f"it equals the full budget: {why}",),
            max_rounds=self.rounds,
        )

    @property
    def _summary(self) -> str:
        chosen = self.settings
        low, high = chosen.tau_low, chosen.tau_high
        reached = f"> {low:.4g}" if low >= high else f">= {high:.4g}"
        return f"stop when {chosen.risk.formula} {reached} and CD <= {chosen.kappa:.4g}"

    @property
    def _never(self) -> str | None:
        """Why no signal stops it before the last round; ``None``: some do."""
        if self.rounds is None or self.rounds == 1:
            return None
        never = unreachable(self.settings, self.rounds, blocks=False)
        why = next((one.why for one in never if one.action is PlanAction.EXECUTE), None)
        return None if why is None else f"it can never stop before the last round: {why}"

    # --- deciding --------------------------------------------------------------------------------
    def full_budget(self) -> int:
        """Return R, the rounds of the loop; a gate of plan traces has none."""
        if self.rounds is None:
            raise UsageError(_FOR_PLANS)
        return self.rounds

    def explain(self, table: PolicyTable, question: int, round_number: int) -> Explanation:
        """Say what the gate would do after this round, and why."""
        at = question, round_number - 1
        agreed, conflict = (float(table.signal(name)[at]) for name in self.signals)
        remaining = remaining_share(round_number, self.full_budget())
        seen = self.settings.risk.values(agreed, conflict, remaining)
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
            verb = "stops" if action is PlanAction.EXECUTE else "goes on"
            listed = ", ".join(f"{name} = {seen[name]:.4g}" for name in (*self.signals, _REMAINING))
            why = "; ".join(filter(None, (action_reason(action, seen, self.settings), self._never)))
            reason = f"{verb} at round {round_number}: {why}; {listed}"
        return Explanation(reason=reason, values=values)

    def confidence(self, table: PolicyTable) -> Array:
        """Return C (paper 4, Eq. 17), (n_questions, n_rounds) in (0, 1), NaN where undefined."""
        model, budget = self.settings.risk, self.full_budget()
        agreed, conflict = (table.signal(name).T for name in self.signals)
        confidence = np.empty(agreed.shape)
        for index in range(table.n_rounds):  # round by round, as signals are stored
            remaining = remaining_share(index + 1, budget)
            risk = model.risk(
                agreement=agreed[index], contradiction=conflict[index], remaining=remaining
            )
            confidence[index] = sigmoids(model.intercept - risk)
        return confidence.T

    def fires(self, table: PolicyTable) -> Mask:
        """Return where :func:`chosen_action` with every retrieval allowed is EXECUTE."""
        chosen, confidence = self.settings, self.confidence(table)
        calm = ~(table.signal(CONTRADICTION.name) > chosen.kappa)
        return calm & ~(confidence <= chosen.tau_low) & (confidence >= chosen.tau_high)

    def document(self) -> dict[str, Any]:
        """Return the contents of its file; parts of the settings that decide nothing stand beside them."""
        settings = self.settings.to_json()
        beside = {name: settings.pop(name) for name in ("preset", "costs", "fitted_on")}
        return {
            "rounds": self.rounds,
            "samples": self.samples,
            "settings": settings,
            **{name: value for name, value in beside.items() if value},
        }


# --- the method -----------------------------------------------------------------------------------
_WEIGHTS = ("disagreement", "contradiction", "remaining")
_THRESHOLDS = ("tau_low", "tau_high", "kappa")


@dataclass(frozen=True, slots=True, kw_only=True)
class _RoundCosts:
    retrieval_cost: Annotated[
        float | None,
        Option(
            help="cost C of a retrieval (default: 1; without any cost, the published thresholds)",
            metavar="C",
        ),
    ] = None
    failure_loss: Annotated[
        float | None,
        Option(
            help="loss L of a wrong answer or a failed plan (default: 2, act if more likely right)",
            metavar="L",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanCosts(_RoundCosts):
    ask_cost: Annotated[
        float | None,
        Option(
            help="on plan traces: cost of asking the user, when unsure and no retrieval is left "
            "(default: as a retrieval)",
            metavar="C",
        ),
    ] = None
    stop_cost: Annotated[
        float | None,
        Option(help="on plan traces: cost of ending early (default: never worth it)", metavar="C"),
    ] = None


def _costs(settings: _RoundCosts) -> GateCosts | None:
    names = {"retrieval_cost": "retrieval", "failure_loss": "failure"}
    names |= {"ask_cost": "ask", "stop_cost": "stop"}
    stated: dict[str, Any] = {
        own: value
        for name, own in names.items()
        if (value := getattr(settings, name, None)) is not None
    }
    return replace(DEFAULT_COSTS, **stated) if stated else None


class _GateMethod(Method):
    name = "gate"
    summary = (
        "stop when samples agree and answers do not contradict each other; the remaining "
        "risk falls with the rounds"
    )
    source = "paper 4"
    about = (
        "stops a loop on question traces and guides a planning agent on plan traces; acts if its "
        "confidence exceeds 1 - C / L"
    )
    fitted: frozenset[Preset] = frozenset({"corrected"})
    main_field = "settings"
    options = _RoundCosts

    def fit(self, measures: Measures, preset: Preset, settings: Any, split: str) -> GatePolicy:
        from suffice.policies.gate.fit import fit_gate_policy, samples_a_round

        costs = _costs(settings)
        if preset == "published":
            return GatePolicy(
                settings=GateSettings.published(costs=costs),
                rounds=max(1, measures.traces.n_rounds),
                samples=samples_a_round(measures),
            )
        return fit_gate_policy(measures, split, costs or DEFAULT_COSTS)

    def plan_settings(self, preset: Preset) -> type[Any]:
        del preset
        return _PlanCosts

    def fit_plans(self, plans: PlanSet, preset: Preset, settings: Any) -> Fitted:
        from suffice.policies.gate.fit import fit_gate

        costs = _costs(settings)
        if preset == "published":
            detector = plans.run.get("detector", MARKERS)
            chosen = GateSettings.published(costs=costs, detector=detector)
        else:
            chosen = fit_gate(plans, costs or DEFAULT_COSTS)
        lines = [f"gate   {chosen.summary}"]
        lines += [f"note   {action}" for action in chosen.unreachable]
        if fitted := chosen.fitted_on:
            lines.append(
                f"fitted on {fitted['fitted_steps']} steps of {fitted['labelled']} judged runs"
            )
        lines.append("use    Gate(load_policy('{policy}').policy.settings), in a planning agent")
        return Fitted(policy=GatePolicy(settings=chosen), lines=tuple(lines))

    def read(self, document: Mapping[str, Any], file: Path) -> GatePolicy:
        del file
        fields = Fields(document)
        fields.need("settings")
        settings = fields.of("settings", dict)
        beside = {name: document.get(name) for name in ("preset", "costs", "fitted_on")}
        rounds, samples = fields.of("rounds", int), fields.of("samples", int)
        try:
            return GatePolicy(
                settings=_read_settings({**settings, **beside}),
                rounds=rounds,
                samples=PUBLISHED_CANDIDATES if samples is None else samples,
            )
        except UsageError as error:
            raise DataError(str(error), column="settings") from error


METHOD = _GateMethod()


def _read_settings(document: Mapping[str, Any]) -> GateSettings:
    fields = Fields(document)
    fields.need("weights")
    weights, costs = fields.part("weights"), fields.part("costs")
    return GateSettings(
        risk=RiskModel(
            **{name: weights.number(name) for name in _WEIGHTS},
            intercept=fields.number("intercept", 0.0),
        ),
        **{name: fields.number(name) for name in _THRESHOLDS},
        tau_stop=fields.number_or_none("tau_stop"),
        budget=fields.of("budget", int) if "budget" in document else BUDGET,
        cooldown=fields.of("cooldown", int, 1),
        k_max=fields.of("k_max", int, 6),
        order=fields.one_of("order", ORDERS, ORDERS[0]),
        revises=fields.of("revises", bool, default=False),
        detector=fields.of("detector", str, MARKERS),
        costs=GateCosts(
            retrieval=costs.number("retrieval"),
            failure=costs.number("failure"),
            ask=costs.number_or_none("ask"),
            stop=costs.number_or_none("stop"),
        )
        if costs.document
        else None,
        preset=fields.of("preset", str),
        fitted_on=fields.of("fitted_on", dict) or {},
    )

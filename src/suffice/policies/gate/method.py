"""The gate as a method, on question traces and on plan traces, and its policy file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from suffice.errors import DataError, UsageError
from suffice.options import Option
from suffice.policies.gate.policy import PUBLISHED_CANDIDATES, GatePolicy
from suffice.policies.gate.risk import RiskModel
from suffice.policies.gate.settings import (
    BUDGET,
    DEFAULT_COSTS,
    MARKERS,
    ORDERS,
    GateCosts,
    GateSettings,
)
from suffice.policies.method import FitRun, Fitted, Method, Preset
from suffice.stats.fields import Fields

if TYPE_CHECKING:
    from suffice.measures.measures import Measures
    from suffice.trace.plans.records import PlanSet

_WEIGHTS = ("disagreement", "contradiction", "remaining")
_THRESHOLDS = ("tau_low", "tau_high", "kappa")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCosts:
    """What acting costs in a loop that answers questions; ``None``: as the fit has it."""

    retrieval_cost: Annotated[
        float | None,
        Option(
            help="of looking something up (default: 1; published thresholds where no cost is given)",
            metavar="C",
        ),
    ] = None
    failure_loss: Annotated[
        float | None,
        Option(
            help="of a wrong answer or a failed plan (default: 2, act when more likely right than wrong)",
            metavar="L",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCosts(RoundCosts):
    """What acting costs a planning agent, and who found the contradictions of its runs."""

    ask_cost: Annotated[
        float | None,
        Option(
            help="on plan traces: of asking the user, who is asked where c is below 1 - C / L and no "
            "retrieval is left (default: as a retrieval)",
            metavar="C",
        ),
    ] = None
    stop_cost: Annotated[
        float | None,
        Option(help="on plan traces: of ending early (default: never worth it)", metavar="C"),
    ] = None
    detector: Annotated[
        str | None,
        Option(
            help="on plan traces: who found their contradictions (default: markers, the published words)",
            metavar="NAME",
        ),
    ] = None


def _costs(settings: RoundCosts) -> GateCosts | None:
    """The costs that are stated, the others as :data:`DEFAULT_COSTS` has them; ``None``: none is."""
    names = {"retrieval_cost": "retrieval", "failure_loss": "failure"}
    names |= {"ask_cost": "ask", "stop_cost": "stop"}
    stated: dict[str, Any] = {
        own: value
        for name, own in names.items()
        if (value := getattr(settings, name, None)) is not None
    }
    return replace(DEFAULT_COSTS, **stated) if stated else None


class GateMethod(Method):
    """See :class:`suffice.policies.method.Method`."""

    name = "gate"
    summary = (
        "stop when samples agree and answers do not contradict each other, by a risk that falls round "
        "by round"
    )
    source = "paper 4"
    about = (
        "on question traces it stops a loop, on plan traces it guides a planning agent; it acts where "
        "its confidence exceeds 1 - C / L"
    )
    fitted = frozenset({"corrected"})
    main_field = "settings"
    options = RoundCosts

    def fit(
        self,
        measures: Measures,
        preset: Preset,
        settings: Any,
        split: str,
        run: FitRun | None = None,
    ) -> GatePolicy:
        """A gate that stops loops."""
        from suffice.policies.gate.fit import fit_gate_policy, published_gate_policy

        del run
        costs = _costs(settings)
        if preset == "published":
            return published_gate_policy(measures.traces, costs)
        return fit_gate_policy(measures, split, costs or DEFAULT_COSTS)

    def plan_settings(self, preset: Preset) -> type[Any]:
        """What the thresholds are made of, and the detector."""
        del preset
        return PlanCosts

    def fit_plans(self, plans: PlanSet, preset: Preset, settings: Any) -> Fitted:
        """A gate that guides a planning agent."""
        from suffice.policies.gate.fit import fit_gate

        costs = _costs(settings)
        changes = {} if settings.detector is None else {"detector": settings.detector}
        if preset == "published":
            chosen = GateSettings.published(costs=costs, **changes)
        else:
            chosen = fit_gate(plans, costs or DEFAULT_COSTS, **changes)
        lines = [f"gate   {chosen.summary}"]
        lines += [f"note   {action}" for action in chosen.unreachable]
        if fitted := chosen.fitted_on:
            lines.append(
                f"fitted on {fitted['fitted_steps']} steps of {fitted['labelled']} judged runs"
            )
        lines.append("use    Gate(load_policy('{policy}').policy.settings), in a planning agent")
        return Fitted(policy=GatePolicy(settings=chosen), lines=tuple(lines))

    def read(self, document: Mapping[str, Any], file: Path) -> GatePolicy:
        """See :meth:`suffice.policies.method.PolicyKind.read`."""
        del file
        fields = Fields(document)
        fields.need("settings")
        settings = fields.of("settings", dict)
        beside = {name: document.get(name) for name in ("preset", "costs", "fitted_on")}
        rounds, samples = fields.of("rounds", int), fields.of("samples", int)
        try:
            return GatePolicy(
                settings=read_settings({**settings, **beside}),
                rounds=rounds,
                samples=PUBLISHED_CANDIDATES if samples is None else samples,
            )
        except UsageError as error:
            raise DataError(str(error), column="settings") from error


METHOD = GateMethod()


def read_settings(document: Mapping[str, Any]) -> GateSettings:
    """The settings that :meth:`GateSettings.to_json` wrote."""
    fields = Fields(document)
    fields.need("weights", *_THRESHOLDS)
    weights = fields.part("weights")
    weights.need(*_WEIGHTS)
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
        costs=None if document.get("costs") is None else _read_costs(fields.part("costs")),
        preset=fields.of("preset", str),
        fitted_on=fields.of("fitted_on", dict) or {},
    )


def _read_costs(fields: Fields) -> GateCosts:
    fields.need("retrieval", "failure")
    return GateCosts(
        retrieval=fields.number("retrieval"),
        failure=fields.number("failure"),
        ask=fields.number_or_none("ask"),
        stop=fields.number_or_none("stop"),
    )

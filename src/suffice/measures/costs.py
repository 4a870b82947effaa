"""Costs of the candidates, and the one cost that compares them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import StopPolicy
from suffice.costs.usage import (
    COSTS,
    TOKENS,
    USUAL_COSTS,
    CostModel,
    CostReads,
    RecordedUsage,
    cost_matrix,
    find_cost,
    stop_costs,
)
from suffice.errors import InternalError, UsageError
from suffice.signals.known_signals import LOOKS, RERANKS, SAMPLES, VERDICTS, SignalSpec, given_by
from suffice.stats.units import Array
from suffice.trace.rounds.trace_set import TraceSet


def cost_reads(specs: Iterable[SignalSpec]) -> CostReads:
    """Return what a policy that reads these signals pays for."""
    specs = tuple(specs)
    charges = {charge for spec in specs for charge in spec.charges}
    return CostReads(
        answers=any(spec.answers for spec in specs),
        samples=SAMPLES in charges,
        verdicts=VERDICTS in charges,
        looks=frozenset(spec.name for spec in map(given_by, specs) if LOOKS in spec.charges),
        reranks=RERANKS in charges,
    )


def policy_reads(policy: StopPolicy, budget: int | None = None) -> CostReads:
    """Return what a policy pays for up to a budget of rounds (``None``: the record's)."""
    sets = policy.facts.coverage is not None
    return replace(cost_reads(policy.specs), until=budget, at_end=sets)


def paid_together(reads: CostReads, choosing: CostReads | None) -> CostReads:
    """Add what it costs to choose among answers; ``None``: nobody chooses."""
    if choosing is None:
        return reads
    return replace(
        reads,
        answers=True,
        samples=reads.samples or choosing.samples,
        verdicts=reads.verdicts or choosing.verdicts,
        looks=reads.looks | choosing.looks,
        reranks=reads.reranks or choosing.reranks,
        at_end=True,
    )


def fixed_stops(last_rounds: NDArray[np.int16], budget: int) -> NDArray[np.int16]:
    """Return the rounds at which fixed-1 .. fixed-``budget`` stop, (n_questions, budget)."""
    return np.minimum(np.arange(1, budget + 1), last_rounds[:, None]).astype(np.int16)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostAxis:
    """Name the cost that compares policies; a cost without a unit is a count."""

    name: str
    label: str
    unit: str
    reason: str = ""

    @property
    def per_question(self) -> str:
        return f"{self.label} per question{f', {self.unit}' if self.unit else ''}"

    @property
    def head(self) -> tuple[str, str]:
        """Return its name above a column, in two lines."""
        if self.unit:
            return self.label, self.unit
        first, _, last = self.label.rpartition(" ")
        return first, last


ANSWERS_ASSUMED = (
    "the record does not say what its answers took (answer_calls, answer_prompt_tokens): we assume that each "
    "round's single call produced the answer, so a policy that reads no answers pays for the last one only; "
    "if your loop answers in every round anyway, write 0 in answer_calls (import --answers-in-every-round)"
)
_CAPPED = ("llm_calls", "rounds")  # what an unnamed cap is one of
_ALIKE = 1e-9  # a difference of mean costs that rounding gives


KnownCosts = Mapping[str, "Array | None"]
"""Costs (n_questions, n_rounds) by name, each computed when asked for; ``None``: unknown."""


class CostBook:
    """Compute the costs of every stop of a trace set, once for each set of things read."""

    def __init__(
        self,
        traces: TraceSet,
        model: CostModel,
        choosing: CostReads | None = None,
        lengths: Callable[[str], Array] | None = None,
    ) -> None:
        self._traces = traces
        self._record = RecordedUsage(traces, lengths)
        self._model = model
        self._choosing = choosing
        self._at_stops: dict[CostReads, KnownCosts] = {}

    def at_stops(self, reads: CostReads) -> KnownCosts:
        """Return each cost of stopping after each round, (n_questions, n_rounds); ``None``: unknown."""
        reads = paid_together(reads, self._choosing)
        if reads not in self._at_stops:
            self._at_stops[reads] = stop_costs(self._record, reads=reads, model=self._model)
        return self._at_stops[reads]

    def at_least(self, reads: CostReads) -> KnownCosts:
        """Return lower bounds of the cost of stopping after each round or later."""
        reads = paid_together(reads, self._choosing)
        return stop_costs(self._record, reads=reads, model=self._model, answered=False)

    def known(self, axis: CostAxis, reads: CostReads) -> Array:
        """Return the cost of stopping after each round on the chosen axis, (n_questions, n_rounds)."""
        paid = self.at_stops(reads)[axis.name]
        if paid is None:
            raise InternalError(f"cost {axis.name!r} was chosen as the axis and is unknown")
        return paid

    def axis(
        self,
        wanted: str | None,
        readers: Mapping[str, CostReads],
        *,
        capped: bool = False,
        beside: CostBook | None = None,
    ) -> CostAxis:
        """Return the cost ``wanted``; ``None`` takes that of :func:`usual_axis`."""
        everyone = {"fixed-k": CostReads(), **readers}
        if wanted is None:
            of_fixed = self.usual(everyone.values())
            if beside is not None:
                known_beside = beside.usual([CostReads()])
                of_fixed = {name: paid for name, paid in of_fixed.items() if name in known_beside}
            return usual_axis(of_fixed, self._model, capped=capped)
        cost = find_cost(wanted)
        for policy, reads in everyone.items():
            if self.at_stops(reads)[wanted] is None:
                paid = self.at_stops(reads)
                known = ", ".join(name for name in COSTS if paid[name] is not None)
                why = self.why_unknown(wanted, reads)
                raise UsageError(f"{policy}: {why}; known here: {known}")
        return CostAxis(name=cost.name, label=cost.label, unit=cost.unit)

    def usual(self, readings: Iterable[CostReads]) -> dict[str, Array]:
        """Return the mean cost of fixed-1 .. fixed-R, (n_rounds,), for usual costs that all readers know."""
        known = [self.at_stops(reads) for reads in (CostReads(), *readings)]
        stops = fixed_stops(self._traces.last_rounds, self._traces.n_rounds)
        return {
            name: np.take_along_axis(paid, stops - 1, axis=1).mean(axis=0)
            for name in USUAL_COSTS
            if (paid := known[0][name]) is not None
            and all(costs[name] is not None for costs in known[1:])
        }

    def notes(self, axis: CostAxis) -> list[str]:
        notes = [axis.reason] if axis.reason else []
        model, traces = self._model, self._traces
        if model.charge == "published":
            notes.append(
                "costs as in the papers: every round's answer up to the stop counts, read or not"
            )
        elif (
            not traces.origin.run.get("pipeline")
            and not traces.has("answer_calls")
            and any(
                self.at_stops(CostReads())[name] is not None
                for name in ("llm_calls", "prompt_tokens")
            )
        ):
            notes.append(ANSWERS_ASSUMED)
        if axis.name == "usd" and traces.has("usd"):
            notes.append("dollars as billed (column 'usd'), at prices only where it is null")
        if model.prices is not None:
            notes.append(f"prices: {model.prices.summary}")
        together = traces.has("samples") and not traces.has("sample_latency_s")
        if axis.name == "seconds" and together:
            notes.append(
                "seconds are those of the recorded rounds, samples included, also for policies that read "
                "none"
            )
        return notes

    def why_unknown(self, name: str, reads: CostReads) -> str:
        """Say what the record lacks for a cost; empty if nothing."""
        reads = paid_together(reads, self._choosing)
        try:
            cost_matrix(self._record, name, reads=reads, model=self._model)
        except UsageError as error:
            return str(error)
        return ""


def usual_axis(known: Mapping[str, Array], model: CostModel, *, capped: bool = False) -> CostAxis:
    """Choose the cost that compares policies if none is named, and give the reason.

    ``known`` holds usual costs that every policy knows, as means of fixed-1 .. fixed-R, (n_rounds,). The
    first one whose means differ is taken. A cap without a name caps model calls, or rounds.
    """
    fit = (name for name in USUAL_COSTS if name in known and np.ptp(known[name]) > _ALIKE)
    chosen = next((n for n in _CAPPED if n in known) if capped else fit, "rounds")
    reason = ""
    if not capped:
        before = USUAL_COSTS[: USUAL_COSTS.index(chosen)]
        alike = [COSTS[name].label for name in before if name in known]
        if alike:
            reason = f"every fixed-k costs the same in {' and '.join(alike)}"
        elif chosen == "prompt_tokens":
            reason = "the record does not tell of every prompt how much of it was reused"
        elif "prompt_tokens" in before:
            reason = "tokens are not known for every policy"
        reason = reason and f"compared at {COSTS[chosen].label}: {reason} ({model.charge})"
    cost = COSTS[chosen]
    return CostAxis(name=cost.name, label=cost.label, unit=cost.unit, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostChange:
    """Hold the cost of a question at the full budget and under a policy; ``None``: unknown."""

    name: str
    label: str
    full: float | None
    own: float | None

    @property
    def change(self) -> float | None:
        """Return the relative change, negative for savings; ``None`` if unknown or the full cost is 0."""
        return self.own / self.full - 1.0 if self.full and self.own is not None else None


def cost_changes(
    full: Mapping[str, float | None], own: Mapping[str, float | None]
) -> tuple[CostChange, ...]:
    """Compare rounds, model calls, tokens, retrievals, seconds and dollars, given costs by name."""

    def known(name: str) -> bool:
        return full.get(name) is not None and own.get(name) is not None

    tokens = next(filter(known, TOKENS), TOKENS[-1])
    told = {"rounds": "rounds", "calls": "llm_calls", "tokens": tokens}
    told |= {"retrievals": "retrievals", "seconds": "seconds", "usd": "usd"}
    return tuple(
        CostChange(name=name, label=COSTS[cost].label, full=full.get(cost), own=own.get(cost))
        for name, cost in told.items()
    )

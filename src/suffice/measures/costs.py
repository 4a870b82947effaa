"""What candidates pay, and the one cost that they are compared at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from suffice.costs.energy import EnergyModel
from suffice.costs.usage import (
    COSTS,
    USUAL_COSTS,
    CostModel,
    CostReads,
    RecordedUsage,
    StopCosts,
    cost_matrix,
    find_cost,
    stop_costs,
)
from suffice.errors import InternalError, UsageError
from suffice.protocols import Signal, StopPolicy
from suffice.signals.spec import RERANKS, SAMPLES, VERDICTS
from suffice.trace.rounds.table import TraceSet


def cost_reads(specs: Iterable[Signal]) -> CostReads:
    """What a policy that reads these signals pays for."""
    specs = tuple(specs)
    charges = {charge for spec in specs for charge in spec.charges}
    return CostReads(
        answers=any(spec.answers for spec in specs),
        samples=SAMPLES in charges,
        verdicts=VERDICTS in charges,
        reranks=RERANKS in charges,
    )


def policy_reads(policy: StopPolicy, budget: int | None = None) -> CostReads:
    """What a policy pays for that is run to a budget of rounds (``None``: the record's).

    Answer sets are made of what it read at the last round too.
    """
    sets = policy.facts.coverage is not None
    return replace(cost_reads(policy.specs), until=budget, at_end=sets)


def paid_together(reads: CostReads, choosing: CostReads | None) -> CostReads:
    """What whoever reads so much pays for who also chooses among answers; ``None``: nobody chooses.

    An answer can only be returned later if it was made, and what it is chosen by is read at the stop too.
    """
    if choosing is None:
        return reads
    return CostReads(
        answers=True,
        samples=reads.samples or choosing.samples,
        verdicts=reads.verdicts or choosing.verdicts,
        reranks=reads.reranks or choosing.reranks,
        until=reads.until,
        at_end=True,
    )


def fixed_stops(last_rounds: NDArray[np.int16], budget: int) -> NDArray[np.int16]:
    """The rounds at which fixed-1 .. fixed-``budget`` end each question, (n_questions, budget)."""
    return np.minimum(np.arange(1, budget + 1), last_rounds[:, None]).astype(np.int16)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostAxis:
    """The cost that policies are compared at; without a unit it is a count.

    ``reason`` says why it is not the usual one; empty: it is, or was asked for.
    """

    name: str
    label: str
    unit: str
    reason: str = ""

    @property
    def per_question(self) -> str:
        """Its name on an axis."""
        return f"{self.label} per question{f', {self.unit}' if self.unit else ''}"

    @property
    def head(self) -> tuple[str, str]:
        """Its name above a column, in two lines."""
        if self.unit:
            return self.label, self.unit
        first, _, last = self.label.rpartition(" ")
        return first, last


_CAPPED = ("llm_calls", "rounds")  # what an unnamed cap is one of


class CostBook:
    """Costs at every stop of one trace set by what is read; each combination is computed once.

    ``choosing`` is what everybody reads, fixed budgets too, to choose among answers; ``None``: none does.
    """

    def __init__(
        self, traces: TraceSet, model: CostModel, choosing: CostReads | None = None
    ) -> None:
        self._traces = traces
        self._record = RecordedUsage(traces)
        self._model = model
        self._choosing = choosing
        self._at_stops: dict[CostReads, StopCosts] = {}

    def at_stops(self, reads: CostReads) -> StopCosts:
        """Each cost of stopping after each round, (n_questions, n_rounds); ``None``: unknown."""
        reads = paid_together(reads, self._choosing)
        if reads not in self._at_stops:
            self._at_stops[reads] = stop_costs(self._record, reads=reads, model=self._model)
        return self._at_stops[reads]

    def at_least(self, reads: CostReads) -> StopCosts:
        """What stops after each round or any later one cost at least, (n_questions, n_rounds)."""
        reads = paid_together(reads, self._choosing)
        return stop_costs(self._record, reads=reads, model=self._model, answered=False)

    def known(self, axis: CostAxis, reads: CostReads) -> NDArray[np.float64]:
        """What stopping after each round costs at an axis chosen for these reads, (n_questions, n_rounds)."""
        paid = self.at_stops(reads)[axis.name]
        if paid is None:
            raise InternalError(f"cost {axis.name!r} was chosen as the axis and is unknown")
        return paid

    def of_fixed(self, name: str) -> NDArray[np.float64] | None:
        """What fixed-1 .. fixed-R cost each question, (n_questions, n_rounds); ``None``: unknown."""
        paid = self.at_stops(CostReads())[name]
        return None if paid is None else np.take_along_axis(paid, self.fixed_stops - 1, axis=1)

    @cached_property
    def fixed_stops(self) -> NDArray[np.int16]:
        """The rounds at which fixed-1 .. fixed-R end each question, (n_questions, n_rounds)."""
        return fixed_stops(self._traces.last_rounds, self._traces.n_rounds)

    def axis(
        self,
        wanted: str | None,
        readers: Mapping[str, CostReads],
        *,
        capped: bool = False,
        beside: CostBook | None = None,
    ) -> CostAxis:
        """The cost asked for; by default the first of the usual ones that tells fixed-k apart.

        Parameters
        ----------
        wanted
            A name of :data:`suffice.costs.usage.COSTS`; ``None``: one of ``USUAL_COSTS`` there.
        readers
            What each policy reads, by the policy's name.
        capped
            Whether a number caps it: where no cost is named that is one of model calls, or of rounds.
        beside
            Costs of another record that is compared, as the closed book's.

        Raises
        ------
        UsageError
            When the cost asked for is unknown for a policy or the fixed budgets, with what is missing.
        """
        everyone = {"fixed-k": CostReads(), **readers}
        reason = ""
        if wanted is None:
            books = ((self, tuple(everyone.values())), (beside, (CostReads(),)))
            known = [
                name
                for name in USUAL_COSTS
                if all(
                    book.at_stops(reads)[name] is not None
                    for book, readings in books
                    if book is not None
                    for reads in readings
                )
            ]
            wanted, reason = self._usual(known, capped=capped)
        cost = find_cost(wanted)
        for policy, reads in everyone.items():
            if self.at_stops(reads)[wanted] is None:
                self._refuse(wanted, policy, reads)
        return CostAxis(name=cost.name, label=cost.label, unit=cost.unit, reason=reason)

    def _usual(self, known: Sequence[str], *, capped: bool) -> tuple[str, str]:
        """The first of the known that fixed budgets differ in, and why no earlier one of the usual."""
        usual = COSTS[USUAL_COSTS[0]]
        fit = [name for name in known if (name in _CAPPED if capped else self._tells_apart(name))]
        chosen = next(iter(fit), known[0])
        if chosen == usual.name:
            return chosen, ""
        if usual.name in known:
            why = f"every fixed-k costs the same in {usual.label}"
        else:
            why = f"{usual.label} are not known for every policy"
        return chosen, f"compared at {COSTS[chosen].label}: {why} ({self._model.charge})"

    def _tells_apart(self, name: str) -> bool:
        paid = self.of_fixed(name)
        return paid is not None and bool(np.ptp(paid.mean(axis=0)) > 1e-9)

    def notes(self, axis: CostAxis) -> list[str]:
        """What a reader of figures at this cost must know."""
        notes = [axis.reason] if axis.reason else []
        notes += self._charged()
        if self._model.prices is not None:
            notes.append(f"prices: {self._model.prices.summary}")
        if axis.name == "joules" or self._model.energy != EnergyModel():
            notes.append(f"energy: {self._model.energy.summary}")
        apart = self._traces.has("sample_latency_s")
        if axis.name == "seconds" and self._traces.has("samples") and not apart:
            notes.append(
                "seconds are those of the recorded rounds, samples included, also for policies that "
                "read none"
            )
        return notes

    def _charged(self) -> list[str]:
        """How costs are charged, where it is not plain."""
        if self._model.charge == "published":
            return [
                "costs are charged as published: every round's answer up to the stop, read or not"
            ]
        traces = self._traces
        unnamed = not traces.has("answer_calls") and not traces.origin.run.get("pipeline")
        if unnamed and self.at_stops(CostReads())["llm_calls"] is not None:
            return [
                "the record says neither which calls answered (answer_calls) nor what loop made it: the "
                "one call of a round is taken to answer, so a policy that reads no answers pays for one"
            ]
        return []

    def _refuse(self, wanted: str, policy: str, reads: CostReads) -> None:
        reads = paid_together(reads, self._choosing)
        try:
            cost_matrix(self._record, wanted, reads=reads, model=self._model)
        except UsageError as error:
            known = [name for name in COSTS if self.at_stops(reads)[name] is not None]
            raise UsageError(f"{policy}: {error}; known here: {', '.join(known)}") from error


def shared_axis(
    books: Sequence[CostBook],
    wanted: str | None,
    readers: Mapping[str, CostReads],
    *,
    capped: bool = False,
) -> CostAxis:
    """One cost for several parts of a record, see :meth:`CostBook.axis`; rounds where they differ.

    Raises
    ------
    UsageError
        When the cost asked for is unknown somewhere.
    """
    axes = [book.axis(wanted, readers, capped=capped) for book in books]
    return axes[0] if len({axis.name for axis in axes}) == 1 else books[0].axis("rounds", readers)


def mean_costs(
    book: CostBook,
    axis: CostAxis,
    stops: NDArray[np.int16],
    reads: Sequence[CostReads],
    *,
    weighted: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
) -> NDArray[np.float64]:
    """What rules that stop at ``stops`` (n_rules, n_questions) cost a question, (n_rules,).

    ``reads`` is what each of them pays for, of which the axis is known. ``weighted`` gives costs
    (n_questions, n_rounds) as they count in a mean, on records with cut questions.
    """
    costs = np.empty(len(stops))
    rows = np.arange(stops.shape[1])
    for kind in dict.fromkeys(reads):
        paid = book.known(axis, kind)
        paid = paid if weighted is None else weighted(paid)
        for number, read in enumerate(reads):
            if read == kind:
                costs[number] = paid[rows, stops[number] - 1].mean()
    return costs

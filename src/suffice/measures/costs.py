"""What candidates pay, and the one cost that they are compared at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.costs.energy import EnergyModel
from suffice.costs.usage import (
    COSTS,
    CostModel,
    CostReads,
    cost_matrix,
    find_cost,
    round_costs,
)
from suffice.errors import InternalError, UsageError
from suffice.protocols import Signal
from suffice.signals.spec import RERANKS, SAMPLES, VERDICTS
from suffice.trace.rounds.table import TraceSet


def cost_reads(specs: Iterable[Signal]) -> CostReads:
    """What a policy that reads these signals pays for beyond the answers."""
    charges = {charge for spec in specs for charge in spec.charges}
    return CostReads(
        samples=SAMPLES in charges, verdicts=VERDICTS in charges, reranks=RERANKS in charges
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CostAxis:
    """The cost that policies are compared at; without a unit it is a count."""

    name: str
    label: str
    unit: str

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


class CostBook:
    """Cumulative costs of one trace set by what is read; each combination is summed once."""

    def __init__(self, traces: TraceSet, model: CostModel) -> None:
        self._traces = traces
        self._model = model
        self._sums: dict[CostReads, Mapping[str, NDArray[np.float64] | None]] = {}

    def sums(self, reads: CostReads) -> Mapping[str, NDArray[np.float64] | None]:
        """Each cost of rounds 1..t, (n_questions, n_rounds); ``None``: unknown."""
        if reads not in self._sums:
            self._sums[reads] = {
                name: None if values is None else np.cumsum(values, axis=1)
                for name, values in round_costs(
                    self._traces, reads=reads, model=self._model
                ).items()
            }
        return self._sums[reads]

    def axis(self, wanted: str | None, readers: Mapping[str, CostReads]) -> CostAxis:
        """The cost asked for; by default model calls where known for all readers, else rounds.

        Parameters
        ----------
        wanted
            A name of :data:`suffice.costs.usage.COSTS`, or ``None``.
        readers
            What each policy reads, by the policy's name.

        Raises
        ------
        UsageError
            When the cost asked for is unknown for a policy or the fixed budgets, with what is missing.
        """
        everyone = {"fixed-k": CostReads(), **readers}
        if wanted is None:
            known = all(self.sums(reads)["llm_calls"] is not None for reads in everyone.values())
            wanted = "llm_calls" if known else "rounds"
        cost = find_cost(wanted)
        for policy, reads in everyone.items():
            if self.sums(reads)[wanted] is None:
                self._refuse(wanted, policy, reads)
        return CostAxis(name=cost.name, label=cost.label, unit=cost.unit)

    def notes(self, axis: CostAxis) -> list[str]:
        """What a reader of figures at this cost must know."""
        notes = []
        if self._model.prices is not None:
            notes.append(f"prices: {self._model.prices.summary}")
        if axis.name == "joules" or self._model.energy != EnergyModel():
            notes.append(f"energy: {self._model.energy.summary}")
        if axis.name == "seconds" and self._traces.has("samples"):
            notes.append(
                "seconds are those of the recorded rounds, samples included, also for policies that "
                "read none"
            )
        return notes

    def _refuse(self, wanted: str, policy: str, reads: CostReads) -> None:
        try:
            cost_matrix(self._traces, wanted, reads=reads, model=self._model)
        except UsageError as error:
            known = [name for name in COSTS if self.sums(reads)[name] is not None]
            raise UsageError(f"{policy}: {error}; known here: {', '.join(known)}") from error


def shared_axis(
    books: Sequence[CostBook], wanted: str | None, readers: Mapping[str, CostReads]
) -> CostAxis:
    """One cost for several parts of a record: model calls by default only where all know them.

    Raises
    ------
    UsageError
        When the cost asked for is unknown somewhere.
    """
    axes = [book.axis(wanted, readers) for book in books]
    return axes[0] if len({axis.name for axis in axes}) == 1 else books[0].axis("rounds", readers)


def mean_costs(
    book: CostBook, axis: CostAxis, stops: NDArray[np.int16], reads: Sequence[CostReads]
) -> NDArray[np.float64]:
    """What rules that stop at ``stops`` (n_rules, n_questions) cost a question, (n_rules,).

    ``reads`` is what each of them pays for, of which the axis is known.
    """
    costs = np.empty(len(stops))
    rows = np.arange(stops.shape[1])
    for kind in dict.fromkeys(reads):
        paid = book.sums(kind)[axis.name]
        if paid is None:
            raise InternalError(f"cost {axis.name!r} was chosen as the axis and is unknown")
        for number, read in enumerate(reads):
            if read == kind:
                costs[number] = paid[rows, stops[number] - 1].mean()
    return costs

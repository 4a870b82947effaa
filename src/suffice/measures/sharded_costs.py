"""Costs of a record whose usage columns are read a shard at a time, and never held all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import (
    COSTS,
    CostModel,
    CostReads,
    RecordedUsage,
    UnknownCostError,
    UsageFacts,
    stop_costs,
)
from suffice.measures.costs import CostBook, KnownCosts, paid_together
from suffice.trace.rounds.table import TraceSet

if TYPE_CHECKING:
    from suffice.measures.measures import Measures

Array = NDArray[np.float64]
_Given = TypeVar("_Given")


@dataclass(frozen=True, slots=True)
class _Paid:
    """A cost of stopping after each round, (n_questions, n_rounds); NaN throughout: unknown.

    ``whole`` are the facts of the record that the questions are of.
    """

    name: str
    reads: CostReads
    model: CostModel
    whole: UsageFacts

    def __call__(self, traces: TraceSet) -> Array:
        record = RecordedUsage(traces, self.whole)
        try:
            return stop_costs(record, reads=self.reads, model=self.model).known(self.name)
        except UnknownCostError:
            return np.full(traces.exists.shape, np.nan)


@dataclass(frozen=True, slots=True)
class _OfBook(Generic[_Given]):
    """Asks the cost book of a shard something."""

    ask: Callable[[CostBook], _Given]
    model: CostModel
    choosing: CostReads | None
    whole: UsageFacts

    def __call__(self, shard: Measures) -> _Given:
        return self.ask(CostBook(shard.traces, self.model, self.choosing, self.whole))


def _sums_of_usual(
    book: CostBook, readings: tuple[CostReads, ...], n_rounds: int
) -> dict[str, Array]:
    """Of the usual costs that a shard knows, what fixed budgets pay in all, (n_rounds,)."""
    questions, there = book.fixed_stops.shape
    return {
        name: np.pad(paid * questions, (0, n_rounds - there), mode="edge")
        for name, paid in book.usual(readings).items()
    }


def _samples_answer(shard: Measures) -> bool:
    return RecordedUsage(shard.traces).samples_answer


class ShardedCostBook(CostBook):
    """Costs at every stop of a record that is gone through in shards; only those asked for are kept."""

    def __init__(self, measures: Measures, model: CostModel, choosing: CostReads | None) -> None:
        super().__init__(measures.traces, model, choosing)
        self._measures = measures
        self._readings: tuple[CostReads, ...] = ()

    def at_stops(self, reads: CostReads) -> KnownCosts:
        """Each cost of stopping after each round, (n_questions, n_rounds); ``None``: unknown."""
        return _Columns(lambda name: self._column(name, self._paid_by(reads)))

    def usual(self, readings: Iterable[CostReads]) -> dict[str, Array]:
        """As :meth:`CostBook.usual`, in one pass."""
        self._readings = tuple(dict.fromkeys(map(self._paid_by, readings)))
        ask = partial(_sums_of_usual, readings=self._readings, n_rounds=self._traces.n_rounds)
        sums: dict[str, Array] | None = None
        for part in self._of_shards(ask, self._readings):
            known = part if sums is None else sums.keys() & part.keys()
            sums = {
                name: paid if sums is None else sums[name] + paid
                for name, paid in part.items()
                if name in known
            }
        return {name: paid / self._traces.n_questions for name, paid in (sums or {}).items()}

    def why_unknown(self, name: str, reads: CostReads) -> str:
        """What the first shard that lacks something for a cost lacks; empty: none does."""
        ask = partial(CostBook.why_unknown, name=name, reads=self._paid_by(reads))
        return next(filter(None, self._of_shards(ask, [reads])), "")

    def known_names(self, reads: CostReads) -> tuple[str, ...]:
        """The costs that are known for whoever reads so much."""
        ask = partial(CostBook.known_names, reads=self._paid_by(reads))
        known = set(COSTS).intersection(*self._of_shards(ask, [reads]))
        return tuple(name for name in COSTS if name in known)

    def _of_shards(
        self, ask: Callable[[CostBook], _Given], readings: Iterable[CostReads]
    ) -> Iterator[_Given]:
        work = _OfBook(ask, self._model, self._choosing, self._facts(readings))
        return self._measures.of_shards(work)

    def _paid_by(self, reads: CostReads) -> CostReads:
        """With the round at which the whole record ends, which a shard cannot tell."""
        reads = paid_together(reads, self._choosing)
        return replace(reads, until=self._traces.n_rounds) if reads.until is None else reads

    def _column(self, name: str, reads: CostReads) -> Array | None:
        """Of all who read something in one pass."""
        together = tuple(dict.fromkeys((reads, *self._readings)))
        columns = self._measures.derived(
            *(_Paid(name, kind, self._model, self._facts([kind])) for kind in together)
        )
        return None if (np.isnan(columns[0]) & self._traces.exists).any() else columns[0]

    def _facts(self, readings: Iterable[CostReads]) -> UsageFacts:
        draws = any(reads.samples and not reads.answers for reads in readings)
        return replace(self._record_facts, samples_answer=draws and self._samples_answer)

    @cached_property
    def _record_facts(self) -> UsageFacts:
        return self._record.facts(of_samples=False)

    @cached_property
    def _samples_answer(self) -> bool:
        return any(list(self._measures.of_shards(_samples_answer)))


class _Columns(Mapping[str, "Array | None"]):
    """Columns by the name of a cost, computed when asked for."""

    def __init__(self, column: Callable[[str], Array | None]) -> None:
        self._column = column

    def __getitem__(self, name: str) -> Array | None:
        return self._column(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COSTS)

    def __len__(self) -> int:
        return len(COSTS)

"""A trace set measured once: scores, signals, costs and stop rounds, computed when first asked and kept."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import CostModel
from suffice.measures.costs import CostBook
from suffice.measures.scores import Outcomes, outcomes
from suffice.protocols import Signal, StopPolicy
from suffice.scoring import F1Kind
from suffice.signals.table import SignalTable, signal_table
from suffice.trace.rounds.table import TraceSet


class Measures:
    """What is known of a trace set in columns; everything about a question is local to it.

    Parameters
    ----------
    traces
        The recorded questions.
    """

    def __init__(self, traces: TraceSet) -> None:
        self.traces = traces
        self._splits: dict[str, Measures] = {}
        self._scores: dict[F1Kind, Outcomes] = {}
        self._books: dict[CostModel, CostBook] = {}

    @classmethod
    def of(cls, traces: TraceSet | Measures) -> Measures:
        """The measures of a trace set; measures are handed on as they are."""
        return traces if isinstance(traces, Measures) else cls(traces)

    def only_split(self, name: str) -> Measures:
        """The measures of one split's questions."""
        if name not in self._splits:
            self._splits[name] = Measures(self.traces.only_split(name))
        return self._splits[name]

    def scores(self, f1_kind: F1Kind = "hotpotqa") -> Outcomes:
        """What every recorded answer scored."""
        if f1_kind not in self._scores:
            self._scores[f1_kind] = outcomes(self.traces, f1_kind)
        return self._scores[f1_kind]

    def signals(self, specs: Iterable[str | Signal]) -> SignalTable:
        """A table of these signals."""
        return signal_table(self.traces, specs)

    def costs(self, model: CostModel) -> CostBook:
        """Cumulative costs by what is read."""
        if model not in self._books:
            self._books[model] = CostBook(self.traces, model)
        return self._books[model]

    def stop_rounds(self, policy: StopPolicy) -> NDArray[np.int16]:
        """The round each question stops at, clamped to its last recorded one, (n_questions,)."""
        wanted = policy.stop_rounds(self.signals(policy.specs))
        return np.minimum(wanted, self.traces.last_rounds)

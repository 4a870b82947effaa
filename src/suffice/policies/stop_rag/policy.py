"""Stop-RAG as a policy: stop where the learned value of stopping exceeds that of going on (paper 1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.numbers.fields import known
from suffice.policies.method import Preset
from suffice.policies.needs import loop_needs
from suffice.policies.stop_rag.settings import TARGETS, Target
from suffice.policies.stop_rag.threshold import stop_rounds
from suffice.protocols import (
    Action,
    Decision,
    Facts,
    LoopNeeds,
    PolicyTable,
    PolicyView,
    Signal,
)
from suffice.signals.spec import undefined_in_words


class ValueModel(Protocol):
    """A trained network: the two values of a state. Safe to use from several threads."""

    @property
    def specs(self) -> tuple[Signal, ...]:
        """The signals it reads."""
        ...

    @property
    def summary(self) -> str:
        """What it is, in a few words."""
        ...

    def values(
        self, columns: Mapping[str, NDArray[np.float64]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Values of stopping and of going on from its signals, all (n, T); NaN: undefined.

        A state gets the same bits whatever stands beside it: what is replayed is what runs.
        """
        ...

    def to_json(self) -> dict[str, Any]:
        """Its part of a policy file: all but the weights, which it names by their SHA-256."""
        ...

    def weights(self) -> bytes:
        """The weights as a safetensors file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRAGPolicy:
    """Stops at the first round whose ``q_stop - q_cont`` exceeds a threshold, else at the last.

    Section 5.3 of the paper: the threshold is tuned on validation questions, so this is not the greedy
    policy of the network. The rounds decided are ``first`` to ``rounds`` - 1.

    Parameters
    ----------
    model
        The network.
    threshold
        Chosen on validation.
    rounds
        The full budget T it was trained for; there it stops in any case.
    first
        It stops no question before this round.
    target
        What it was trained towards.
    preset
        Whose settings trained it.
    fitted_on, notes
        Provenance, and remarks for people.
    """

    model: ValueModel
    threshold: float
    rounds: int
    first: int = 1
    target: Target = "q-lambda"
    preset: Preset | None = None
    fitted_on: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    kind: ClassVar[str] = "stop-rag"

    def __post_init__(self) -> None:
        if not math.isfinite(self.threshold):
            raise UsageError(f"the threshold must be a finite number, found {self.threshold!r}")
        if self.rounds < 1:
            raise UsageError(f"rounds must be at least 1, found {self.rounds}")
        if not 1 <= self.first <= self.rounds:
            raise UsageError(f"first must be a round from 1 to {self.rounds}, found {self.first!r}")
        if self.target not in TARGETS:
            raise UsageError(f"target must be one of {', '.join(TARGETS)}, found {self.target!r}")

    def from_round(self, first: int) -> StopRAGPolicy:
        """See :class:`suffice.protocols.DelayedPolicy`."""
        return replace(self, first=min(max(first, self.first), self.rounds))

    @property
    def specs(self) -> tuple[Signal, ...]:
        """What its network reads: the texts' values, or the signals it was trained on."""
        return self.model.specs

    @property
    def signals(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(spec.name for spec in self.model.specs)

    @property
    def needs(self) -> LoopNeeds:
        """What its network's signals need of a loop."""
        return loop_needs(self.specs)

    @property
    def facts(self) -> Facts:
        """Its threshold, and what training left to say."""
        return Facts(
            summary=f"stop when q_stop - q_cont > {self.threshold:.6g}, learned towards {self.target} "
            f"by {self.model.summary}"
            + (f", from round {self.first} on" if self.first > 1 else ""),
            fitted_on=self.fitted_on,
            notes=self.notes,
            max_rounds=self.rounds,
            earliest=self.first,
        )

    def decide(self, view: PolicyView) -> Decision:
        """Stop when the difference of the values exceeds the threshold, or the budget is spent."""
        columns = {
            name: np.array([[view.signals[name][view.round - 1]]], np.float64)
            for name in self.signals
        }
        stop, cont = (float(value[0, 0]) for value in self.model.values(columns))
        difference = stop - cont
        values = {
            "q_stop": known(stop),
            "q_cont": known(cont),
            "difference": known(difference),
            "threshold": self.threshold,
        }
        if view.round >= self.rounds:
            reason = f"round {view.round} is the last of the {self.rounds} it was trained for"
            return Decision(action=Action.STOP, reason=reason, values=values)
        if view.round < self.first:
            reason = f"round {view.round} is before round {self.first}, its first to stop at"
            return Decision(action=Action.CONTINUE, reason=reason, values=values)
        if math.isnan(difference):
            missing = "; ".join(
                f"{spec.name} is {undefined_in_words(spec, view.loop)}"
                for spec in self.specs
                if math.isnan(view.signals[spec.name][view.round - 1])
            )
            reason = f"its values are undefined at round {view.round}: {missing}"
            return Decision(action=Action.CONTINUE, reason=reason, values=values)
        stops = difference > self.threshold
        return Decision(
            action=Action.STOP if stops else Action.CONTINUE,
            reason=(
                f"stopping is worth {stop:.3f} and going on {cont:.3f} at round {view.round}: the "
                f"difference {difference:+.3f} is {'above' if stops else 'not above'} "
                f"{self.threshold:+.3f}"
            ),
            values=values,
        )

    def stop_rounds(self, table: PolicyTable) -> NDArray[np.int16]:
        """The first round whose difference exceeds the threshold, (n_questions,), else the last."""
        stop, cont = self.values(table)
        difference = stop - cont
        most = min(self.rounds, table.n_rounds)
        lengths = np.full(table.n_questions, most, np.int16)
        difference[:, : self.first - 1] = np.nan
        return stop_rounds(difference[:, :most], lengths, self.threshold)

    def values(self, table: PolicyTable) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """``q_stop`` and ``q_cont`` of every recorded round, each (n_questions, n_rounds)."""
        return self.model.values({name: table.signal(name) for name in self.signals})

    def weights_file(self) -> bytes:
        """Its network's, as a safetensors file."""
        return self.model.weights()

    def document(self) -> dict[str, Any]:
        """What its file says: all but the weights, which it names by their SHA-256."""
        body: dict[str, Any] = {
            "threshold": self.threshold,
            "rounds": self.rounds,
            "target": self.target,
            "network": self.model.to_json(),
        }
        if self.first > 1:
            body["first"] = self.first
        if self.preset is not None:
            body["preset"] = self.preset
        if self.fitted_on:
            body["fitted_on"] = dict(self.fitted_on)
        if self.notes:
            body["notes"] = list(self.notes)
        return body

"""Candidates replayed on the questions at hand: where they stop, and what they score and pay there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import CostReads, UsageFacts
from suffice.measures.costs import CostBook, paid_together, policy_reads
from suffice.measures.measures import Measures
from suffice.measures.seen import Seen
from suffice.protocols import StopPolicy
from suffice.replay.run.answer_choice import AnswerRounds, answer_rounds, signals_of_part
from suffice.replay.run.answer_sets import Resampling
from suffice.replay.run.cuts import SCORES, AtStops, Reader, seen_beside
from suffice.replay.run.named_policies import NamedPolicy, measure_together
from suffice.replay.run.references import (
    CLOSED_BOOK,
    ORACLES,
    closed_book_costs,
    closed_book_rounds,
    settled,
)
from suffice.scoring import AnswerChoice
from suffice.signals.table import SignalTable, first_stops

if TYPE_CHECKING:
    from suffice.replay.run.engine import ReplaySettings


@dataclass(frozen=True, slots=True)
class Run:
    """One candidate replayed: rounds wanted and taken, (n_questions,) each, and scores and costs there.

    ``answers`` is the round whose answer is returned: the one taken, unless an earlier one is chosen.
    """

    candidate: NamedPolicy
    wanted: NDArray[np.int16]
    stops: NDArray[np.int16]
    answers: NDArray[np.int16]
    read: AtStops


def at_stop(values: NDArray[np.float64], stops: NDArray[np.int16]) -> NDArray[np.float64]:
    """``values`` (n_questions, n_rounds) at each question's stop round, (n_questions,)."""
    return values[np.arange(len(stops)), stops - 1]


class Runner:
    """Replays candidates on the questions of ``measures``, whatever they are a part of."""

    def __init__(
        self,
        measures: Measures,
        candidates: Sequence[NamedPolicy],
        settings: ReplaySettings,
        n_rounds: int,
        whole: UsageFacts | None = None,
    ) -> None:
        self._measures, self._settings, self._n_rounds = measures, settings, n_rounds
        self.candidates = candidates
        part = self._part = whole is not None
        if not part:
            measure_together(measures, candidates, settings.f1_kind)
        self.scored = measures.scores(settings.f1_kind)
        self.choice = AnswerChoice.parse(settings.answer)
        of_fixed = answer_rounds(measures, self.choice, None, part=part)
        self.answers: Mapping[str, AnswerRounds] = {
            candidate.name: answer_rounds(measures, self.choice, candidate.policy, part=part)
            for candidate in candidates
        }
        self.reads: Mapping[str, CostReads] = {
            candidate.name: paid_together(
                self._reads(candidate), self.answers[candidate.name].reads
            )
            for candidate in candidates
        }
        self.returned = of_fixed.returned(self.scored)
        """What stopping after each round scores for fixed budgets."""
        self.draws = Resampling(settings.resamples, settings.seed)
        seen = seen_beside(measures, [candidate.policy for candidate in candidates])
        labelled, units = self.scored.labelled, measures.units
        self.reader = Reader(seen, settings.weights, labelled, units, self.draws)
        self.book = (
            measures.costs(settings.cost_model, of_fixed.reads)
            if whole is None
            else CostBook(measures.traces, settings.cost_model, of_fixed.reads, whole)
        )

    @property
    def seen(self) -> Seen:
        """How far the questions were seen."""
        return self.reader.seen

    def beside(self) -> CostBook | None:
        """The costs of the closed book, where it is among the candidates."""
        if all(candidate.kind != CLOSED_BOOK for candidate in self.candidates):
            return None
        return closed_book_rounds(self._measures).costs(self._settings.cost_model)

    def run(self, candidate: NamedPolicy, axis: str | None) -> Run:
        """One candidate's stops, scores and costs; ``axis`` is the cost that must be known."""
        if candidate.kind == CLOSED_BOOK:
            return self._closed_book(candidate, axis)
        last, seen, reader = self._measures.traces.last_rounds, self.seen, self.reader
        if candidate.policy is None:
            name = candidate.name.partition("#")[0]
            ends = np.where(seen.cut | seen.explored, seen.budget, last).astype(np.int16)
            wanted = ORACLES[name](self.returned, ends)
            reader = reader.looking_ahead(settled(name, self.returned, seen))
        elif self._part:
            wanted = first_stops(candidate.policy, self.table(candidate.policy))
        else:
            wanted = self._measures.wanted_rounds(candidate.policy)
        if candidate.max_rounds is not None:
            most = min(candidate.max_rounds, np.iinfo(np.int16).max)
            wanted = np.minimum(wanted, most).astype(np.int16)
        stops, answers = np.minimum(wanted, last), self.answers[candidate.name]
        read = reader.read(
            answers.returned(self.scored), wanted, self.book, self.reads[candidate.name]
        )
        return Run(candidate, wanted, stops, answers.at(stops), read)

    def _closed_book(self, candidate: NamedPolicy, axis: str | None) -> Run:
        rounds = closed_book_rounds(self._measures)
        costs = closed_book_costs(rounds, self._settings.cost_model, axis)
        at = rounds.traces.last_rounds
        none = np.zeros(self._measures.traces.n_questions, np.int16)
        scored = rounds.scores(self._settings.f1_kind)
        read = AtStops(
            scores={name: at_stop(getattr(scored, name), at) for name in SCORES},
            costs={
                name: None if paid is None else at_stop(paid, at) for name, paid in costs.items()
            },
        )
        return Run(candidate, none, none, none, read)

    def _reads(self, candidate: NamedPolicy) -> CostReads:
        """What a candidate pays for; an oracle must have seen the answers that it chooses among.

        At the budget of the record nothing is read, whatever round a part of it ends in.
        """
        budget = min(candidate.max_rounds or self._n_rounds, self._n_rounds)
        if candidate.policy is None:
            return CostReads(answers=True, until=budget)
        return policy_reads(candidate.policy, budget)

    def table(self, policy: StopPolicy) -> SignalTable:
        """What the policy reads, in as many rounds as the record has."""
        if not self._part:
            return self._measures.signals(policy.specs)
        return signals_of_part(self._measures, policy.specs, self._n_rounds)

    def unscored(self, run: Run) -> int:
        """Labelled questions of which it is not known what the run scores."""
        unknown = np.isnan(run.read.scores[self.scored.metric.score]) & self.scored.labelled
        if run.read.past is not None:
            unknown &= run.read.past.weights > 0
        return int(unknown.sum())

    def beyond(self, run: Run) -> int:
        """Questions that end before the round that the run wanted."""
        return int(((run.wanted > self.seen.last) & ~self.seen.cut).sum())

    def fixed_scores(self) -> NDArray[np.float64]:
        """What fixed-1 .. fixed-R score, (n_questions, n_rounds), NaN where that is not known."""
        returned, name = self.returned, self.returned.metric.score
        return self._fixed(returned.compared, lambda at: self.reader.score(returned, name, at)[0])

    def fixed_cost(self, name: str) -> NDArray[np.float64] | None:
        """What fixed-1 .. fixed-R cost, alike; ``None``: unknown."""
        paid, floors = self.book.at_stops(CostReads())[name], self.book.at_least(CostReads())
        if paid is None:
            return None
        return self._fixed(paid, lambda at: self.reader.cost(name, paid, at, floors)[0])

    def _fixed(
        self,
        values: NDArray[np.float64],
        at: Callable[[NDArray[np.int16]], NDArray[np.float64]],
    ) -> NDArray[np.float64]:
        seen = self.seen
        if not seen.cut.any():
            return self._wide(seen.matrix(values))
        every = np.arange(1, values.shape[1] + 1, dtype=np.int16)
        return self._wide(np.column_stack([at(np.full_like(seen.last, k)) for k in every]))

    def _wide(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The last round of these questions stands for the later ones of the record."""
        more = self._n_rounds - values.shape[1]
        return np.pad(values, ((0, 0), (0, more)), mode="edge") if more > 0 else values

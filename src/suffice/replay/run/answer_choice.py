"""Which answer a loop returns after its stop: a round at or before it, by what is known there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import CostReads
from suffice.errors import UsageError
from suffice.measures.costs import cost_reads
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.protocols import ConfidentPolicy, StopPolicy
from suffice.scoring import AnswerChoice
from suffice.signals.table import specs_for


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRounds:
    """The round, from 1, whose answer is returned for every stop, (n_questions, n_rounds).

    ``reads`` is what choosing it pays for; ``None``: nothing is chosen, the stop's answer is returned.
    """

    rounds: NDArray[np.int16]
    reads: CostReads | None = None

    def at(self, stops: NDArray[np.int16]) -> NDArray[np.int16]:
        """The answer rounds of these stops, (n_questions,)."""
        return self.rounds[np.arange(len(stops)), stops - 1]

    def returned(self, scored: Outcomes) -> Outcomes:
        """What stopping after each round scores."""
        if self.reads is None:
            return scored
        columns = self.rounds.astype(np.intp) - 1
        em, f1, acc = (
            np.take_along_axis(values, columns, axis=1)
            for values in (scored.em, scored.f1, scored.acc)
        )
        return replace(scored, em=em, f1=f1, acc=acc)


def answer_rounds(
    measures: Measures, choice: AnswerChoice, policy: StopPolicy | None
) -> AnswerRounds:
    """Whose answer a policy returns that stops after any round; ``None``: one that reads nothing.

    Of rounds 1 to the stop the one with the greatest or least value, of equal ones the latest. A round
    with an undefined value, or without the answer that is scored, is never chosen; where that leaves none it
    is the stop's.

    Raises
    ------
    UsageError
        For a signal that the record cannot give, and for a choice where agreement is compared.
    """
    n_questions, n_rounds = measures.traces.n_questions, measures.traces.n_rounds
    latest = np.broadcast_to(np.arange(1, n_rounds + 1, dtype=np.int16), (n_questions, n_rounds))
    if choice.rule == "latest":
        return AnswerRounds(rounds=latest)
    if measures.metric.agreement:
        raise UsageError(
            "agreement is with the full budget's latest answer, so no other answer can be chosen; compare "
            "by gold answers or scores (--metric f1, --metric score), or leave out --answer"
        )
    values, reads = _preference(measures, choice, policy)
    if values is None:
        return AnswerRounds(rounds=latest)
    usable = np.isfinite(values) & measures.traces.exists
    if measures.metric.gold:
        usable &= measures.traces.answered
    return AnswerRounds(rounds=running_best(np.where(usable, values, np.nan)), reads=reads)


def _preference(
    measures: Measures, choice: AnswerChoice, policy: StopPolicy | None
) -> tuple[NDArray[np.float64] | None, CostReads]:
    """How much each round's answer is preferred, (n_questions, n_rounds), and what that reads."""
    if choice.signal:
        table = measures.signals([choice.signal])
        values = table.signal(choice.signal)
        return (
            -values if choice.rule == "lowest" else values,
            cost_reads(specs_for(measures.traces, [choice.signal])),
        )
    if not isinstance(policy, ConfidentPolicy):
        return None, CostReads()
    return policy.confidence(measures.signals(policy.specs)), cost_reads(policy.specs)


def chosen_by_signal(measures: Measures, text: str) -> AnswerRounds:
    """Whose answer is returned, whatever policy stops; ``text`` is that of an answer choice.

    Raises
    ------
    UsageError
        Where that depends on the policy, and as for :func:`answer_rounds`.
    """
    choice = AnswerChoice.parse(text)
    if choice.rule == "most-confident":
        raise UsageError(
            "rules that are searched or certified are compared by answers that are chosen alike, and "
            "confidence is each policy's own; choose by a signal: --answer highest:NAME"
        )
    return answer_rounds(measures, choice, None)


def running_best(values: NDArray[np.float64]) -> NDArray[np.int16]:
    """For every round the one up to it with the greatest value, from 1; NaN is none, of equals the latest.

    >>> running_best(np.array([[np.nan, 2.0, 1.0, 2.0, np.nan]]))
    array([[1, 2, 2, 4, 4]], dtype=int16)
    """
    best = np.full(len(values), -np.inf)
    at = np.zeros(len(values), np.int16)
    rounds = np.empty(values.shape, np.int16)
    for number, column in enumerate(values.T, start=1):
        better = column >= best
        best, at = np.where(better, column, best), np.where(better, number, at).astype(np.int16)
        rounds[:, number - 1] = np.where(at == 0, number, at)
    return rounds


def answer_notes(choice: AnswerChoice, answers: Mapping[str, AnswerRounds]) -> Sequence[str]:
    """Which answer was scored, where that is not the stop's; by what tables call the policies."""
    if choice.rule == "latest":
        return []
    by = (
        f"the {choice.rule} {choice.signal}"
        if choice.signal
        else "the policy's greatest confidence"
    )
    notes = [
        f"the answer returned is that of the round up to the stop with {by}, of equal ones the latest; "
        "whoever chooses pays for the answers of all these rounds"
    ]
    unsure = [name for name, of_policy in answers.items() if of_policy.reads is None]
    if unsure:
        notes.append(
            f"no confidence is known of {', '.join(unsure)}: the latest answer is returned; to choose by a "
            "signal: --answer highest:NAME"
        )
    return notes

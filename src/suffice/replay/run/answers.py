"""Which answer a loop returns after its stop, and what the answer sets of a policy are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import (
    AnswerSet,
    ConfidentPolicy,
    CoveragePolicy,
    Retention,
    Signal,
    StopPolicy,
)
from suffice.costs.usage import CostReads
from suffice.errors import UsageError
from suffice.measures.costs import cost_reads
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.results.as_json import as_json, fields_as_json
from suffice.scoring import AnswerChoice
from suffice.signals.table import answer_votes, declared
from suffice.stats.intervals import Interval, percentile_interval, resampled_means
from suffice.stats.series import running_best
from suffice.stats.units import unit_means

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Resampling:
    """How often questions are resampled, and from which seed."""

    resamples: int = 1000
    seed: int = 42


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSetResult:
    """What a policy's answer sets are worth."""

    alpha: float
    sets: tuple[AnswerSet, ...] = field(metadata={"json": None})
    coverage: Interval | None
    set_size: Interval
    answer_rate: float
    objective: float | None
    retention: Retention | None
    notes: tuple[str, ...] = field(default=(), metadata={"json": None})

    def to_json(self, question_ids: Sequence[str] | None = None) -> dict[str, Any]:
        """Its part of the entry of ``replay --json``; with ids also the set of every question."""
        entry = {
            **fields_as_json(self),
            "coverage": None if self.coverage is None else self.coverage.estimate,
            "coverage_interval": as_json(self.coverage),
            "set_size": self.set_size.estimate,
            "set_size_interval": as_json(self.set_size),
        }
        if question_ids is not None:
            entry["sets"] = dict(zip(question_ids, as_json(self.sets), strict=True))
        return entry


def answer_sets(
    policy: CoveragePolicy, measures: Measures, stops: NDArray[np.int16], draws: Resampling
) -> AnswerSetResult | None:
    """The sets of every question at its stop round (n_questions,), and what they are worth."""
    promise = policy.facts.coverage
    if promise is None:
        return None
    recorded = policy.recorded_sets(measures.traces, measures.signals(policy.specs), stops)
    if not measures.metric.gold:
        notes = (*recorded.notes, "coverage and objective need gold answers")
        recorded = replace(recorded, covered=None, objective=None, notes=notes)
    coverage = None
    if recorded.covered is not None:
        units = measures.units[measures.labelled]
        coverage = _interval(unit_means(recorded.covered.astype(np.float64), units), draws)
    told = np.array([[one.size, not one.cannot_answer] for one in recorded.sets], np.float64)
    means = unit_means(told.reshape(-1, 2), measures.units)
    return AnswerSetResult(
        alpha=promise.alpha,
        sets=recorded.sets,
        coverage=coverage,
        set_size=_interval(means[:, 0], draws),
        answer_rate=float(means[:, 1].mean()),
        objective=recorded.objective,
        retention=recorded.retention,
        notes=recorded.notes,
    )


def _interval(values: NDArray[np.float64], draws: Resampling) -> Interval:
    means = resampled_means(values[:, None], resamples=draws.resamples, seed=draws.seed)
    return percentile_interval(float(values.mean()), means[:, 0])


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

    Where ``choice`` is the latest answer, the policy's own choice holds.

    Of rounds 1 to the stop the one with the greatest or least value, of equal ones the latest or the first;
    or the latest of those whose answer was given most often. A round with an undefined value, or without the
    answer that is scored, is never chosen; where that leaves none it is the stop's.
    """
    n_questions, n_rounds = measures.traces.n_questions, measures.traces.n_rounds
    latest = np.broadcast_to(np.arange(1, n_rounds + 1, dtype=np.int16), (n_questions, n_rounds))
    if policy is not None:
        choice = choice.or_own(policy.needs.returns)
    if choice.rule == "latest":
        return AnswerRounds(rounds=latest)
    if measures.metric.agreement:
        raise UsageError(
            "agreement is with the full budget's latest answer, so no other answer can be chosen; compare "
            "by gold answers or scores (--metric f1, --metric score), or leave out --answer, and policies "
            "that choose one"
        )
    values, reads = _preference(measures, choice, policy)
    if values is None:
        return AnswerRounds(rounds=latest)
    usable = np.isfinite(values) & measures.traces.exists
    if measures.metric.gold:
        usable &= measures.traces.answered
    best = running_best(np.where(usable, values, np.nan), first=choice.first)
    return AnswerRounds(rounds=best, reads=reads)


def _preference(
    measures: Measures, choice: AnswerChoice, policy: StopPolicy | None
) -> tuple[NDArray[np.float64] | None, CostReads]:
    """How much each round's answer is preferred, (n_questions, n_rounds), and what that reads."""
    traces = measures.traces
    if choice.rule == "majority":
        return measures.derived(answer_votes)[0], cost_reads([declared("abstained", traces)])
    if choice.signal:
        specs: Sequence[Signal] = (declared(choice.signal, traces),)
    elif isinstance(policy, ConfidentPolicy):
        specs = policy.specs
    else:
        return None, CostReads()
    table = measures.signals(specs)
    if isinstance(policy, ConfidentPolicy) and not choice.signal:
        return policy.confidence(table), cost_reads(specs)
    values = table.signal(specs[0].name)
    return -values if choice.rule == "lowest" else values, cost_reads(specs)


def chosen_by_signal(measures: Measures, text: str) -> AnswerRounds:
    """Whose answer is returned, whatever policy stops; ``text`` is that of an answer choice."""
    choice = AnswerChoice.parse(text)
    if choice.rule == "most-confident":
        raise UsageError(
            "rules that are searched or certified are compared by answers that are chosen alike, and "
            "confidence is each policy's own; choose by a signal: --answer highest:NAME"
        )
    return answer_rounds(measures, choice, None)


def answer_notes(
    choice: AnswerChoice,
    chooses: Mapping[str, bool],
    policies: Mapping[str, StopPolicy | None] = MappingProxyType({}),
) -> Sequence[str]:
    """Which answer was scored, where that is not the stop's."""
    if choice.rule == "latest":
        own = {
            name: choice.or_own(policy.needs.returns)
            for name, policy in policies.items()
            if policy is not None
        }
        return [
            f"{name} returns the answer of the round up to its stop with {by}, and pays for the answers "
            "of all these rounds"
            for name, by in own.items()
            if by != choice
        ]
    notes = [
        f"the answer returned is that of the round up to the stop with {choice}; "
        "whoever chooses pays for the answers of all these rounds"
    ]
    unsure = [name for name, known in chooses.items() if not known]
    if unsure:
        notes.append(
            f"no confidence is known of {', '.join(unsure)}: the latest answer is returned; to choose by a "
            "signal: --answer highest:NAME"
        )
    return notes

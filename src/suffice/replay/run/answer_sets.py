"""Answer sets of MiCP on recorded rounds: how often they hold the right answer, and how large they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.measures.measures import Measures
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_means
from suffice.policies.micp.notes import loop_differences
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.micp.relevance_filter import RelevanceFilter
from suffice.policies.micp.relevance_fit import Retention, retention, scored_by
from suffice.policies.micp.samples import read_samples
from suffice.policies.micp.stage2 import evaluate_stops
from suffice.protocols import AnswerSet
from suffice.signals.samples import sample_counts
from suffice.signals.table import SignalTable
from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True)
class Draws:
    """How often questions are resampled, and from which seed."""

    resamples: int = 1000
    seed: int = 42


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSetResult:
    """What a policy's answer sets are worth.

    Parameters
    ----------
    alpha
        The error promised.
    sets
        One a question.
    coverage
        Share of labelled questions whose set holds the right answer, or "Can't Answer" where no
        recorded round up to the budget samples it; ``None``: none is labelled.
    set_size
        Mean members, "Can't Answer" counted.
    answer_rate
        Share of sets without "Can't Answer".
    objective
        The composite of paper 3, Eq. 14, over labelled questions; low is good.
    retention
        What the policy's passage filter would do to the recorded passages; ``None``: it has none, the
        passages lack its relevance, or a filter dropped some of them unrecorded.
    notes
        What a reader must know.
    """

    alpha: float
    sets: tuple[AnswerSet, ...]
    coverage: Interval | None
    set_size: Interval
    answer_rate: float
    objective: float | None
    retention: Retention | None
    notes: tuple[str, ...] = ()

    def to_json(self, question_ids: tuple[str, ...] | None = None) -> dict[str, Any]:
        """Its part of the entry of ``replay --json``; with ids also the set of every question."""
        entry: dict[str, Any] = {
            "alpha": self.alpha,
            "coverage": None if self.coverage is None else self.coverage.estimate,
            "coverage_interval": None if self.coverage is None else self.coverage.to_json(),
            "set_size": self.set_size.estimate,
            "set_size_interval": self.set_size.to_json(),
            "answer_rate": self.answer_rate,
            "objective": self.objective,
            "retention": None if self.retention is None else self.retention.to_json(),
        }
        if question_ids is not None:
            entry["sets"] = {
                name: each.to_json() for name, each in zip(question_ids, self.sets, strict=True)
            }
        return entry


def answer_sets(
    policy: MiCPPolicy, measures: Measures, stops: NDArray[np.int16], draws: Draws
) -> AnswerSetResult:
    """The sets of every question at its stop round (n_questions,), and what they are worth."""
    traces, table = measures.traces, measures.signals(policy.specs)
    fired = policy.fired(table)
    sets = tuple(_sets(policy, traces, stops, (fired > 0) & (fired <= stops)))
    sizes = np.array([float(each.size) for each in sets])
    labelled = np.array([bool(each.answers) for each in traces.gold], bool)
    coverage = objective = None
    if labelled.any():
        data = read_samples(measures.take(labelled), policy)
        # a record that ends before the budget is no stop: nothing is sampled after it
        cut = np.where(stops < traces.last_rounds, stops, policy.rounds)
        found = evaluate_stops(data, fired[labelled], policy.final, at_most=cut[labelled])
        coverage = _interval(found.covered.astype(np.float64), draws)
        objective = found.composite(float(policy.budget.get("weight", 1.0)))
    chosen = policy.filter
    return AnswerSetResult(
        alpha=policy.alpha,
        sets=sets,
        coverage=coverage,
        set_size=_interval(sizes, draws),
        answer_rate=float(np.mean([not each.cannot_answer for each in sets])),
        objective=objective,
        retention=None
        if chosen is None or _dropped(traces) or scored_by(traces) != chosen.relevance
        else retention(traces, chosen),
        notes=tuple(_notes(policy, traces, table)),
    )


def _dropped(traces: TraceSet) -> bool:
    """Whether a filter dropped passages when these rounds were recorded."""
    return traces.origin.run.get("passage_filter") is not None


def _dropped_by(traces: TraceSet, chosen: RelevanceFilter) -> bool:
    """Whether it was this filter."""
    stated, wanted = traces.origin.run.get("passage_filter"), chosen.to_json()
    return isinstance(stated, dict) and all(
        stated.get(name) == wanted[name] for name in ("threshold", "relevance")
    )


def _sets(
    policy: MiCPPolicy, traces: TraceSet, stops: NDArray[np.int16], early: NDArray[np.bool_]
) -> Iterator[AnswerSet]:
    columns = ["samples", "sample_clusters", "signals"]
    for index, views in enumerate(traces.views(columns)):
        rounds = views[int(stops[index]) - 1].rounds
        yield policy.answer_set(rounds, stopped=bool(early[index]))


def _interval(values: NDArray[np.float64], draws: Draws) -> Interval:
    means = resampled_means(values[:, None], resamples=draws.resamples, seed=draws.seed)
    return percentile_interval(float(values.mean()), means[:, 0])


def _notes(policy: MiCPPolicy, traces: TraceSet, table: SignalTable) -> Iterator[str]:
    short = int((traces.last_rounds < policy.rounds).sum())
    if short:
        yield (
            f"{short} questions hold fewer than the {policy.rounds} rounds it expects; they end "
            'with "Can\'t Answer" unless an earlier round stops them'
        )
    counts = sample_counts(traces)[:, : policy.rounds]
    counts = np.unique(counts[~np.isnan(counts)]).astype(int)
    if counts.tolist() != [policy.samples]:
        found = ", ".join(map(str, counts.tolist()))
        yield (
            f"rounds hold {found} samples and it was calibrated on {policy.samples}: its promise does "
            "not hold here"
        )
    for each in loop_differences(policy, traces.origin.run):
        yield f"its promise may not hold here: {each}"
    if policy.filter is not None and policy.filtered:
        if not _dropped_by(traces, policy.filter):
            yield (
                "it was calibrated on filtered passages and these rounds were recorded without that "
                "filter: its promise does not hold here"
            )
    elif _dropped(traces):
        yield (
            "it was calibrated on unfiltered passages and these rounds were recorded with a filter: "
            "its promise does not hold here"
        )
    tied = _ties(policy, table)
    if policy.preset == "published" and tied:
        yield f"ties prevented a stop in {tied} rounds: the published rule is strict"


def _ties(policy: MiCPPolicy, table: SignalTable) -> int:
    """Rounds, before the stop, that lie exactly on their threshold."""
    scores, fired = policy.scores(table), policy.fired(table)
    count = 0
    for number, threshold in enumerate(policy.stops[: table.n_rounds], start=1):
        running = (fired == 0) | (fired >= number)
        count += int((running & (scores[:, number - 1] == threshold.value)).sum())
    return count

"""MiCP's view of sampled answers: agreement, confidence of right clusters, and answer sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import AnswerSet, PolicyTable, RecordedSets
from suffice.errors import DataError, UsageError, counted
from suffice.measures.measures import Measures
from suffice.measures.scores import gold_answers
from suffice.policies.micp.micp_settings import UNSTATED_WEIGHT
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.micp.relevance_filter import retention, scored_by
from suffice.policies.micp.stage2 import Sampled, evaluate_stops
from suffice.scoring import Match
from suffice.signals.columns.answer_columns import ScoredAnswers
from suffice.signals.columns.arrays import Texts
from suffice.signals.columns.rounds import RoundColumns, blocks, only_columns
from suffice.signals.samples import (
    Clustering,
    cluster_of_samples,
    entropy_signal,
    sample_counts,
    sample_forms,
)
from suffice.stats.units import Array, Mask, lots
from suffice.trace.rounds.labels import labelled
from suffice.trace.rounds.trace_set import TraceSet


def read_samples(
    questions: TraceSet | Measures, draft: MiCPPolicy, scores: Array | None = None
) -> Sampled:
    """Return scores and confidences of right clusters for labeled questions."""
    measures = Measures.of(questions)
    traces = measures.traces
    if scores is None:
        scores = draft.scores(measures.signals(draft.specs))
    n, rounds, ids = traces.n_questions, draft.rounds, traces.question_ids
    score = np.full((n, rounds), np.nan)
    there = min(rounds, traces.n_rounds)
    score[:, :there] = scores[:, :there]
    (shares,) = measures.derived(_RightShares(draft.clusters.by, draft.match, rounds))
    shares = shares[:, :there]
    if draft.penalty:
        spread = measures.signals([entropy_signal(draft.clusters.by)]).signal("normalized_entropy")
        shares = shares - draft.penalty * np.nan_to_num(spread[:, :there])
    gold_confidence = np.full((n, rounds), -np.inf)
    gold_confidence[:, :there] = np.where(np.isnan(shares), -np.inf, shares)
    return Sampled(
        score=score,
        best_gold=np.maximum.accumulate(gold_confidence, axis=1),
        draws=np.stack([lots(f"{draft.seed}:{t}", ids) for t in range(1, rounds + 1)], axis=1),
    )


@dataclass(frozen=True, slots=True)
class _RightShares:
    """The share of the largest right cluster among a round's samples, (n_questions, at most ``rounds``)."""

    by: Clustering
    match: Match
    rounds: int

    def __call__(self, traces: TraceSet) -> Array:
        shares = np.full((min(self.rounds, traces.n_rounds), traces.n_questions), np.nan).T
        start = 0
        for block in blocks(only_columns(traces, "gold_answers", "samples", "sample_clusters")):
            found = self._of(block)
            shares[start : start + len(found), : found.shape[1]] = found
            start += len(found)
        return shares

    def _of(self, traces: TraceSet) -> Array:
        table = traces.table
        early = replace(traces, table=table.filter(table.column("round").to_numpy() <= self.rounds))
        rounds = RoundColumns(early)
        samples, forms = rounds.lists("samples"), rounds.once(sample_forms)
        clusters = cluster_of_samples(rounds, self.by)
        said = np.flatnonzero(forms.codes != forms.code_of(""))
        rows = samples.rows[said]
        drawn = Texts.of(samples.values).take(said)
        scored = ScoredAnswers(drawn, gold_answers(early), rounds.question[rows])
        least = self.match.f1
        right = scored.score("em") == 1.0 if least is None else scored.score("f1") >= least
        chosen, first = np.unique(clusters[said[right]], return_index=True)
        numbers, sizes = np.unique(clusters, return_counts=True)
        largest = np.zeros(rounds.n_rows, np.int64)
        np.maximum.at(largest, rows[right][first], sizes[np.searchsorted(numbers, chosen)])
        shares = rounds.undefined()
        np.divide(largest, samples.lengths, out=shares, where=largest > 0)
        return early.dense(shares)


def samples_a_round(measures: Measures, rounds: int) -> int:
    """Return m, the number of samples in every round up to T of every question."""
    traces = measures.traces
    if not traces.has("samples"):
        raise UsageError(
            f"micp needs column samples, which {traces.origin.source} does not hold; record with "
            "suffice record --samples 10"
        )
    (counts,) = measures.derived(sample_counts)
    counts = counts[:, :rounds]
    expected = counts[0, 0]
    others = np.argwhere(~np.isnan(counts) & (counts != expected))
    if len(others):
        question, number = others[0]
        raise DataError(
            f"round {number + 1} of question {traces.question_ids[question]!r} holds "
            f"{counts[question, number]:.0f} samples and round 1 of question "
            f"{traces.question_ids[0]!r} {expected:.0f}; micp needs the same number everywhere: record "
            "those questions again with one --samples",
            file=traces.origin.source,
            column="samples",
        )
    if expected == 0:
        raise UsageError(f"no samples in {traces.origin.source}; record with --samples 10")
    return int(expected)


# --- its answer sets on recorded rounds ------------------------------------------------------------
def recorded_sets(
    policy: MiCPPolicy, traces: TraceSet, table: PolicyTable, stops: NDArray[np.int16]
) -> RecordedSets:
    """Return the sets of every question at its stop round (n_questions,), scored."""
    fired = policy.fired(table)
    answerable = labelled(traces)
    covered = objective = None
    if answerable.any():
        data = read_samples(traces.take(answerable), policy, policy.scores(table)[answerable])
        # a record that ends before the budget is no stop: nothing is sampled after it
        cut = np.where(stops < traces.last_rounds, stops, policy.rounds)
        worth = evaluate_stops(data, fired[answerable], policy.final, at_most=cut[answerable])
        covered = worth.covered
        objective = worth.composite(float(policy.budget.get("weight", UNSTATED_WEIGHT)))
    chosen, dropped = policy.filter, traces.origin.run.get("passage_filter")
    kept = None
    if chosen is not None and dropped is None and scored_by(traces) == chosen.relevance:
        kept = retention(traces, chosen)
    return RecordedSets(
        sets=tuple(_sets(policy, traces, stops, (fired > 0) & (fired <= stops))),
        covered=covered,
        objective=objective,
        retention=kept,
        notes=tuple(_notes(policy, traces, table)),
    )


def _sets(
    policy: MiCPPolicy, traces: TraceSet, stops: NDArray[np.int16], early: Mask
) -> Iterator[AnswerSet]:
    columns = ["samples", "sample_clusters", "signals"]
    for index, views in enumerate(traces.views(columns)):
        rounds = views[int(stops[index]) - 1].rounds
        yield policy.answer_set(rounds, stopped=bool(early[index]))


def _notes(policy: MiCPPolicy, traces: TraceSet, table: PolicyTable) -> Iterator[str]:
    short = int((traces.last_rounds < policy.rounds).sum())
    if short:
        yield (
            f"{counted(short, 'question')} of fewer than the {counted(policy.rounds, 'round')} it expects, "
            'ending with "Can\'t Answer" unless an earlier round stops'
        )
    counts = sample_counts(traces)[:, : policy.rounds]
    counts = np.unique(counts[~np.isnan(counts)]).astype(int)
    if counts.tolist() != [policy.samples]:
        recorded = ", ".join(map(str, counts.tolist()))
        yield (
            f"rounds hold {recorded} samples and it was calibrated on {policy.samples}: its promise does "
            "not hold here"
        )
    for difference in policy.facts.differences(traces.origin.run):
        yield f"its promise may not hold here: {difference}"
    dropped = traces.origin.run.get("passage_filter")
    if policy.filter is not None and policy.filtered:
        wanted, stated = policy.filter, dropped if isinstance(dropped, dict) else {}
        limit = None if wanted.threshold == -np.inf else wanted.threshold
        if (stated.get("threshold"), stated.get("relevance")) != (limit, wanted.relevance):
            yield (
                "it was calibrated on filtered passages and these rounds were recorded without that "
                "filter: its promise does not hold here"
            )
    elif dropped is not None:
        yield (
            "it was calibrated on unfiltered passages and these rounds were recorded with a filter: "
            "its promise does not hold here"
        )
    if policy.preset != "published":
        return
    scores, fired = policy.scores(table), policy.fired(table)
    tied = 0
    for number, threshold in enumerate(policy.stops[: table.n_rounds], start=1):
        running = (fired == 0) | (fired >= number)
        tied += int((running & (scores[:, number - 1] == threshold.value)).sum())
    if tied:
        yield f"ties prevented a stop in {counted(tied, 'round')}: the published rule is strict"

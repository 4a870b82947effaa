"""How well agreement with the full budget ranks policies against truth, on labelled records.

``python -m benchmarks.agreement_ranking RECORD [RECORD ...]`` prints one row a record, and one for each of
its question types where it has several of 200 questions. The policies are the family of ``suffice choose
--family rule``: every fixed budget, and every OR and AND of up to two conditions over the signals the record
gives without a model, three quantiles each, chosen without a label; those that stop all questions alike
count once. Costs are rounds. Intervals are 95% percentile intervals over resampled questions, the same ones
for truth and agreement.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau, spearmanr

from suffice.measures.measures import Measures
from suffice.policies.defaults import FIT_SPLIT
from suffice.replay.choose.families import build_family
from suffice.replay.run.frontier import interpolate
from suffice.stats.intervals import Interval, percentile_interval, resampled_means
from suffice.trace.rounds.reader import read_traces

RESAMPLES, SEED, FEWEST = 500, 42, 200
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Each policy's score and rounds on each question, (n_questions, n_policies), of truth and agreement."""

    truth: Array
    agreement: Array
    rounds: Array
    fixed: NDArray[np.intp]  # which of them are fixed-1 .. fixed-R


def policies_of(measures: Measures) -> Policies:
    """Every distinct policy of the family on the questions that truth and agreement score."""
    labelled = measures.scores().labelled & measures.by("agreement").scores().labelled
    right = measures.take(labelled)
    agreeing = right.by("agreement").in_splits([FIT_SPLIT] * right.traces.n_questions)
    family = build_family(agreeing, levels=3)
    budget = right.traces.n_rounds
    order = [
        *range(len(family.rules) - budget, len(family.rules)),
        *range(len(family.rules) - budget),
    ]
    _, first = np.unique(family.stops[order], axis=0, return_index=True)
    kept = np.array(order)[np.sort(first)]
    stops = family.stops[kept].T.astype(np.int64)

    def at_stops(values: Array) -> Array:
        return np.take_along_axis(values, stops - 1, axis=1)

    return Policies(
        truth=at_stops(right.scores().f1),
        agreement=at_stops(agreeing.scores().f1),
        rounds=stops.astype(np.float64),
        fixed=np.flatnonzero(kept >= len(family.rules) - budget),
    )


def gains(scores: Array, rounds: Array, fixed: NDArray[np.intp]) -> Array:
    """Mean scores over those of the fixed-k frontier for as many rounds, (n_policies,)."""
    costs, frontier = (np.tile(values[fixed], (len(scores), 1)) for values in (rounds, scores))
    return np.asarray(scores - interpolate(costs, frontier, rounds))


def rank_correlations(
    truth: Array, agreement: Array, rounds: Array, fixed: NDArray[np.intp]
) -> Array:
    """Spearman and Kendall of agreement with truth, Spearman of rounds with truth, and of the gains."""
    adaptive = np.setdiff1d(np.arange(len(truth)), fixed)
    gained = [gains(scores, rounds, fixed)[adaptive] for scores in (truth, agreement)]
    return np.array(
        [
            spearmanr(agreement, truth).statistic,
            kendalltau(agreement, truth).statistic,
            spearmanr(rounds, truth).statistic,
            spearmanr(*gained).statistic,
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One record's figures; ``picked`` and ``best`` are true F1 at no more than the middle of the budget."""

    questions: int
    policies: int
    full: float
    correlations: tuple[Interval, ...]
    picked: float
    best: float
    fixed: float


def row_of(measures: Measures) -> Row:
    """The figures of its questions."""
    policies = policies_of(measures)
    columns = policies.truth, policies.agreement, policies.rounds
    count = policies.truth.shape[1]
    means = [values.mean(axis=0) for values in columns]
    means_drawn = resampled_means(np.hstack(columns), resamples=RESAMPLES, seed=SEED)
    drawn = np.split(means_drawn, 3, axis=1)
    draws = np.array(
        [
            rank_correlations(truth, agreement, rounds, policies.fixed)
            for truth, agreement, rounds in zip(*drawn, strict=True)
        ]
    )
    estimates = rank_correlations(means[0], means[1], means[2], policies.fixed)
    cap = (1 + policies.rounds.max()) / 2
    cheap = np.flatnonzero(means[2] <= cap + 1e-9)
    return Row(
        questions=len(policies.truth),
        policies=count,
        full=float(means[0][policies.fixed[-1]]),
        correlations=tuple(
            percentile_interval(float(estimate), draws[np.isfinite(draws[:, number]), number])
            for number, estimate in enumerate(estimates)
        ),
        picked=float(means[0][cheap[means[1][cheap].argmax()]]),
        best=float(means[0][cheap].max()),
        fixed=float(means[0][np.intersect1d(cheap, policies.fixed)].max()),
    )


def rows_of(path: str) -> Iterator[tuple[str, Row]]:
    """The record's figures, then those of its larger question types."""
    measures = Measures(read_traces(path))
    (split, _), *_ = Counter(
        question.split or "" for question in measures.traces.questions
    ).most_common()
    name, chosen = Path(path).stem, measures.only_split(split)
    yield name, row_of(chosen)
    types = Counter(question.type for question in chosen.traces.questions)
    for kind in sorted(kind for kind, count in types.items() if kind and count >= FEWEST):
        of_type = np.array([question.type == kind for question in chosen.traces.questions])
        if not of_type.all():
            yield f"{name}, {kind}", row_of(chosen.take(of_type))


def main(paths: list[str]) -> None:
    """Print the table."""
    heads = (
        "record", "questions", "policies", "full F1", "Spearman", "Kendall", "rounds alone",
        "gain at equal rounds", "picked / best / fixed F1",
    )  # fmt: skip
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for path in paths:
        for name, row in rows_of(path):
            told = [
                f"{one.estimate:.2f} [{one.low:.2f}, {one.high:.2f}]" for one in row.correlations
            ]
            picked = " / ".join(f"{100 * score:.1f}" for score in (row.picked, row.best, row.fixed))
            cells = (
                name, str(row.questions), str(row.policies), f"{100 * row.full:.1f}", *told, picked
            )  # fmt: skip
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

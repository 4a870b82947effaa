"""What MiCP reads of recorded samples: agreement, and the confidence of right clusters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError
from suffice.measures.measures import Measures
from suffice.policies.micp.policy import MiCPPolicy, lot
from suffice.policies.micp.stage2 import Sampled
from suffice.scoring import Match
from suffice.signals.samples import SampleCluster, sample_counts
from suffice.trace.rounds.table import TraceSet


def read_samples(
    questions: TraceSet | Measures, draft: MiCPPolicy, scores: NDArray[np.float64] | None = None
) -> Sampled:
    """Scores and confidences of right clusters, for questions all of which are labelled.

    A question that was recorded for fewer than T rounds never stops in, and samples nothing in, the
    ones it lacks. ``scores`` (n_questions, n_rounds) are those that the policy gives the rounds, where
    they are at hand.
    """
    measures = Measures.of(questions)
    traces = measures.traces
    if scores is None:
        scores = draft.scores(measures.signals(draft.specs))
    n, rounds = traces.n_questions, draft.rounds
    score = np.full((n, rounds), np.nan)
    there = min(rounds, traces.n_rounds)
    score[:, :there] = scores[:, :there]
    gold_confidence = np.full((n, rounds), -np.inf)
    columns = ["samples", "sample_clusters", "signals"]
    for index, views in enumerate(traces.views(columns)):
        accepted = traces.gold[index].answers
        for number, view in enumerate(views[:rounds]):
            right = [
                confidence
                for cluster, confidence in draft.confidences(view.current)
                if _is_right(cluster, accepted, draft.match)
            ]
            gold_confidence[index, number] = max(right, default=-math.inf)
    return Sampled(
        score=score,
        best_gold=np.maximum.accumulate(gold_confidence, axis=1),
        draws=lots(traces.question_ids, rounds, draft.seed),
    )


def _is_right(cluster: SampleCluster, accepted: Sequence[str], match: Match) -> bool:
    """Whether any member is right."""
    return cluster.is_answer and any(
        match(member, accepted) for member in cluster.members if member
    )


def lots(ids: Sequence[str], rounds: int, seed: int) -> NDArray[np.float64]:
    """The draws that break ties in rounds 1 to ``rounds`` of these questions, (n_questions, rounds)."""
    return np.array(
        [[lot(seed, name, number) for number in range(1, rounds + 1)] for name in ids], np.float64
    ).reshape(len(ids), rounds)


def samples_a_round(traces: TraceSet, rounds: int) -> int:
    """m, the same in every round up to T of every question.

    Raises
    ------
    UsageError
        When there are no samples.
    DataError
        Naming question and round of another number.
    """
    if not traces.has("samples"):
        raise UsageError(
            f"micp needs column samples, which {traces.origin.source} does not hold; record with "
            "suffice record --samples 10"
        )
    counts = sample_counts(traces)[:, :rounds]
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

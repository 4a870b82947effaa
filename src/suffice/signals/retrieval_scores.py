"""How far the best candidate stands out among everything the retriever returned.

Where a pipeline ranks once, these are constant over a question's rounds: a rule on them fires at
its first opportunity or never. A round without a candidate list of its own uses the newest earlier
one.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from suffice.protocols import Absence
from suffice.signals.evidence import candidate_scores
from suffice.signals.spec import UNDEFINED, InColumns, SignalSpec
from suffice.trace.rounds.records import LoopView


def retrieval_z(view: LoopView) -> float:
    """(best - mean) / population standard deviation of the scores (paper 0), >= 0.

    0 when all scores are equal; undefined without scores.
    """
    scores = candidate_scores(view.rounds)
    if not scores:
        return UNDEFINED
    if min(scores) == max(scores):
        return 0.0
    return float((max(scores) - np.mean(scores)) / np.std(scores))


def retrieval_z_robust(view: LoopView) -> float:
    """(best - median) / interquartile range of the scores (paper 0), >= 0; quartiles are linear.

    0 when all scores are equal; undefined without scores, or when only the middle half is equal.
    """
    scores = candidate_scores(view.rounds)
    if not scores:
        return UNDEFINED
    if min(scores) == max(scores):
        return 0.0
    low, median, high = np.percentile(scores, [25, 50, 75])
    return float((max(scores) - median) / (high - low)) + 0.0 if high > low else UNDEFINED


def retrieval_gap(view: LoopView) -> float:
    """Best minus second best score (paper 0), >= 0; undefined with fewer than two scores."""
    scores = sorted(candidate_scores(view.rounds), reverse=True)
    return scores[0] - scores[1] + 0.0 if len(scores) > 1 else UNDEFINED


_of_scores = partial(SignalSpec, needs=("candidate_scores",), answers=False, low=0.0)
_NO_SCORES = Absence(
    "no candidate scores were recorded", lambda view: not candidate_scores(view.rounds)
)
RETRIEVAL_Z = _of_scores(
    name="retrieval_z",
    summary="by how many standard deviations the best candidate stands above the mean",
    compute=retrieval_z,
    in_columns=InColumns("scores", "retrieval_z"),
    undefined=(_NO_SCORES,),
)
RETRIEVAL_Z_ROBUST = _of_scores(
    name="retrieval_z_robust",
    summary="how far the best candidate stands above the median, measured by the interquartile range",
    compute=retrieval_z_robust,
    in_columns=InColumns("scores", "retrieval_z_robust"),
    undefined=(
        _NO_SCORES,
        Absence("the middle half of the candidate scores is one number", lambda _: True),
    ),
)
RETRIEVAL_GAP = _of_scores(
    name="retrieval_gap",
    summary="score of the best candidate less that of the second",
    compute=retrieval_gap,
    in_columns=InColumns("scores", "retrieval_gap"),
    undefined=(_NO_SCORES, Absence("there is only one candidate score", lambda _: True)),
)

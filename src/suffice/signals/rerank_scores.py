"""Statistics of the reranker's raw scores over the passages of rounds 1..t, each passage once.

All are undefined while no passage carries a score, save the variance of no passages.
"""

from __future__ import annotations

import statistics

import numpy as np

from suffice.signals.evidence import finite, rerank_scores, seen_passages
from suffice.signals.spec import RERANKS, UNDEFINED, SignalSpec
from suffice.trace.rounds.records import LoopView


def rerank_top_score(view: LoopView) -> float:
    """Highest raw score so far (paper 0): never falls from round to round."""
    scores = finite(p.rerank_score for each in view.rounds for p in each.passages or ())
    return max(scores, default=UNDEFINED)


def rerank_mean(view: LoopView) -> float:
    """Mean raw score (paper 2, alternative S3)."""
    scores = rerank_scores(view.rounds)
    return statistics.fmean(scores) if scores else UNDEFINED


def rerank_variance(view: LoopView) -> float:
    """Population variance of the min-max normalised scores (paper 2, S3), in [0, 1/4].

    0 with fewer than two passages, none included, or equal scores; else at least 1/(2K) for K
    passages.
    """
    scores = rerank_scores(view.rounds)
    if not scores:
        return 0.0 if seen_passages(view.rounds) == {} else UNDEFINED
    low, high = min(scores), max(scores)
    if low == high:
        return 0.0
    return float(np.var([(score - low) / (high - low) for score in scores]))


def rerank_variance_raw(view: LoopView) -> float:
    """Population variance of the raw scores (paper 2, alternative S3), >= 0; 0 for one passage."""
    scores = rerank_scores(view.rounds)
    if not scores:
        return UNDEFINED
    return 0.0 if min(scores) == max(scores) else float(np.var(scores))


RERANK_TOP_SCORE = SignalSpec(
    name="rerank_top_score",
    summary="highest raw reranker score so far",
    needs=("passages",),
    answers=False,
    charges=(RERANKS,),
    compute=rerank_top_score,
    asks="--reranker",
)
RERANK_VARIANCE = SignalSpec(
    name="rerank_variance",
    summary="variance of the normalised reranker scores",
    needs=("passages",),
    answers=False,
    charges=(RERANKS,),
    low=0.0,
    high=0.25,
    compute=rerank_variance,
    asks="--reranker",
)
RERANK_MEAN = SignalSpec(
    name="rerank_mean",
    summary="mean raw reranker score",
    needs=("passages",),
    answers=False,
    charges=(RERANKS,),
    compute=rerank_mean,
    asks="--reranker",
)
RERANK_VARIANCE_RAW = SignalSpec(
    name="rerank_variance_raw",
    summary="variance of the raw reranker scores",
    needs=("passages",),
    answers=False,
    charges=(RERANKS,),
    low=0.0,
    compute=rerank_variance_raw,
    asks="--reranker",
)

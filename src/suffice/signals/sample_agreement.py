"""Agreement among the sampled answers of a round, clustered by normalised string."""

from __future__ import annotations

import math
from collections import Counter

from suffice.scoring import normalize_answer
from suffice.signals.base import UNDEFINED, SignalSpec
from suffice.trace.records import LoopView

__all__ = [
    "NORMALIZED_ENTROPY",
    "SELF_CONSISTENCY",
    "TOP_CLUSTER_CONFIDENCE",
    "entropy_of_counts",
    "normalized_entropy",
    "self_consistency",
    "top_cluster_confidence",
]


def _clusters(view: LoopView) -> Counter[str]:
    return Counter(map(normalize_answer, view.current.samples or ()))


def self_consistency(view: LoopView) -> float:
    """Share of the samples that give the most frequent normalised answer (paper 2, S1), in (0, 1].

    Undefined without samples. One sample gives 1.
    """
    clusters = _clusters(view)
    return max(clusters.values()) / clusters.total() if clusters else UNDEFINED


def entropy_of_counts(counts: tuple[int, ...]) -> float:
    """-sum p log p / log m of cluster sizes that add up to m >= 2; 0: all agree, 1: all differ.

    Written so that both ends are exact and equal partitions give equal bits in any order.

    >>> entropy_of_counts((4,)), entropy_of_counts((1, 1, 1)), entropy_of_counts((2, 2))
    (0.0, 1.0, 0.5)
    """
    total = sum(counts)
    agreed = math.fsum(count * math.log(count) for count in sorted(counts))
    return 1.0 - agreed / (total * math.log(total))


def _comparable(clusters: Counter[str]) -> bool:
    """Two samples at least, one of them parsed to something."""
    return clusters.total() > 1 and set(clusters) != {""}


def normalized_entropy(view: LoopView) -> float:
    """Entropy of the clusters over log m (paper 3), in [0, 1]; low: the samples agree.

    Samples that normalise to nothing count, as one cluster. Undefined with one sample or none, or
    when all of them normalise to nothing.
    """
    clusters = _clusters(view)
    return entropy_of_counts(tuple(clusters.values())) if _comparable(clusters) else UNDEFINED


def top_cluster_confidence(view: LoopView) -> float:
    """Share of the samples in the largest cluster that is an answer (paper 3, λ = 0), in (0, 1].

    Undefined where :func:`normalized_entropy` is. Samples that normalise to nothing count in the
    share's denominator but are no answer.
    """
    clusters = _clusters(view)
    if not _comparable(clusters):
        return UNDEFINED
    return max(count for answer, count in clusters.items() if answer) / clusters.total()


SELF_CONSISTENCY = SignalSpec(
    name="self_consistency",
    summary="share of the samples with the most frequent answer",
    needs=("samples",),
    low=0.0,
    high=1.0,
    compute=self_consistency,
    instead="answer_token_margin (from tokens)",
)
NORMALIZED_ENTROPY = SignalSpec(
    name="normalized_entropy",
    summary="entropy of the sampled answers, 0 when all agree",
    needs=("samples",),
    low=0.0,
    high=1.0,
    direction="low",
    compute=normalized_entropy,
    instead="answer_token_margin (from tokens)",
)
TOP_CLUSTER_CONFIDENCE = SignalSpec(
    name="top_cluster_confidence",
    summary="share of the samples in the largest cluster",
    needs=("samples",),
    low=0.0,
    high=1.0,
    compute=top_cluster_confidence,
    instead="answer_token_margin (from tokens)",
)

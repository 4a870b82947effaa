"""The answers among a round's samples: which samples are the same answer, and how many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from suffice.errors import DataError, UsageError
from suffice.scoring import normalize_answer
from suffice.signals.base import UNDEFINED, SignalSpec
from suffice.signals.sample_agreement import (
    NORMALIZED_ENTROPY,
    TOP_CLUSTER_CONFIDENCE,
    entropy_of_counts,
)
from suffice.trace.records import LoopView, Round

__all__ = [
    "CLUSTERINGS",
    "Clustering",
    "SampleCluster",
    "entropy_signal",
    "sample_clusters",
    "top_cluster_signal",
]

Clustering = Literal["string", "embedding"]
CLUSTERINGS: tuple[Clustering, ...] = get_args(Clustering)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCluster:
    """Samples of a round that are one answer.

    ``answer`` is the first of them as the model wrote it, ``members`` their normalised forms, ``size``
    how many there are.
    """

    answer: str
    size: int
    members: frozenset[str]

    @property
    def is_answer(self) -> bool:
        """Whether they normalise to anything."""
        return self.members != {""}


def sample_clusters(finished: Round, by: Clustering = "string") -> tuple[SampleCluster, ...]:
    """The clusters of a round's samples in order of their first one; none without samples.

    ``string``: samples that normalise alike. ``embedding``: as recorded in ``sample_clusters``.

    Raises
    ------
    DataError
        For ``embedding`` where the samples were not clustered.
    """
    samples = finished.samples or ()
    normalized = [normalize_answer(each) for each in samples]
    if by == "string":
        keys: Sequence[int | str] = normalized
    elif finished.sample_clusters is None and samples:
        raise DataError(
            "null: these samples were not clustered by meaning; type suffice signals TRACES "
            "--encoder minilm --cluster-cosine --out TRACES2, or use --clusters string",
            column="sample_clusters",
        )
    else:
        keys = finished.sample_clusters or ()
    found: dict[int | str, list[int]] = {}
    for position, key in enumerate(keys):
        found.setdefault(key, []).append(position)
    return tuple(
        SampleCluster(
            answer=samples[positions[0]],
            size=len(positions),
            members=frozenset(normalized[position] for position in positions),
        )
        for positions in found.values()
    )


def _comparable(clusters: tuple[SampleCluster, ...]) -> bool:
    return sum(each.size for each in clusters) > 1 and any(each.is_answer for each in clusters)


def _entropy(view: LoopView) -> float:
    clusters = sample_clusters(view.current, "embedding")
    if not _comparable(clusters):
        return UNDEFINED
    return entropy_of_counts(tuple(each.size for each in clusters))


def _top(view: LoopView) -> float:
    clusters = sample_clusters(view.current, "embedding")
    if not _comparable(clusters):
        return UNDEFINED
    largest = max(each.size for each in clusters if each.is_answer)
    return largest / sum(each.size for each in clusters)


_NEEDS = ("samples", "sample_clusters")
_INSTEAD = "clusters by string"


def entropy_signal(by: Clustering) -> SignalSpec:
    """``normalized_entropy`` over these clusters.

    Raises
    ------
    UsageError
        For an unknown clustering.
    """
    return _over(NORMALIZED_ENTROPY, by)


def top_cluster_signal(by: Clustering) -> SignalSpec:
    """``top_cluster_confidence`` over these clusters.

    Raises
    ------
    UsageError
        For an unknown clustering.
    """
    return _over(TOP_CLUSTER_CONFIDENCE, by)


def _over(usual: SignalSpec, by: Clustering) -> SignalSpec:
    if by not in CLUSTERINGS:
        raise UsageError(f"no clusters by {by!r}; allowed: {', '.join(CLUSTERINGS)}")
    if by == "string":
        return usual
    compute = _entropy if usual is NORMALIZED_ENTROPY else _top
    return replace(usual, needs=_NEEDS, compute=compute, instead=_INSTEAD, own_settings=True)

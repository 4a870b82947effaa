"""The answers among a round's samples: which are the same answer, how many, and how far they agree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError
from suffice.protocols import Absence
from suffice.scoring import answer_form
from suffice.signals.spec import SAMPLES, UNDEFINED, InColumns, SignalSpec
from suffice.trace.rounds.records import LoopView, Round

if TYPE_CHECKING:  # deciding live loads this module, and must not load pyarrow
    from suffice.trace.rounds.table import TraceSet


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
    """
    samples = finished.samples or ()
    normalized = [answer_form(sample) for sample in samples]
    if by == "string":
        keys: Sequence[int | str] = normalized
    elif finished.sample_clusters is None and samples:
        raise not_clustered()
    else:
        keys = finished.sample_clusters or ()
    positions_of: dict[int | str, list[int]] = {}
    for position, key in enumerate(keys):
        positions_of.setdefault(key, []).append(position)
    return tuple(
        SampleCluster(
            answer=samples[positions[0]],
            size=len(positions),
            members=frozenset(normalized[position] for position in positions),
        )
        for positions in positions_of.values()
    )


def not_clustered() -> DataError:
    """What is said of samples without clusters by meaning."""
    return DataError(
        "null: these samples were not clustered by meaning; type suffice signals TRACES "
        "--encoder minilm --cluster-cosine --out TRACES2, or use --clusters string",
        column="sample_clusters",
    )


def _sizes(view: LoopView, by: Clustering) -> tuple[list[int], list[int]]:
    """Sizes of the round's clusters, and of those that are an answer."""
    if by == "string":  # without the clusters themselves, which take three times as long
        counts = Counter(map(answer_form, view.current.samples or ()))
        return list(counts.values()), [count for answer, count in counts.items() if answer]
    clusters = sample_clusters(view.current, by)
    sizes = [cluster.size for cluster in clusters]
    return sizes, [cluster.size for cluster in clusters if cluster.is_answer]


def self_consistency(view: LoopView) -> float:
    """Share of the samples that give the most frequent normalised answer (paper 2, S1), in (0, 1].

    Undefined without samples. One sample gives 1.
    """
    sizes, _ = _sizes(view, "string")
    return max(sizes) / sum(sizes) if sizes else UNDEFINED


def entropy_of_counts(counts: tuple[int, ...]) -> float:
    """-sum p log p / log m of cluster sizes that add up to m >= 2; 0: all agree, 1: all differ.

    Written so that both ends are exact and equal partitions give equal bits in any order.

    >>> entropy_of_counts((4,)), entropy_of_counts((1, 1, 1)), entropy_of_counts((2, 2))
    (0.0, 1.0, 0.5)
    """
    total = sum(counts)
    agreed = math.fsum(count * math.log(count) for count in sorted(counts))
    return 1.0 - agreed / (total * math.log(total))


def normalized_entropy(view: LoopView, by: Clustering = "string") -> float:
    """Entropy of the clusters over log m (paper 3), in [0, 1]; low: the samples agree.

    Samples that normalise to nothing count, as one cluster. Undefined with one sample or none, or
    when all of them normalise to nothing.
    """
    sizes, answers = _sizes(view, by)
    return entropy_of_counts(tuple(sizes)) if sum(sizes) > 1 and answers else UNDEFINED


def top_cluster_confidence(view: LoopView, by: Clustering = "string") -> float:
    """Share of the samples in the largest cluster that is an answer (paper 3, λ = 0), in (0, 1].

    Undefined where :func:`normalized_entropy` is. Samples that normalise to nothing count in the
    share's denominator but are no answer.
    """
    sizes, answers = _sizes(view, by)
    return max(answers) / sum(sizes) if sum(sizes) > 1 and answers else UNDEFINED


NO_SAMPLES = Absence(
    "the round has no samples", lambda view: not view.current.samples, "record with --samples"
)
_NO_ANSWERS = (
    NO_SAMPLES,
    Absence("the round has only one sample", lambda view: len(view.current.samples or ()) == 1),
    Absence("every sample normalises to nothing", lambda _: True),
)
sample_signal = partial(
    SignalSpec,
    needs=("samples",),
    answers=False,
    charges=(SAMPLES,),
    low=0.0,
    high=1.0,
    instead="answer_token_margin (from tokens)",
)
SELF_CONSISTENCY = sample_signal(
    name="self_consistency",
    summary="share of the samples that give the most frequent answer",
    compute=self_consistency,
    in_columns=InColumns("samples", "self_consistency"),
    undefined=(NO_SAMPLES,),
)
NORMALIZED_ENTROPY = sample_signal(
    name="normalized_entropy",
    summary="how much the sampled answers disagree, 0 when all agree",
    direction="low",
    compute=normalized_entropy,
    in_columns=InColumns("samples", "normalized_entropy"),
    undefined=_NO_ANSWERS,
)
TOP_CLUSTER_CONFIDENCE = sample_signal(
    name="top_cluster_confidence",
    summary="share of the samples in the largest group of one meaning",
    compute=top_cluster_confidence,
    in_columns=InColumns("samples", "top_cluster_confidence"),
    undefined=_NO_ANSWERS,
)


def entropy_signal(by: Clustering) -> SignalSpec:
    """``normalized_entropy`` over these clusters."""
    return _over(NORMALIZED_ENTROPY, by, _entropy_by_meaning)


def top_cluster_signal(by: Clustering) -> SignalSpec:
    """``top_cluster_confidence`` over these clusters."""
    return _over(TOP_CLUSTER_CONFIDENCE, by, _top_by_meaning)


def _entropy_by_meaning(view: LoopView) -> float:
    return normalized_entropy(view, "embedding")


def _top_by_meaning(view: LoopView) -> float:
    return top_cluster_confidence(view, "embedding")


def _over(usual: SignalSpec, by: Clustering, compute: Callable[[LoopView], float]) -> SignalSpec:
    if by not in CLUSTERINGS:
        raise UsageError(f"no clusters by {by!r}; allowed: {', '.join(CLUSTERINGS)}")
    if by == "string":
        return usual
    return replace(
        usual,
        needs=("samples", "sample_clusters"),
        compute=compute,
        in_columns=InColumns("samples", usual.name, (by,)),
        instead="clusters by string",
        own_settings=True,
    )


def sample_counts(traces: TraceSet) -> NDArray[np.float64]:
    """How many samples each round holds, null as none, (n_questions, n_rounds); NaN: not recorded."""
    if not traces.has("samples"):
        return np.where(traces.exists, 0.0, np.nan)
    return np.where(traces.exists, np.nan_to_num(traces.lengths("samples")), np.nan)

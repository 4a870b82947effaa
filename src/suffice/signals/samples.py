"""The answers among a round's samples: which are the same answer, how many, and how far they agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.contracts import Absence
from suffice.errors import DataError, UsageError
from suffice.scoring import answer_form
from suffice.signals.columns.answers import answer_forms
from suffice.signals.columns.ragged import segment_sums
from suffice.signals.columns.rounds import RoundColumns, by_appearance
from suffice.signals.columns.texts import Texts
from suffice.signals.spec import SAMPLES, SignalSpec, WithSettings
from suffice.trace.rounds.records import Round
from suffice.trace.rounds.table import TraceSet

Array = NDArray[np.float64]
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


def entropy_of_counts(counts: Iterable[int]) -> float:
    """-sum p log p / log m of cluster sizes that add up to m >= 2; 0: all agree, 1: all differ.

    >>> entropy_of_counts([4]), entropy_of_counts([1, 1, 1]), entropy_of_counts([2, 2])
    (0.0, 1.0, 0.5)
    """
    sizes = sorted(counts)
    total = sum(sizes)
    return 1.0 - math.fsum(map(_times_log, sizes)) / _times_log(total)


# --- by columns ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """The clusters of every round's samples, those of a round one after the other.

    ``offsets`` (n_rows + 1,) say where those of each round begin in ``size`` and ``is_answer``
    (n_clusters,); ``drawn`` (n_rows,) is how many samples there are.
    """

    offsets: NDArray[np.int64]
    size: NDArray[np.int64]
    is_answer: NDArray[np.bool_]
    drawn: NDArray[np.int64]

    def largest(self, *, answers_only: bool) -> NDArray[np.int64]:
        """The size of the largest cluster of every round, (n_rows,); 0 where there is none."""
        sizes = np.where(self.is_answer, self.size, 0) if answers_only else self.size
        largest = np.zeros(len(self.drawn), np.int64)
        filled = np.flatnonzero(self.drawn)
        if len(filled):
            largest[filled] = np.maximum.reduceat(sizes, self.offsets[filled])
        return largest


def self_consistency(rounds: RoundColumns) -> Array:
    """Share of the samples that give the most frequent normalised answer (paper 2, S1), in (0, 1].

    Undefined without samples. One sample gives 1.
    """
    clusters = rounds.once(_BY["string"])
    return _share(clusters, clusters.largest(answers_only=False), clusters.drawn > 0)


def normalized_entropy(rounds: RoundColumns, by: Clustering = "string") -> Array:
    """Entropy of the clusters over log m (paper 3), in [0, 1]; low: the samples agree.

    -sum p log p / log m of cluster sizes that add up to m >= 2; 0: all agree, 1: all differ, both exact.
    Samples that normalise to nothing count, as one cluster. Undefined with one sample or none, or
    when all of them normalise to nothing.
    """
    clusters = rounds.once(_BY[by])
    agreed = segment_sums(_of_counts(clusters.size, _times_log), clusters.offsets)
    differing = _of_counts(clusters.drawn, _times_log)
    compared = _compared(clusters)
    return np.where(compared, 1.0 - agreed / np.where(compared, differing, 1.0), np.nan)


def top_cluster_confidence(rounds: RoundColumns, by: Clustering = "string") -> Array:
    """Share of the samples in the largest cluster that is an answer (paper 3, λ = 0), in (0, 1].

    Undefined where :func:`normalized_entropy` is. Samples that normalise to nothing count in the
    share's denominator but are no answer.
    """
    clusters = rounds.once(_BY[by])
    return _share(clusters, clusters.largest(answers_only=True), _compared(clusters))


def _compared(clusters: Clusters) -> NDArray[np.bool_]:
    """Rounds of two samples or more, one of which is an answer."""
    return (clusters.drawn > 1) & (clusters.largest(answers_only=True) > 0)


def _share(clusters: Clusters, size: NDArray[np.int64], defined: NDArray[np.bool_]) -> Array:
    return np.where(defined, size / np.maximum(clusters.drawn, 1), np.nan)


def _times_log(count: int) -> float:
    return count * math.log(count) if count else 0.0


def _of_counts(counts: NDArray[np.int64], one: Callable[[int], float]) -> Array:
    """A function of every count, evaluated once for each that there is."""
    distinct, places = np.unique(counts, return_inverse=True)
    return np.array([one(count) for count in distinct.tolist()], np.float64)[places]


def sample_forms(rounds: RoundColumns) -> Texts:
    """The form of every sample by which answers are compared, (n_samples,); a null says nothing."""
    said = pc.fill_null(rounds.lists("samples").values, "")
    return Texts.of(said).mapped(answer_forms)


def cluster_of_samples(rounds: RoundColumns, by: Clustering) -> NDArray[np.int64]:
    """Which cluster each sample is of, (n_samples,): a number of its own, greater in later rounds."""
    samples = rounds.lists("samples")
    if by == "string":
        forms = rounds.once(sample_forms)
        return samples.rows * len(forms.distinct) + forms.codes
    numbers = rounds.lists("sample_clusters")
    if not numbers.valid[samples.lengths > 0].all():
        raise not_clustered()
    first = numbers.values.to_numpy(zero_copy_only=False)
    return np.asarray(samples.offsets[samples.rows] + first, np.int64)


def _clusters(rounds: RoundColumns, by: Clustering) -> Clusters:
    samples, forms = rounds.lists("samples"), rounds.once(sample_forms)
    cluster, firsts = by_appearance(cluster_of_samples(rounds, by))
    said = np.bincount(cluster, forms.codes != forms.code_of(""), len(firsts))
    drawn = np.bincount(samples.rows[firsts], minlength=rounds.n_rows)
    return Clusters(
        offsets=np.append(0, np.cumsum(drawn)),
        size=np.bincount(cluster, minlength=len(firsts)),
        is_answer=said > 0,
        drawn=samples.lengths,
    )


_BY: Mapping[Clustering, Callable[[RoundColumns], Clusters]] = {
    by: partial(_clusters, by=by) for by in CLUSTERINGS
}


# --- declared ------------------------------------------------------------------------------------
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
    columns=self_consistency,
    undefined=(NO_SAMPLES,),
)
NORMALIZED_ENTROPY = sample_signal(
    name="normalized_entropy",
    summary="how much the sampled answers disagree, 0 when all agree",
    direction="low",
    columns=normalized_entropy,
    undefined=_NO_ANSWERS,
)
TOP_CLUSTER_CONFIDENCE = sample_signal(
    name="top_cluster_confidence",
    summary="share of the samples in the largest group of one meaning",
    columns=top_cluster_confidence,
    undefined=_NO_ANSWERS,
)


def entropy_signal(by: Clustering) -> SignalSpec:
    """``normalized_entropy`` over these clusters."""
    return _over(NORMALIZED_ENTROPY, by, normalized_entropy)


def top_cluster_signal(by: Clustering) -> SignalSpec:
    """``top_cluster_confidence`` over these clusters."""
    return _over(TOP_CLUSTER_CONFIDENCE, by, top_cluster_confidence)


def _over(
    usual: SignalSpec, by: Clustering, columns: Callable[..., NDArray[np.float64]]
) -> SignalSpec:
    if by not in CLUSTERINGS:
        raise UsageError(f"no clusters by {by!r}; allowed: {', '.join(CLUSTERINGS)}")
    if by == "string":
        return usual
    return replace(
        usual,
        needs=("samples", "sample_clusters"),
        columns=WithSettings(columns, (by,)),
        instead="clusters by string",
        own_settings=True,
    )


def sample_counts(traces: TraceSet) -> NDArray[np.float64]:
    """How many samples each round holds, null as none, (n_questions, n_rounds); NaN: not recorded."""
    if not traces.has("samples"):
        return np.where(traces.exists, 0.0, np.nan)
    return np.where(traces.exists, np.nan_to_num(traces.lengths("samples")), np.nan)

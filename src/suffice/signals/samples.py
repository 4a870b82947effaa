"""Signals of a round's samples: agreement, equal answers, and candidate next steps (paper 4)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.contracts import Absence
from suffice.errors import DataError, UsageError
from suffice.scoring import answer_form
from suffice.signals.columns.answer_columns import answer_forms
from suffice.signals.columns.arrays import NONE, Texts, segment_sums
from suffice.signals.columns.rounds import RoundColumns, by_appearance
from suffice.signals.known_signals import SAMPLES, SignalSpec, WithSettings, share
from suffice.stats.units import Array, Mask
from suffice.trace.rounds.records import Round
from suffice.trace.rounds.trace_set import TraceSet

Clustering = Literal["string", "embedding"]
CLUSTERINGS: tuple[Clustering, ...] = get_args(Clustering)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCluster:
    """Hold samples of a round that are one answer.

    ``answer`` is the first of them as written, ``members`` are their normal forms, ``size`` counts them.
    """

    answer: str
    size: int
    members: frozenset[str]

    @property
    def is_answer(self) -> bool:
        """Say whether they are more than empty after normalization."""
        return self.members != {""}


def sample_clusters(finished: Round, by: Clustering = "string") -> tuple[SampleCluster, ...]:
    """Return the clusters of a round's samples by first sample; none without samples."""
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
    return DataError(
        "null: these samples were not clustered by meaning; type suffice signals TRACES "
        "--encoder minilm --cluster-cosine --out TRACES2, or use --clusters string",
        column="sample_clusters",
    )


def entropy_of_counts(counts: Iterable[int]) -> float:
    """Return the normalized entropy of cluster sizes, in [0, 1]; 0: all agree, 1: all differ."""
    sizes = sorted(counts)
    total = sum(sizes)
    return 1.0 - math.fsum(map(_times_log, sizes)) / _times_log(total)


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Hold the clusters of every round's samples, end to end.

    Row i has the clusters from ``offsets[i]`` to before ``offsets[i + 1]`` in ``size`` and ``is_answer``
    (n_clusters,). ``drawn`` (n_rows,) counts its samples.
    """

    offsets: NDArray[np.int64]
    size: NDArray[np.int64]
    is_answer: Mask
    drawn: NDArray[np.int64]

    def largest(self, *, answers_only: bool) -> NDArray[np.int64]:
        """Return the size of the largest cluster of every round, (n_rows,); 0 without any."""
        sizes = np.where(self.is_answer, self.size, 0) if answers_only else self.size
        largest = np.zeros(len(self.drawn), np.int64)
        filled = np.flatnonzero(self.drawn)
        if len(filled):
            largest[filled] = np.maximum.reduceat(sizes, self.offsets[filled])
        return largest


def self_consistency(rounds: RoundColumns) -> Array:
    """Return the share of samples with the most frequent answer, in (0, 1]; high: sure (paper 2, S1)."""
    clusters = rounds.once(_BY["string"])
    return _share(clusters, clusters.largest(answers_only=False), clusters.drawn > 0)


def normalized_entropy(rounds: RoundColumns, by: Clustering = "string") -> Array:
    """Return the normalized entropy of two or more samples, in [0, 1]; low: they agree (paper 3).

    It is -sum p log p / log m over the clusters of m samples; NaN with fewer than two, or if all are empty.
    """
    clusters = rounds.once(_BY[by])
    agreed = segment_sums(_of_counts(clusters.size, _times_log), clusters.offsets)
    differing = _of_counts(clusters.drawn, _times_log)
    compared = _compared(clusters)
    return np.where(compared, 1.0 - agreed / np.where(compared, differing, 1.0), np.nan)


def top_cluster_confidence(rounds: RoundColumns, by: Clustering = "string") -> Array:
    """Return the share of samples in the largest answer cluster, in (0, 1]; high: sure (paper 3, λ = 0)."""
    clusters = rounds.once(_BY[by])
    return _share(clusters, clusters.largest(answers_only=True), _compared(clusters))


def _compared(clusters: Clusters) -> Mask:
    """Say which rounds have at least two samples and at least one answer among them."""
    return (clusters.drawn > 1) & (clusters.largest(answers_only=True) > 0)


def _share(clusters: Clusters, size: NDArray[np.int64], defined: Mask) -> Array:
    return np.where(defined, size / np.maximum(clusters.drawn, 1), np.nan)


def _times_log(count: int) -> float:
    return count * math.log(count) if count else 0.0


def _of_counts(counts: NDArray[np.int64], one: Callable[[int], float]) -> Array:
    """Apply a function to every count, once per distinct count."""
    distinct, places = np.unique(counts, return_inverse=True)
    return np.array([one(count) for count in distinct.tolist()], np.float64)[places]


def sample_forms(rounds: RoundColumns) -> Texts:
    """Return the normal form of every sample, (n_samples,); a null counts as empty."""
    said = pc.fill_null(rounds.lists("samples").values, "")
    return Texts.of(said).mapped(answer_forms)


def cluster_of_samples(rounds: RoundColumns, by: Clustering) -> NDArray[np.int64]:
    """Return the cluster of each sample, (n_samples,), as a number that is unique to it."""
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


NO_SAMPLES = Absence(
    "the round has no samples", lambda view: not view.current.samples, "record with --samples"
)
_NO_ANSWERS = (
    NO_SAMPLES,
    Absence("the round has only one sample", lambda view: len(view.current.samples or ()) == 1),
    Absence("every sample is empty after normalization", lambda _: True),
)
sample_signal: partial[SignalSpec] = partial(
    SignalSpec,
    needs=("samples",),
    answers=False,
    charges=(SAMPLES,),
    low=0.0,
    high=1.0,
    instead="answer_token_margin (from tokens)",
)
SELF_CONSISTENCY = sample_signal(
    summary="share of samples with the most frequent answer",
    columns=self_consistency,
    undefined=(NO_SAMPLES,),
)
NORMALIZED_ENTROPY = sample_signal(
    summary="disagreement of the sampled answers: normalized entropy, 0 if all agree",
    direction="low",
    columns=normalized_entropy,
    undefined=_NO_ANSWERS,
)
TOP_CLUSTER_CONFIDENCE = sample_signal(
    summary="share of samples in the largest cluster of equal meaning",
    columns=top_cluster_confidence,
    undefined=_NO_ANSWERS,
)


def entropy_signal(by: Clustering) -> SignalSpec:
    return _over(NORMALIZED_ENTROPY, by)


def top_cluster_signal(by: Clustering) -> SignalSpec:
    return _over(TOP_CLUSTER_CONFIDENCE, by)


def _over(usual: SignalSpec, by: Clustering) -> SignalSpec:
    if by not in CLUSTERINGS:
        raise UsageError(f"no clusters by {by!r}; allowed: {', '.join(CLUSTERINGS)}")
    if by == "string" or usual.columns is None:
        return usual
    return replace(
        usual,
        needs=("samples", "sample_clusters"),
        columns=WithSettings(usual.columns, (by,)),
        instead="clusters by string",
        own_settings=True,
    )


def sample_counts(traces: TraceSet) -> Array:
    """Count the samples of each round, (n_questions, n_rounds); null counts 0, NaN: not recorded."""
    if not traces.has("samples"):
        return np.where(traces.exists, 0.0, np.nan)
    return np.where(traces.exists, np.nan_to_num(traces.lengths("samples")), np.nan)


def agreement(candidates: Sequence[str]) -> float:
    """Return the share of tokens that all candidates share, in [0, 1] (paper 4, Eq. 13; of none 0).

    Tokens stand between white space, in upper case and with their punctuation (published).
    """
    sets = [frozenset(text.upper().split()) for text in candidates]
    union = frozenset[str]().union(*sets)
    return len(sets[0].intersection(*sets)) / len(union) if union else 0.0


def candidate_agreement(rounds: RoundColumns) -> Array:
    """Return :func:`agreement` of the round's samples; NaN without samples."""
    samples = rounds.lists("samples")
    texts = [text or "" for text in samples.values.to_pylist()]
    bounds = pairwise(samples.offsets.tolist())
    return np.array([agreement(texts[i:j]) if j > i else np.nan for i, j in bounds], np.float64)


CANDIDATE_AGREEMENT = sample_signal(
    summary="share of words that all samples (or candidate steps) have in common",
    columns=candidate_agreement,
    undefined=(NO_SAMPLES,),
)


MARKER_WORDS = frozenset(
    {
        *("not", "cannot", "cant", "dont", "never", "neither", "nor"),
        *("incompatible", "contradict", "contradicts", "contradicting", "contradictory"),
    }
)
"""Words that mark a negation or conflict, case-folded; so does every word that ends in "n't".

The paper names NOT, DO NOT, CANNOT and INCOMPATIBLE. "no" and "without" are left out: in a plan they
mostly say how a step is done ("without downtime"), not that it must not be.
"""
MARKER_PHRASES = ("conflicts with", "conflict with", "conflicting with", "mutually exclusive")
"""Runs of words that mark a conflict; "conflict" alone does not ("resolve the conflict")."""

_COMMON = (
    "a about after all also an and any are as at be been before being both but by can could did do "
    "does doing done each every for from further had has have he her his how i if in into is it its "
    "just may me might more most must my of off on only or our out over own same shall she should so "
    "some step such than that the their them then there these they this those through to too under "
    "until up use using via was we were what when where which while who will with would you your"
)
_STOP_WORDS = frozenset(_COMMON.split())
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_PHRASES = re.compile("|".join(rf"\b{phrase}\b".replace(" ", r"\s+") for phrase in MARKER_PHRASES))
_NEGATED = ("n't", "n’t")
_IN_PHRASES = frozenset(" ".join(MARKER_PHRASES).split())


def _words(text: str) -> tuple[frozenset[str], bool]:
    """Return the case-folded words, and whether the text carries a marker."""
    folded = text.casefold()
    words = frozenset(_WORD.findall(folded))
    marked = (
        not MARKER_WORDS.isdisjoint(words)
        or any(word.endswith(_NEGATED) for word in words)
        or _PHRASES.search(folded) is not None
    )
    return words, marked


def _content(words: frozenset[str]) -> frozenset[str]:
    return frozenset(
        word
        for word in words - _STOP_WORDS - MARKER_WORDS - _IN_PHRASES
        if not word.endswith(_NEGATED)
    )


def _conflict(first: tuple[frozenset[str], bool], second: tuple[frozenset[str], bool]) -> float:
    if first[1] == second[1]:
        return 0.0
    return float(bool(_content(first[0] & second[0])))


class MarkerDetector:
    """Find texts of which exactly one has a marker and that share a content word (paper 4, Eq. 14).

    The paper names markers but not the comparison; this is our reading. A content word is a case-folded run
    of letters, digits and underscores. It is no stop word and no marker.
    """

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> Array:
        """Return 1.0 or 0.0 for every (plan step, candidate), (len(pairs),)."""
        texts = {text for pair in pairs for text in pair}
        words = {
            text: _words(text) for text in texts
        }  # a step stands in a pair with each candidate
        return np.array([_conflict(words[step], words[other]) for step, other in pairs], np.float64)


def contradiction(rounds: RoundColumns) -> Array:
    """Return what :class:`MarkerDetector` says of the previous and this answer; high: they conflict."""
    answers = rounds.texts("answer")
    texts = answers.distinct.to_pylist()
    blank = answers.through(np.array([not text.strip() for text in texts], bool), True)
    previous, unsaid = rounds.before(answers.codes, NONE), rounds.before(blank, False)
    conflicts = np.where(blank | unsaid, np.nan, 0.0)
    rows = np.flatnonzero(~rounds.first & ~blank & ~unsaid & (previous != answers.codes))
    pair, places = by_appearance(previous[rows] * len(texts) + answers.codes[rows])
    pairs = zip(previous[rows[places]].tolist(), answers.codes[rows[places]].tolist(), strict=True)
    said = [(texts[step], texts[other]) for step, other in pairs]
    conflicts[rows] = MarkerDetector().contradictions(said)[pair]
    return conflicts


CONTRADICTION = share(
    summary="1 if the new answer contradicts the previous one (or a candidate step the plan)",
    columns=contradiction,
    undefined=(Absence("the answer or the previous one is empty", lambda _: True),),
)

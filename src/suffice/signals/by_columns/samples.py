"""Agreement of the samples of all rounds: how many are the same answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.columns.answers import answer_forms
from suffice.columns.ragged import Ragged, ranges
from suffice.columns.sums import segment_sums
from suffice.columns.texts import Texts, by_text
from suffice.signals.by_columns.rounds import RoundColumns
from suffice.signals.samples import Clustering, not_clustered

Array = NDArray[np.float64]


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
    """``self_consistency``."""
    clusters = rounds.once(_by_string)
    return _share(clusters, clusters.largest(answers_only=False), clusters.drawn > 0)


def normalized_entropy(rounds: RoundColumns, by: Clustering = "string") -> Array:
    """``normalized_entropy``."""
    clusters = rounds.once(_BY[by])
    agreed = segment_sums(_of_counts(clusters.size, _times_log), clusters.offsets)
    differing = _of_counts(clusters.drawn, _times_log)
    compared = _compared(clusters)
    return np.where(compared, 1.0 - agreed / np.where(compared, differing, 1.0), np.nan)


def top_cluster_confidence(rounds: RoundColumns, by: Clustering = "string") -> Array:
    """``top_cluster_confidence``."""
    clusters = rounds.once(_BY[by])
    return _share(clusters, clusters.largest(answers_only=True), _compared(clusters))


def candidate_agreement(rounds: RoundColumns) -> Array:
    """``candidate_agreement``: of every round the tokens that are in as many samples as there are."""
    samples = rounds.lists("samples")
    texts = samples.texts().mapped(_upper_tokens)
    tokens = _TokenSets.of(texts.distinct)
    begins = np.append(tokens.offsets[:-1], 0)[texts.codes]
    ends = np.append(tokens.offsets[1:], 0)[texts.codes]
    rows = np.repeat(samples.rows, ends - begins)
    runs = _Runs.of(rows, tokens.codes[ranges(begins, ends)])
    union = np.bincount(runs.rows, minlength=rounds.n_rows)
    in_all = runs.rows[runs.size == samples.lengths[runs.rows]]
    shared = np.bincount(in_all, minlength=rounds.n_rows)
    return np.where(samples.lengths > 0, shared / np.maximum(union, 1), np.nan)


def _upper_tokens(texts: pa.Array) -> pa.Array:
    """The tokens of :func:`suffice.signals.candidates.token_set` in their order, blanks between them."""
    upper = pc.replace_substring_regex(pc.ascii_upper(texts), r"[\t-\r\x1c-\x1f]", " ")
    others = pc.invert(pc.string_is_ascii(texts))
    by_one = by_text(lambda text: " ".join(text.upper().split()))(texts.filter(others))
    return pc.replace_with_mask(upper, others, by_one.cast(upper.type))


@dataclass(frozen=True, slots=True, eq=False)
class _TokenSets:
    """The different tokens of each text, between single blanks: those of a text begin at its ``offsets``."""

    offsets: NDArray[np.int64]
    codes: NDArray[np.int64]

    @classmethod
    def of(cls, texts: pa.Array) -> _TokenSets:
        lists = Ragged.of(pc.split_pattern(texts, " "))
        words = lists.texts()
        there = words.codes != words.code_of("")  # of an empty text
        runs = _Runs.of(lists.rows[there], words.codes[there])
        return cls(_offsets(runs.rows, len(texts)), runs.codes)


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """Codes of rows, each once a row: how many times it is there is its ``size``."""

    rows: NDArray[np.int64]
    codes: NDArray[np.int64]
    size: NDArray[np.int64]

    @classmethod
    def of(cls, rows: NDArray[np.int64], codes: NDArray[np.int64]) -> _Runs:
        """``rows`` do not fall."""
        many = codes.max(initial=0) + 1
        keys = np.sort(rows * many + codes)  # those of a row stay where they are
        firsts = np.flatnonzero(np.diff(keys, prepend=-1))
        of_row = rows[firsts]
        return cls(of_row, keys[firsts] - of_row * many, np.diff(firsts, append=len(keys)))


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


def _by_string(rounds: RoundColumns) -> Clusters:
    samples, forms = rounds.lists("samples"), rounds.once(sample_forms)
    runs = _Runs.of(samples.rows, forms.codes)
    return Clusters(
        offsets=_offsets(runs.rows, rounds.n_rows),
        size=runs.size,
        is_answer=runs.codes != forms.code_of(""),
        drawn=samples.lengths,
    )


def _by_embedding(rounds: RoundColumns) -> Clusters:
    samples, forms = rounds.lists("samples"), rounds.once(sample_forms)
    of_first = cluster_of_samples(rounds, "embedding")
    size = np.bincount(of_first, minlength=len(of_first))
    answers = np.bincount(of_first, forms.codes != forms.code_of(""), len(of_first))
    firsts = np.flatnonzero(size)
    return Clusters(
        offsets=_offsets(samples.rows[firsts], rounds.n_rows),
        size=size[firsts],
        is_answer=answers[firsts] > 0,
        drawn=samples.lengths,
    )


_BY: Mapping[Clustering, Callable[[RoundColumns], Clusters]] = {
    "string": _by_string,
    "embedding": _by_embedding,
}


def _offsets(rows: NDArray[np.int64], n_rows: int) -> NDArray[np.int64]:
    """Where the clusters of each row begin, given the row of every cluster."""
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_rows))])

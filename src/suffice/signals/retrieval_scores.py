"""The lead of the best candidate, by the retriever's and a reranker's scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import Absence, Reranker
from suffice.errors import BackendError
from suffice.signals.asking.whole_record import Asked, Asking, OnProgress, Replies, column_values
from suffice.signals.columns.arrays import by_length, ranges, segment_means
from suffice.signals.columns.rounds import RoundColumns, listings, unrecorded_so_far
from suffice.signals.evidence import seen_passages
from suffice.signals.known_signals import RERANKS, SignalSpec
from suffice.stats.units import Array, Mask
from suffice.trace.rounds.records import LoopView, Passage

if TYPE_CHECKING:
    from suffice.trace.rounds.trace_set import TraceSet

Places = NDArray[np.int64]
Statistic = Callable[[Array], Array]


@dataclass(frozen=True, slots=True, eq=False)
class Finite:
    """Hold the finite scores of each row: in ``scores`` from ``begins`` to before ``ends`` (n_rows,)."""

    scores: Array
    begins: Places
    ends: Places

    @classmethod
    def of(cls, scores: Array, begins: Places, ends: Places) -> Finite:
        """Keep the finite scores of each range."""
        finite = np.isfinite(scores)
        before = np.append(0, np.cumsum(finite))
        return cls(scores[finite], before[begins], before[ends])

    def statistic(self, statistic: Statistic) -> Array:
        """Compute a statistic of every row, (n_rows,); NaN without a score."""
        with np.errstate(divide="ignore", invalid="ignore"):  # where all are equal, or half of them
            return by_length(self.scores, self.begins, self.ends, statistic)


def retrieval_z(rounds: RoundColumns) -> Array:
    """Return (best - mean) / standard deviation of candidate scores, >= 0; high: a clear lead (paper 0)."""
    return _of_newest(
        rounds, lambda s: unless_equal(s, (s.max(axis=1) - s.mean(axis=1)) / s.std(axis=1))
    )


def retrieval_z_robust(rounds: RoundColumns) -> Array:
    """Return (best - median) / interquartile range, >= 0; high: a clear lead (paper 0); quartiles linear."""
    return _of_newest(rounds, _z_robust)


def retrieval_gap(rounds: RoundColumns) -> Array:
    """Return the best minus the second best score, >= 0; NaN with fewer than two scores (paper 0)."""
    return _of_newest(rounds, _gap)


def _of_newest(rounds: RoundColumns, statistic: Statistic) -> Array:
    lists = rounds.lists("candidate_scores")
    own = Finite.of(lists.numbers(), lists.offsets[:-1], lists.offsets[1:]).statistic(statistic)
    newest = np.maximum.accumulate(np.where(lists.valid, np.arange(rounds.n_rows), -1))
    return np.where(newest < rounds.first_row, np.nan, own[newest])


def _z_robust(scores: Array) -> Array:
    low, median, high = np.percentile(scores, [25, 50, 75], axis=1)
    z = (scores.max(axis=1) - median) / (high - low) + 0.0
    return unless_equal(scores, np.where(high > low, z, np.nan))


def _gap(scores: Array) -> Array:
    if scores.shape[1] == 1:
        return np.full(len(scores), np.nan)
    second, best = np.partition(scores, (-2, -1), axis=1)[:, -2:].T
    gaps: Array = best - second + 0.0
    return gaps


def unless_equal(scores: Array, values: Array) -> Array:
    """Return the values, with 0 for rows of equal scores."""
    return np.where(scores.min(axis=1) == scores.max(axis=1), 0.0, values)


def _no_scores(view: LoopView) -> bool:
    lists = (held.candidate_scores for held in reversed(view.rounds))
    newest = next((scores for scores in lists if scores is not None), ())
    return not any(map(math.isfinite, newest))


_of_scores = partial(SignalSpec, needs=("candidate_scores",), answers=False, low=0.0)
_NO_SCORES = Absence("no candidate scores were recorded", _no_scores)
RETRIEVAL_Z = _of_scores(
    summary="best candidate score above the mean, in standard deviations",
    columns=retrieval_z,
    undefined=(_NO_SCORES,),
)
RETRIEVAL_Z_ROBUST = _of_scores(
    summary="best candidate score above the median, in interquartile ranges",
    columns=retrieval_z_robust,
    undefined=(
        _NO_SCORES,
        Absence("the middle half of the candidate scores are equal", lambda _: True),
    ),
)
RETRIEVAL_GAP = _of_scores(
    summary="best candidate score minus the second best",
    columns=retrieval_gap,
    undefined=(_NO_SCORES, Absence("there is only one candidate score", lambda _: True)),
)


def rerank_top_score(rounds: RoundColumns) -> Array:
    """Return the highest raw reranker score so far; it never falls (paper 0); NaN without a score."""
    lists = rounds.lists("passages")
    scores = lists.numbers("rerank_score")
    own = Finite.of(scores, lists.offsets[:-1], lists.offsets[1:]).statistic(
        lambda s: s.max(axis=1)
    )
    dense = np.fmax.accumulate(rounds.traces.dense(own), axis=1)
    highest: Array = dense[rounds.question, np.arange(rounds.n_rows) - rounds.first_row] + 0.0
    return highest


def rerank_mean(rounds: RoundColumns) -> Array:
    """Return the mean raw reranker score of the passages so far (paper 2, alternative S3)."""
    seen = rounds.once(_seen)
    offsets = np.append(0, np.cumsum(seen.ends - seen.begins))
    return segment_means(seen.scores[ranges(seen.begins, seen.ends)], offsets)


def rerank_variance(rounds: RoundColumns) -> Array:
    """Return the variance of min-max normalized scores so far, in [0, 1/4] (paper 2, S3); one: 0."""
    values = rounds.once(_seen).statistic(_normalised_variance)
    nothing = ~unrecorded_so_far(rounds) & ~rounds.so_far(rounds.lists("passages").lengths > 0)
    values[nothing] = 0.0
    return values


def rerank_variance_raw(rounds: RoundColumns) -> Array:
    """Return the variance of the raw scores so far, >= 0 (paper 2, alternative S3); 0 for one passage."""
    return rounds.once(_seen).statistic(lambda scores: unless_equal(scores, scores.var(axis=1)))


def _seen(rounds: RoundColumns) -> Finite:
    """Return the raw scores of the distinct passages so far."""
    listed = rounds.once(listings)
    ends = np.cumsum(listed.new)
    begins = (ends - listed.new)[rounds.first_row]
    return Finite.of(listed.lists.numbers("rerank_score")[listed.places], begins, ends)


def _normalised_variance(scores: Array) -> Array:
    low, high = scores.min(axis=1, keepdims=True), scores.max(axis=1, keepdims=True)
    return unless_equal(scores, ((scores - low) / (high - low)).var(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reranking(Replies[tuple[float | None, ...]]):
    """Hold a reranker's scores.

    ``by_row`` holds the ``rerank_score`` of each passage, for rows with a new one. ``calls`` are the calls by
    row, ``passages`` how many passages were scored.
    """

    calls: Mapping[int, int]
    passages: int


def rerank_passages(
    traces: TraceSet, reranker: Reranker, _wanted: Mask, on_progress: OnProgress
) -> Reranking:
    """Score every passage without a ``rerank_score``, once per question."""
    scores: dict[int, tuple[float | None, ...]] = {}
    calls: dict[int, int] = {}
    passages = row = 0
    for number, views in enumerate(traces.views(["passages"]), start=1):
        fresh = _new_scores(views[-1], reranker)
        passages += len(fresh)
        seen: set[str] = set()
        for round_ in views[-1].rounds:
            new = {p.id for p in round_.passages or () if p.rerank_score is None and p.id in fresh}
            if new:
                scores[row] = tuple(
                    fresh.get(p.id) if p.rerank_score is None else p.rerank_score
                    for p in round_.passages or ()
                )
            if new - seen:
                calls[row] = 1
            seen |= new
            row += 1
        on_progress(
            Asked(what="reranked", finished=number, planned=traces.n_questions, unit="questions")
        )
    return Reranking(by_row=scores, calls=calls, passages=passages)


def _new_scores(view: LoopView, reranker: Reranker) -> dict[str, float]:
    unscored: dict[str, Passage] = {}
    for passage in chain.from_iterable(held.passages or () for held in view.rounds):
        if passage.rerank_score is None and (passage.title or passage.text):
            unscored.setdefault(passage.id, passage)
    ranked = reranker.rerank(view.question, tuple(unscored.values())) if unscored else ()
    scores = {p.id: p.rerank_score for p in ranked if p.rerank_score is not None}
    if missing := [name for name in unscored if name not in scores]:
        raise BackendError(
            f"the reranker gave no score for passage {missing[0]!r} of {view.question!r}"
        )
    return scores


def _has_scores(traces: TraceSet) -> bool:
    scores = RoundColumns(traces).lists("passages").field("rerank_score")
    return bool(scores.null_count < len(scores))


def _columns(traces: TraceSet, reranking: Reranking) -> Mapping[str, list[Any]]:
    if not reranking.by_row:
        return {}
    rows = column_values(traces, "passages")
    for row, scores in reranking.by_row.items():
        for passage, score in zip(rows[row], scores, strict=True):
            passage["rerank_score"] = score
    calls = [
        (known or 0) + reranking.calls.get(row, 0)
        for row, known in enumerate(column_values(traces, RERANKS.calls))
    ]
    return {"passages": rows, RERANKS.calls: calls}


def _no_rerank_scores(view: LoopView) -> bool:
    seen = seen_passages(view.rounds)
    listed = [passage for held in view.rounds for passage in held.passages or ()]
    scored = any(p.rerank_score is not None and math.isfinite(p.rerank_score) for p in listed)
    return seen != {} and not scored


RERANKING = Asking(
    name="rerank",
    option="--reranker",
    who="reranker",
    ask=rerank_passages,
    columns=_columns,
    summary=lambda held: {"passages": held.passages, "calls": sum(held.calls.values())},
    line="the {who} scored {passages} passages",
    inputs=_has_scores,
)
_reranked = partial(
    SignalSpec,
    needs=("passages",),
    answers=False,
    charges=(RERANKS,),
    asking=RERANKING,
    undefined=(
        Absence(
            "no passage has a reranker's score",
            _no_rerank_scores,
            f"compute it with suffice signals {RERANKING.option}",
            input="passages=[suffice.Passage(id=..., rerank_score=...)]",
        ),
        Absence("no passage was found", lambda _: True),
    ),
)
RERANK_TOP_SCORE = _reranked(summary="highest raw reranker score so far", columns=rerank_top_score)
RERANK_MEAN = _reranked(summary="mean of the raw reranker scores", columns=rerank_mean)
RERANK_VARIANCE = _reranked(
    summary="variance of the reranker's scores, normalized",
    low=0.0,
    high=0.25,
    columns=rerank_variance,
)
RERANK_VARIANCE_RAW = _reranked(
    summary="variance of the raw reranker scores", low=0.0, columns=rerank_variance_raw
)

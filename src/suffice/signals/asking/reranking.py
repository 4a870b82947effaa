"""Score the passages of a whole record with a reranker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suffice.errors import BackendError
from suffice.protocols import Reranker
from suffice.signals.asking.whole_record import Asked
from suffice.trace.rounds.records import Passage, Round

if TYPE_CHECKING:
    from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Reranking:
    """What a reranker scored.

    ``scores`` holds by row of the trace set's table the ``rerank_score`` of each of its passages, of
    the rows where one is new; ``calls`` the calls by row; ``passages`` how many were scored.
    """

    scores: Mapping[int, tuple[float | None, ...]]
    calls: Mapping[int, int]
    passages: int


def rerank_passages(
    traces: TraceSet, reranker: Reranker, on_progress: Callable[[Asked], None]
) -> Reranking:
    """Score every passage that has no ``rerank_score`` against its question, each once a question.

    Passages with neither title nor text are left out. A round counts one call when it added a passage
    scored here, as a loop that reranks what it adds would make.

    Raises
    ------
    BackendError
        When the reranker fails or leaves a passage out.
    """
    scores: dict[int, tuple[float | None, ...]] = {}
    calls: dict[int, int] = {}
    passages = row = 0
    for number, views in enumerate(traces.views(["passages"]), start=1):
        rounds = views[-1].rounds
        unscored = _unscored(rounds)
        found = _scores(views[-1].question, unscored, reranker) if unscored else {}
        passages += len(found)
        seen: set[str] = set()
        for each in rounds:
            new = {p.id for p in each.passages or () if p.rerank_score is None and p.id in found}
            if new:
                scores[row] = tuple(
                    found.get(p.id) if p.rerank_score is None else p.rerank_score
                    for p in each.passages or ()
                )
            if new - seen:
                calls[row] = 1
            seen |= new
            row += 1
        on_progress(Asked(what="reranked", finished=number, planned=traces.n_questions))
    return Reranking(scores=scores, calls=calls, passages=passages)


def _unscored(rounds: tuple[Round, ...]) -> dict[str, Passage]:
    found: dict[str, Passage] = {}
    for passage in (each for round_ in rounds for each in round_.passages or ()):
        if passage.rerank_score is None and (passage.title or passage.text):
            found.setdefault(passage.id, passage)
    return found


def _scores(
    question: str, passages: Mapping[str, Passage], reranker: Reranker
) -> Mapping[str, float]:
    ranked = reranker.rerank(question, tuple(passages.values()))
    scores = {each.id: each.rerank_score for each in ranked if each.rerank_score is not None}
    missing = [name for name in passages if name not in scores]
    if missing:
        raise BackendError(f"the reranker gave no score for passage {missing[0]!r} of {question!r}")
    return scores

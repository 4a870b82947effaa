"""Retrievers made of others: several fused by reciprocal rank, and one whose pool is reranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from suffice.contracts import Reranker, Retriever
from suffice.errors import DataError, UsageError
from suffice.retrieval.ranking import check_k
from suffice.trace.rounds.records import Passage


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[str]], *, k: float = 60
) -> list[tuple[str, float]]:
    """Ids with the sum of ``1 / (k + rank)`` over the rankings that name them, best first.

    Notes
    -----
    Cormack, Clarke and Buettcher, "Reciprocal rank fusion outperforms Condorcet and individual rank
    learning methods", SIGIR 2009.

    >>> [(name, round(score, 3)) for name, score in
    ...  reciprocal_rank_fusion([["a", "b"], ["b", "c"]], k=0)]
    [('b', 1.5), ('a', 1.0), ('c', 0.5)]
    """
    _check_constant(k)
    scores: dict[str, float] = {}
    for ranking in rankings:
        if len(set(ranking)) < len(ranking):
            raise DataError(f"a ranking must name every id once, found {list(ranking)!r:.200}")
        for rank, name in enumerate(ranking, start=1):
            scores[name] = scores.get(name, 0.0) + 1.0 / (k + rank)
    return sorted(scores.items(), key=lambda item: -item[1])


def _check_constant(k: float) -> None:
    if not 0 <= k < float("inf"):
        raise UsageError(f"k of reciprocal rank fusion must be at least 0, found {k!r}")


class HybridRetriever:
    """Fuses the rankings of several retrievers; a :class:`suffice.contracts.Retriever`.

    Passages with one id are one passage, told by the first retriever that found it; ``score`` is the
    fused score. Every retriever gives ``candidates`` passages, however many are asked for.
    """

    def __init__(
        self,
        retrievers: Sequence[Retriever],
        *,
        candidates: int = 20,
        k: float = 60,
    ) -> None:
        self._retrievers = tuple(retrievers)
        if not self._retrievers:
            raise UsageError("there is nothing to fuse: give at least one retriever")
        if candidates < 1:
            raise UsageError(f"candidates must be at least 1, found {candidates}")
        _check_constant(k)
        self.candidates = candidates
        self._k = k

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """The ``k`` best of the fused pool, best first, with their fused scores."""
        check_k(k)
        rankings = [retriever.retrieve(query, self.candidates) for retriever in self._retrievers]
        found: dict[str, Passage] = {}
        for passage in chain.from_iterable(rankings):
            found.setdefault(passage.id, passage)
        names = [[passage.id for passage in ranking] for ranking in rankings]
        fused = reciprocal_rank_fusion(names, k=self._k)[:k]
        return tuple(replace(found[name], score=score) for name, score in fused)


class RerankedRetriever:
    """Retrieves a pool, reranks it, gives its best; a :class:`suffice.contracts.Retriever`.

    Passages come in the reranker's order with both numbers: ``score`` is the retriever's, so it need
    not fall, and ``rerank_score`` the reranker's raw one. No more than ``candidates`` are reranked.
    """

    def __init__(self, retriever: Retriever, reranker: Reranker, *, candidates: int = 40) -> None:
        if candidates < 1:
            raise UsageError(f"candidates must be at least 1, found {candidates}")
        self._retriever = retriever
        self._reranker = reranker
        self.candidates = candidates

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """The ``k`` best of the pool by the reranker, best first; what scored NaN last."""
        check_k(k)
        pool = self._retriever.retrieve(query, self.candidates)
        return tuple(self._reranker.rerank(query, pool)[:k]) if pool else ()

"""A retriever whose candidates a reranker puts in order."""

from __future__ import annotations

from suffice.errors import UsageError
from suffice.protocols import Reranker, Retriever
from suffice.retrieval.ranking import check_k
from suffice.trace.rounds.records import Passage


class RerankedRetriever:
    """Retrieves a pool, reranks it, gives its best; a :class:`suffice.protocols.Retriever`.

    Passages come in the reranker's order with both numbers: ``score`` is the retriever's, so it need
    not fall, and ``rerank_score`` the reranker's raw one. Asked for more than ``candidates``, it
    reranks as many as asked for; a passage that only the larger pool holds may then lead.

    Parameters
    ----------
    retriever
        The first stage, for example a :class:`suffice.retrieval.fusion.HybridRetriever`.
    reranker
        The second.
    candidates
        Passages reranked a query, at least 1; every one of them costs a pass of the reranker.
    """

    def __init__(self, retriever: Retriever, reranker: Reranker, *, candidates: int = 40) -> None:
        if candidates < 1:
            raise UsageError(f"candidates must be at least 1, found {candidates}")
        self._retriever = retriever
        self._reranker = reranker
        self._candidates = candidates

    @property
    def candidates(self) -> int:
        """How many passages are reranked."""
        return self._candidates

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """The ``k`` best of the pool by the reranker, best first; what scored NaN last.

        Raises
        ------
        UsageError
            When ``k`` is below 1.
        BackendError
            When the retriever or the reranker fails.
        """
        check_k(k)
        pool = self._retriever.retrieve(query, max(self._candidates, k))
        return tuple(self._reranker.rerank(query, pool)[:k]) if pool else ()

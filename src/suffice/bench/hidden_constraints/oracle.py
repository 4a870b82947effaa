"""The retriever that cannot miss, and the ranks at which others find the same (paper 4, 7.3, 7.4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from suffice.errors import UsageError
from suffice.retrieval.ranking import check_k
from suffice.trace.rounds.records import Passage


class OracleRetriever:
    """Gives a task's constraint documents whatever is asked; a :class:`suffice.protocols.Retriever`.

    Paper 4, section 7.4: the constraint's document takes the place of what a retriever finds. Here a
    task has up to three; all are given, best first in the order they came, with scores 1, 1/2, 1/3.

    Parameters
    ----------
    documents
        Of one task.
    """

    def __init__(self, documents: Iterable[Passage]) -> None:
        self._documents = tuple(
            replace(document, score=1 / rank) for rank, document in enumerate(documents, start=1)
        )
        if not self._documents:
            raise UsageError("an oracle gives the documents of a task, found none")

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:  # noqa: ARG002 - asked in vain
        """The first ``k`` of the task's documents."""
        check_k(k)
        return self._documents[:k]


def oracle_rank(ranking: Sequence[str], gold: Collection[str]) -> int | None:
    """The rank, from 1, of the first gold document among the ids of a ranking; ``None``: not found.

    >>> oracle_rank(["d7", "d3", "d1"], {"d1", "d3"})
    2
    """
    return next(
        (rank for rank, document_id in enumerate(ranking, start=1) if document_id in gold), None
    )

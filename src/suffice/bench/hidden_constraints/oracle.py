"""The retriever that cannot miss, and the ranks at which others find the same (paper 4, 7.3, 7.4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from suffice.errors import UsageError
from suffice.trace.plan import PlanTask
from suffice.trace.records import Passage

__all__ = [
    "OracleRetriever",
    "canonical_query",
    "hit_at",
    "mean_rank",
    "oracle_rank",
    "recall_at",
]


class OracleRetriever:
    """Gives a task's constraint documents whatever is asked; a :class:`suffice.protocols.Retriever`.

    Paper 4, section 7.4: the constraint's document takes the place of what a retriever finds. Here a
    task has up to three; all are given, best first in the order they came, with scores 1, 1/2, 1/3.

    Parameters
    ----------
    documents
        Of one task.

    Raises
    ------
    UsageError
        When there are none.
    """

    def __init__(self, documents: Iterable[Passage]) -> None:
        self._documents = tuple(
            replace(each, score=1 / rank) for rank, each in enumerate(documents, start=1)
        )
        if not self._documents:
            raise UsageError("an oracle gives the documents of a task, found none")

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:  # noqa: ARG002 - asked in vain
        """The first ``k`` of the task's documents.

        Raises
        ------
        UsageError
            For a ``k`` below 1.
        """
        _check_k(k)
        return self._documents[:k]


def canonical_query(task: PlanTask) -> str:
    """Goal and context: what a task is searched by when no agent does it (paper 4, Table 3)."""
    return " ".join(each for each in (task.goal, task.context) if each)


def oracle_rank(ranking: Sequence[str], gold: Collection[str]) -> int | None:
    """The rank, from 1, of the first gold document among the ids of a ranking; ``None``: not found.

    >>> oracle_rank(["d7", "d3", "d1"], {"d1", "d3"})
    2
    """
    return next((rank for rank, each in enumerate(ranking, start=1) if each in gold), None)


def recall_at(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Gold documents among the first ``k`` over all gold documents, in [0, 1].

    The paper's tasks have one such document, for which this equals :func:`hit_at`.

    Raises
    ------
    UsageError
        For a ``k`` below 1, or no gold document.

    >>> recall_at(["d7", "d3", "d1"], {"d1", "d3"}, 2)
    0.5
    """
    _check_k(k)
    wanted = set(gold)
    if not wanted:
        raise UsageError("recall is undefined without gold documents; leave such a task out")
    return len(wanted.intersection(ranking[:k])) / len(wanted)


def hit_at(ranking: Sequence[str], gold: Collection[str], k: int) -> bool:
    """Whether a gold document is among the first ``k``: one is enough to learn the constraint.

    Raises
    ------
    UsageError
        For a ``k`` below 1, or no gold document.
    """
    return recall_at(ranking, gold, k) > 0


def mean_rank(ranks: Iterable[int | None]) -> float | None:
    """The mean over those found (paper 4, Table 3); ``None`` where none was."""
    found = [each for each in ranks if each is not None]
    return sum(found) / len(found) if found else None


def _check_k(k: int) -> None:
    if k < 1:
        raise UsageError(f"k must be at least 1, found {k}")

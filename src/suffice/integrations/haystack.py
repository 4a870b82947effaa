"""Haystack retriever components. Needs ``haystack-ai``."""

from __future__ import annotations

import inspect
from typing import Any

from suffice._optional import require
from suffice.errors import UsageError
from suffice.integrations.documents import AdapterSettings, Found, ShortWarning, failing_as, ranked
from suffice.retrieval.ranking import check_k
from suffice.trace.rounds.records import Passage


class HaystackRetriever:
    """A Haystack text retriever as a :class:`suffice.protocols.Retriever`.

    Its ``run(query=..., top_k=...)`` is called outside any Haystack pipeline. One whose ``run`` takes no
    ``top_k`` keeps its own number: the result is cut to ``k``, and a warning is given once when it is
    shorter. An empty query finds nothing.

    Haystack makes a document's id from its content, so ids are stable; documents that are no text get
    the empty text.

    Parameters
    ----------
    component
        A component whose ``run`` takes ``query`` and returns ``documents``, such as
        ``InMemoryBM25Retriever``; retrievers by embedding go into a ``TextEmbeddingRetriever``.
    settings
        See :class:`suffice.integrations.documents.AdapterSettings`.

    Raises
    ------
    MissingExtra
        When ``haystack-ai`` is not installed.
    UsageError
        When it is no such component.
    """

    def __init__(self, component: Any, *, settings: AdapterSettings | None = None) -> None:
        require("haystack", package="haystack-ai", purpose="A Haystack retriever")
        name = type(component).__name__
        if not hasattr(component, "__haystack_input__"):
            raise UsageError(f"wanted a Haystack component, found {name}")
        taken = inspect.signature(component.run).parameters
        if "query" not in taken:
            raise UsageError(
                f"{name}.run takes {', '.join(taken)} and no query; join a retriever by embedding with its "
                "embedder: TextEmbeddingRetriever(retriever=..., text_embedder=...)"
            )
        self._component = component
        self._settings = settings or AdapterSettings()
        self._source = f"Haystack's {name}"
        self._takes_top_k = "top_k" in taken
        self._short = ShortWarning(self._source, "Raise its own number of documents.")

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """At most ``k`` passages, in Haystack's order.

        Raises
        ------
        BackendError
            On one of the exceptions named as failures.
        """
        check_k(k)
        if not query.strip():
            return ()
        arguments = {"top_k": k} if self._takes_top_k else {}
        with failing_as(self._source, self._settings.failures):
            documents = self._component.run(query=query, **arguments)["documents"]
        ranking = (
            Found(
                text=document.content or "",
                id=document.id,
                score=document.score,
                metadata=document.meta,
            )
            for document in documents
        )
        passages = ranked(ranking, k, self._settings, source=self._source)
        if not self._takes_top_k:
            self._short.check(len(passages), k)
        return passages

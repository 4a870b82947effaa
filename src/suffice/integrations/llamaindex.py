"""LlamaIndex retrievers. Needs ``llama-index-core``."""

from __future__ import annotations

import copy
from typing import Any

from suffice._optional import require
from suffice.errors import UsageError
from suffice.integrations.documents import AdapterSettings, Found, ShortWarning, failing_as, ranked
from suffice.retrieval.ranking import check_k
from suffice.trace.rounds.records import Passage

_SIZES = ("similarity_top_k", "_similarity_top_k")
_PARTS = ("_retrievers", "_retriever_dict")


class LlamaIndexRetriever:
    """A LlamaIndex ``BaseRetriever`` as a :class:`suffice.protocols.Retriever`.

    LlamaIndex's ``retrieve`` takes no number of nodes. It is set as ``similarity_top_k``, on a copy,
    where the retriever has it; any other keeps its own number: the result is cut to ``k``, and a warning
    is given once when it is shorter. Retrievers made of others (fusion, routers) hand no number down,
    so theirs must be set high enough.

    Nodes without an id of yours get a random one: give ``id_key`` then.

    Parameters
    ----------
    retriever
        A ``llama_index.core.base.base_retriever.BaseRetriever``; of an index, ``index.as_retriever()``.
    settings
        See :class:`suffice.integrations.documents.AdapterSettings`.
    max_k
        The largest number the retriever may be asked for, where a larger one is an error to it:
        ``BM25Retriever`` wants no more than it has nodes.

    Raises
    ------
    MissingExtra
        When ``llama-index-core`` is not installed.
    UsageError
        When it is no such retriever, or ``max_k`` is below 1.
    """

    def __init__(
        self, retriever: Any, *, settings: AdapterSettings | None = None, max_k: int | None = None
    ) -> None:
        module = require(
            "llama_index.core.base.base_retriever",
            package="llama-index-core",
            purpose="A LlamaIndex retriever",
        )
        if not isinstance(retriever, module.BaseRetriever):
            raise UsageError(
                f"wanted a LlamaIndex BaseRetriever, found {type(retriever).__name__}; of an index give "
                "index.as_retriever()"
            )
        if max_k is not None and max_k < 1:
            raise UsageError(f"max_k must be at least 1, found {max_k}")
        self._max_k = max_k
        self._retriever = retriever
        self._settings = settings or AdapterSettings()
        self._source = f"LlamaIndex's {type(retriever).__name__}"
        self._sizes = [size for size in _SIZES if hasattr(retriever, size)]
        self._own_number = not self._sizes or any(hasattr(retriever, part) for part in _PARTS)
        self._short = ShortWarning(
            self._source, "Raise its own number of nodes, or that of the retrievers it is made of."
        )

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """At most ``k`` passages, in LlamaIndex's order.

        Raises
        ------
        BackendError
            On one of the exceptions named as failures.
        """
        check_k(k)
        retriever = copy.copy(self._retriever)
        asked = k if self._max_k is None else min(k, self._max_k)
        for name in self._sizes:
            setattr(retriever, name, asked)
        with failing_as(self._source, self._settings.failures):
            nodes = retriever.retrieve(query)
        ranking = (
            Found(
                text=node.get_content(), id=node.node_id, score=node.score, metadata=node.metadata
            )
            for node in nodes
        )
        passages = ranked(ranking, k, self._settings, source=self._source)
        if self._own_number:
            self._short.check(len(passages), k)
        return passages

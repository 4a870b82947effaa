"""LangChain retrievers, both ways. Needs ``langchain-core``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from suffice._optional import require
from suffice.errors import UsageError
from suffice.integrations.documents import AdapterSettings, Found, ShortWarning, failing_as, ranked
from suffice.protocols import Retriever
from suffice.retrieval.ranking import check_k
from suffice.trace.rounds.records import Passage

_SIZE_FIELDS = ("k", "top_k", "top_k_results")


class LangChainRetriever:
    """A LangChain ``BaseRetriever`` as a :class:`suffice.protocols.Retriever`.

    LangChain's ``invoke`` takes no number of documents. It is set, on a copy, where the retriever keeps
    it: ``search_kwargs["k"]`` (vector stores), or a field ``k``, ``top_k`` or ``top_k_results``; or it
    is passed on to a ``_get_relevant_documents`` that takes ``k``. Any other retriever keeps its own
    number: the result is cut to ``k``, and a warning is given once when it is shorter.

    LangChain's documents carry no score, so scores are 1/rank unless ``score_key`` names one.

    Parameters
    ----------
    retriever
        A ``langchain_core.retrievers.BaseRetriever``; of a vector store, ``store.as_retriever()``.
    settings
        See :class:`suffice.integrations.documents.AdapterSettings`.
    size_field
        The retriever's field that holds its number of documents, where it has another name.

    Raises
    ------
    MissingExtra
        When ``langchain-core`` is not installed.
    UsageError
        When it is no such retriever, or has no such field.
    """

    def __init__(
        self,
        retriever: Any,
        *,
        settings: AdapterSettings | None = None,
        size_field: str | None = None,
    ) -> None:
        base = _langchain("retrievers").BaseRetriever
        if not isinstance(retriever, base):
            raise UsageError(
                f"wanted a LangChain BaseRetriever, found {type(retriever).__name__}; of a vector store "
                "give store.as_retriever()"
            )
        fields = type(retriever).model_fields
        if size_field is not None and size_field not in fields:
            raise UsageError(
                f"{type(retriever).__name__} has no field {size_field!r}; it has: {', '.join(fields)}"
            )
        self._retriever = retriever
        self._settings = settings or AdapterSettings()
        self._source = f"LangChain's {type(retriever).__name__}"
        self._size_field = size_field or next(
            (field for field in _SIZE_FIELDS if field in fields), None
        )
        self._by_search_kwargs = size_field is None and "search_kwargs" in fields
        self._by_argument = "k" in inspect.signature(retriever._get_relevant_documents).parameters  # noqa: SLF001
        self._short = ShortWarning(
            self._source,
            "Raise its own number of documents, or name the field that holds it with size_field=.",
        )

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """At most ``k`` passages, in LangChain's order.

        Raises
        ------
        BackendError
            On one of the exceptions named as failures.
        """
        check_k(k)
        retriever, arguments = self._sized(k)
        with failing_as(self._source, self._settings.failures):
            documents = retriever.invoke(query, **arguments)
        ranking = (
            Found(text=document.page_content, id=document.id, metadata=document.metadata)
            for document in documents
        )
        passages = ranked(ranking, k, self._settings, source=self._source)
        if retriever is self._retriever and not arguments:
            self._short.check(len(passages), k)
        return passages

    def _sized(self, k: int) -> tuple[Any, Mapping[str, int]]:
        """The retriever set to ``k``, and what is passed to it; itself and nothing when it cannot."""
        retriever = self._retriever
        if self._by_search_kwargs:
            changed = {"search_kwargs": {**retriever.search_kwargs, "k": k}}
            return retriever.model_copy(update=changed), {}
        if self._size_field is not None:
            return retriever.model_copy(update={self._size_field: k}), {}
        return retriever, {"k": k} if self._by_argument else {}


def as_langchain_retriever(retriever: Retriever, *, k: int = 4) -> Any:
    """A retriever of this library as a LangChain ``BaseRetriever`` with a field ``k``.

    Title and score stand in each document's metadata, under ``title`` and ``score``.

    Raises
    ------
    MissingExtra
        When ``langchain-core`` is not installed.
    UsageError
        When ``k`` is below 1.
    """
    check_k(k)
    document = _langchain("documents").Document
    base: Any = _langchain("retrievers").BaseRetriever

    class SufficeRetriever(base):  # type: ignore[misc]
        source: Any
        k: int

        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
            del run_manager  # nothing below reports to it
            return [
                document(
                    page_content=passage.text or "",
                    id=passage.id,
                    metadata={"title": passage.title, "score": passage.score},
                )
                for passage in self.source.retrieve(query, self.k)
            ]

    # annotations are text here; pydantic resolves them where the class is made
    return SufficeRetriever(source=retriever, k=k)


def _langchain(module: str) -> ModuleType:
    return require(
        f"langchain_core.{module}", package="langchain-core", purpose="A LangChain retriever"
    )

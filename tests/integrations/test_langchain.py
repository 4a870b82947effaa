"""LangChain's retrievers under the adapter, and a retriever of ours under LangChain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.integrations.retrieving import QUERIES, TEXTS, bag

from suffice.contracts import Retriever
from suffice.errors import SufficeWarning, UsageError
from suffice.integrations.documents import AdapterSettings
from suffice.integrations.langchain import LangChainRetriever, as_langchain_retriever
from suffice.retrieval.bm25 import OKAPI, BM25Index
from suffice.testing.conformance import check_retriever
from suffice.trace.rounds.records import Passage

core = pytest.importorskip(
    "langchain_core", reason="runs in its own environment: make test-integrations"
)
documents = pytest.importorskip("langchain_core.documents")
embeddings = pytest.importorskip("langchain_core.embeddings")
retrievers = pytest.importorskip("langchain_core.retrievers")
vectorstores = pytest.importorskip("langchain_core.vectorstores")

BY_KEY = AdapterSettings(id_key="key")


class Bags(embeddings.Embeddings):  # type: ignore[name-defined,misc]
    """Counts of the longer words."""

    def embed_query(self, text: str) -> list[float]:
        return bag(text)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return list(map(bag, texts))


def notes() -> list[Any]:
    return [
        documents.Document(page_content=text, metadata={"key": key, "title": key.title()})
        for key, text in TEXTS.items()
    ]


class Listed(retrievers.BaseRetriever):  # type: ignore[name-defined,misc]
    """The first notes, of which it has a number of its own."""

    notes: list[Any]
    amount: int = 3

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
        return list(self.notes[: self.amount])


class Sized(Listed):
    k: int = 2

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
        return list(self.notes[: self.k])


class Asked(Listed):
    def _get_relevant_documents(self, query: str, *, run_manager: Any, k: int = 2) -> list[Any]:
        return list(self.notes[:k])


@pytest.fixture(scope="module")
def store() -> Any:
    made = vectorstores.InMemoryVectorStore(Bags())
    made.add_documents(notes())
    return made


def test_a_vector_store_keeps_the_protocol(store: Any) -> None:
    adapted = LangChainRetriever(store.as_retriever(search_kwargs={"k": 2}), settings=BY_KEY)
    assert isinstance(adapted, Retriever)
    check_retriever(adapted, QUERIES, size=len(TEXTS))
    query = "green boat of the harbour master"
    found = adapted.retrieve(query, 5)
    wanted = [each.metadata["key"] for each in store.similarity_search(query, k=5)]
    assert [each.id for each in found] == wanted
    assert found[0] == Passage(id="harbour", title="Harbour", text=TEXTS["harbour"], score=1.0)
    assert [each.score for each in found[1:3]] == [0.5, pytest.approx(1 / 3)]


def test_its_own_settings_stay_as_they_are(store: Any) -> None:
    inner = store.as_retriever(
        search_kwargs={"k": 2, "filter": lambda each: each.metadata["key"] != "harbour"}
    )
    found = LangChainRetriever(inner, settings=BY_KEY).retrieve("green boat", 6)
    assert len(found) == 5
    assert "harbour" not in [each.id for each in found]
    assert inner.search_kwargs["k"] == 2
    assert len(inner.invoke("green boat")) == 2


@pytest.mark.parametrize("kind", [Sized, Asked])
def test_k_goes_where_the_retriever_takes_it(kind: Any) -> None:
    inner = kind(notes=notes())
    check_retriever(LangChainRetriever(inner, settings=BY_KEY), ["x"], size=len(TEXTS))
    assert len(inner.invoke("x")) == 2


def test_a_field_of_another_name() -> None:
    adapted = LangChainRetriever(Listed(notes=notes()), settings=BY_KEY, size_field="amount")
    check_retriever(adapted, ["x"], size=len(TEXTS))
    with pytest.raises(UsageError, match=r"no field 'most'; it has: .*amount"):
        LangChainRetriever(Listed(notes=notes()), size_field="most")


def test_a_number_out_of_reach_is_said_once(recwarn: pytest.WarningsRecorder) -> None:
    adapted = LangChainRetriever(Listed(notes=notes()), settings=BY_KEY)
    assert len(adapted.retrieve("x", 2)) == 2
    assert [each for each in recwarn if each.category is SufficeWarning] == []
    assert [len(adapted.retrieve("x", 15)) for _ in range(2)] == [3, 3]
    (said,) = [each for each in recwarn if each.category is SufficeWarning]
    assert "LangChain's Listed gave 3 documents where 15 were asked for" in str(said.message)
    assert said.filename == __file__


def test_a_store_is_no_retriever(store: Any) -> None:
    with pytest.raises(UsageError, match=r"found InMemoryVectorStore; .*as_retriever\(\)"):
        LangChainRetriever(store)


def test_there_and_back() -> None:
    index = BM25Index.build(
        [Passage(id=key, title=key.title(), text=text) for key, text in TEXTS.items()], OKAPI
    )
    there = as_langchain_retriever(index, k=3)
    assert isinstance(there, retrievers.BaseRetriever)
    assert [each.id for each in there.invoke("green boat")] == [
        each.id for each in index.retrieve("green boat", 3)
    ]
    chain = there | (lambda found: [each.metadata["title"] for each in found])
    assert chain.invoke("green boat")[0] == "Harbour"
    back = LangChainRetriever(there, settings=AdapterSettings(score_key="score"))
    check_retriever(back, QUERIES, size=len(TEXTS))
    for query in QUERIES:
        assert list(back.retrieve(query, 4)) == list(index.retrieve(query, 4))
    with pytest.raises(UsageError, match="k must be at least 1"):
        as_langchain_retriever(index, k=0)


def test_the_snippet_of_the_docs_runs(run_snippet: Callable[..., dict[str, Any]]) -> None:
    made = run_snippet("LangChain")
    assert {each.id for each in made["passages"]} == {"b1", "t1"}
    assert made["documents"][0].id == made["passages"][0].id

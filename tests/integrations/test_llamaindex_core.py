"""LlamaIndex's retrievers under the adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.integrations.retrieving import QUERIES, TEXTS, bag

from suffice.contracts import Retriever
from suffice.errors import SufficeWarning, UsageError
from suffice.integrations.documents import AdapterSettings
from suffice.integrations.llamaindex import LlamaIndexRetriever
from suffice.testing.conformance import check_retriever

core = pytest.importorskip(
    "llama_index.core", reason="runs in its own environment: make test-integrations"
)
embeddings = pytest.importorskip("llama_index.core.embeddings")
llms = pytest.importorskip("llama_index.core.llms")
retrievers = pytest.importorskip("llama_index.core.retrievers")
schema = pytest.importorskip("llama_index.core.schema")
bm25 = pytest.importorskip("llama_index.retrievers.bm25")


class Bags(embeddings.BaseEmbedding):  # type: ignore[name-defined,misc]
    """Counts of the longer words."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return bag(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        return bag(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return bag(query)


def nodes() -> list[Any]:
    return [
        schema.TextNode(id_=key, text=text, metadata={"title": key.title(), "number": at})
        for at, (key, text) in enumerate(TEXTS.items())
    ]


@pytest.fixture(scope="module")
def index() -> Any:
    made = nodes()
    for node in made:  # the title is for the reader, not for the embedding
        node.excluded_embed_metadata_keys = ["title", "number"]
    return core.VectorStoreIndex(made, embed_model=Bags())


def test_a_vector_index_keeps_the_protocol(index: Any) -> None:
    inner = index.as_retriever(similarity_top_k=2)
    adapted = LlamaIndexRetriever(inner)
    assert isinstance(adapted, Retriever)
    check_retriever(adapted, QUERIES, size=len(TEXTS))
    query = "green boat of the harbour master"
    found = adapted.retrieve(query, 5)
    wanted = index.as_retriever(similarity_top_k=5).retrieve(query)
    assert [(each.id, each.text) for each in found] == [(each.id_, each.text) for each in wanted]
    assert [each.score for each in found] == pytest.approx([each.score for each in wanted])
    assert (found[0].id, found[0].title) == ("harbour", "Harbour")
    assert found[0].score == pytest.approx(1.0)
    assert inner.similarity_top_k == 2
    assert len(inner.retrieve(query)) == 2


def test_bm25_keeps_the_protocol() -> None:
    inner = bm25.BM25Retriever.from_defaults(nodes=nodes(), similarity_top_k=2)
    adapted = LlamaIndexRetriever(inner, max_k=len(TEXTS))
    check_retriever(adapted, QUERIES, size=len(TEXTS))
    assert adapted.retrieve("green boat", 9)[0].id == "harbour"
    assert inner.similarity_top_k == 2
    with pytest.raises(ValueError, match="larger than the number of available scores"):
        LlamaIndexRetriever(inner).retrieve("green boat", 9)
    with pytest.raises(UsageError, match="max_k must be at least 1"):
        LlamaIndexRetriever(inner, max_k=0)


def test_ids_from_metadata(index: Any) -> None:
    adapted = LlamaIndexRetriever(index.as_retriever(), settings=AdapterSettings(id_key="number"))
    assert adapted.retrieve("green boat of the harbour master", 1)[0].id == "2"


def test_fusion_keeps_the_numbers_of_its_parts(index: Any) -> None:
    fused = retrievers.QueryFusionRetriever(
        [index.as_retriever(similarity_top_k=2), index.as_retriever(similarity_top_k=3)],
        llm=llms.MockLLM(),
        mode="reciprocal_rerank",
        num_queries=1,
        use_async=False,
    )
    adapted = LlamaIndexRetriever(fused)
    assert len(adapted.retrieve("green boat", 1)) == 1
    with pytest.warns(SufficeWarning, match="or that of the retrievers it is made of"):
        assert len(adapted.retrieve("green boat", 6)) == 3


def test_the_snippet_of_the_docs_runs(run_snippet: Callable[..., dict[str, Any]]) -> None:
    assert {each.id for each in run_snippet("LlamaIndex")["passages"]} == {"b1", "t1"}

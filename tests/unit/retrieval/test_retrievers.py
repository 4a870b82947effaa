"""Retrievers by name: what they are made of, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.hashing_encoder import HashingEncoder

from suffice.contracts import Retriever
from suffice.errors import UsageError
from suffice.retrieval.bm25 import OKAPI, BM25Index
from suffice.retrieval.dense import DenseIndex
from suffice.retrieval.retrievers import (
    RETRIEVERS,
    HybridRetriever,
    IndexMaker,
    OwnParagraphs,
    Retrieval,
    RetrieverName,
    corpus_retriever,
    pooled_passages,
    pooled_retriever,
)
from suffice.trace.rounds.records import Passage

pytest.importorskip("bm25s")

NAMES = ["Ardel", "Borel", "Cadel", "Dorel", "Edrel", "Fadel"]
PASSAGES = tuple(
    Passage(id=name, title=name, text=f"{name} stands on the river {name}a, near {other}.")
    for name, other in zip(NAMES, NAMES[1:] + NAMES[:1], strict=True)
)
QUERY = "On which river does Cadel stand?"
ENCODER = HashingEncoder()


class ByLength:
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
    assert (tmp_path / "kept" / "index.npz").exists()
    expected = pooled.retrieve(QUERY, 4)
    for again in (
        pooled_retriever(PASSAGES, chosen, tmp_path / "index", make),
        corpus,
        corpus_retriever(PASSAGES, chosen, make, tmp_path / "kept"),
        corpus_retriever(PASSAGES, chosen, make),
    ):
        assert again.retrieve(QUERY, 4) == expected


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


@pytest.mark.parametrize("name", ["bm25+rerank", "dense+rerank", "hybrid+rerank"])
def test_reranking_orders_the_whole_pool(name: RetrieverName) -> None:
    passages = (*PASSAGES, Passage(id="short", title="Cadel", text="Cadel river."))
    found = OwnParagraphs(passages, retrieval(name)).retrieve(QUERY, 3)
    assert found[0].id == "short"
    assert len(found) == len(passages)
    scores = [each.rerank_score for each in found if each.rerank_score is not None]
    assert len(scores) == len(found)
    assert scores == sorted(scores, reverse=True)
    assert all(each.score is not None for each in found)


@pytest.mark.parametrize("first", ["bm25", "dense", "hybrid"])
def test_a_stated_pool_is_what_the_first_stage_finds_however_much_is_asked_for(
    first: RetrieverName,
) -> None:
    name: RetrieverName = f"{first}+rerank"  # type: ignore[assignment]
    chosen = replace(retrieval(name), pool=2)
    best = {found.id for found in OwnParagraphs(PASSAGES, retrieval(first)).retrieve(QUERY, 6)[:2]}
    make = IndexMaker(encoder=ENCODER)
    for each in (chosen, chosen.reaching(6)):
        assert each.most == 2
        assert {p.id for p in OwnParagraphs(PASSAGES, each).retrieve(QUERY, 1)} == best
        assert set(ids(corpus_retriever(PASSAGES, each, make))) == best
    assert len(ids(corpus_retriever(PASSAGES, replace(chosen, pool=5), make))) == 5
    assert chosen.stated == {"retriever": name, "reranker": "by length", "pool": 2}


def test_what_is_missing_is_named_with_what_to_type() -> None:
    for name in ("dense", "hybrid", "dense+rerank", "hybrid+rerank"):
        with pytest.raises(UsageError, match="--encoder minilm"):
            Retrieval(name=name)
    with pytest.raises(UsageError, match="--reranker PATH"):
        Retrieval(name="hybrid+rerank", encoder=ENCODER)
    with pytest.raises(UsageError, match="--reranker"):
        Retrieval(name="bm25+rerank")
    with pytest.raises(UsageError, match="--pool"):
        Retrieval(pool=10)
    with pytest.raises(UsageError, match="found 0"):
        Retrieval(name="bm25+rerank", reranker=ByLength(), pool=0)
    with pytest.raises(UsageError, match="'x'"):
        Retrieval(name="x")
    with pytest.raises(UsageError, match="candidates"):
        Retrieval(candidates=0)

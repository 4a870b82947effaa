"""Recall of retrievers over a pooled corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from studies.retrieval.__main__ import DEPTHS, RetrievalSettings, data_set_recall
from tests.hashing_encoder import HashingEncoder

from suffice.datasets.files import Example
from suffice.datasets.known_datasets import load
from suffice.errors import UsageError
from suffice.retrieval.bm25 import BM25Index
from suffice.retrieval.retrievers import IndexMaker, pooled_passages
from suffice.trace.rounds.records import Gold, Passage, Question

ENCODER = HashingEncoder()
MAKE = IndexMaker(encoder=ENCODER)


class _ByTitle:
    """A reranker that knows the gold titles, so that its recall is as good as the pool's."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self._gold = {
            example.question.text: {
                p.title for p in example.passages if p.id in example.gold.passage_ids
            }
            for example in examples
        }

    def rerank(self, query: str, passages: Sequence[Passage]) -> Sequence[Passage]:
        scored = [
            replace(passage, rerank_score=float(passage.title in self._gold[query]))
            for passage in passages
        ]
        return sorted(scored, key=lambda each: -(each.rerank_score or 0.0))


@pytest.fixture(scope="module")
def examples() -> tuple[Example, ...]:
    return load("generated", limit=30)


def test_recall_is_what_the_index_gives(examples: tuple[Example, ...]) -> None:
    found = data_set_recall(examples, RetrievalSettings(resamples=50), MAKE)
    index = BM25Index.build(pooled_passages(example.passages for example in examples))
    shares = []
    for example in examples:
        gold = {p.title for p in example.passages if p.id in example.gold.passage_ids}
        first = [p.title for p in index.retrieve(example.question.text, 5)]
        shares.append(len(gold & set(first)) / len(gold))
    (bm25,) = [result for result in found["results"] if result["retriever"] == "bm25"]
    assert bm25["recall@5"] == pytest.approx(float(np.mean(shares)))
    assert (found["questions"], found["passages"]) == (30, len(index.passages))


def test_every_retriever_takes_part_where_its_models_are_there(
    examples: tuple[Example, ...],
) -> None:
    alone = data_set_recall(examples, RetrievalSettings(resamples=20), MAKE)
    assert [result["retriever"] for result in alone["results"]] == ["bm25", "tfidf"]
    assert any("--reranker" in note or "--encoder" in note for note in alone["notes"])
    settings = RetrievalSettings(encoder=ENCODER, reranker=_ByTitle(examples), resamples=20)
    whole = data_set_recall(examples, settings, MAKE)
    results = {result["retriever"]: result for result in whole["results"]}
    assert list(results) == ["bm25", "tfidf", "dense", "hybrid", "hybrid+rerank"]
    assert results["hybrid+rerank"]["recall@5"] >= results["hybrid"]["recall@20"]
    for name, result in results.items():
        recalls = [result[f"recall@{k}"] for k in DEPTHS]
        assert recalls == sorted(recalls)
        assert (result["against_bm25"] is None) == (name == "bm25")


def test_what_is_named_is_compared_with_bm25_over_its_pool(examples: tuple[Example, ...]) -> None:
    settings = RetrievalSettings(
        retrievers=("dense+rerank", "bm25"),
        encoder=ENCODER,
        reranker=_ByTitle(examples),
        pool=10,
        resamples=20,
    )
    bm25, reranked = data_set_recall(examples, settings, MAKE)["results"]
    assert (bm25["retriever"], reranked["retriever"]) == ("bm25", "dense+rerank")
    assert reranked["recall@50"] == reranked["recall@10"]
    alone = data_set_recall(examples, replace(settings, reranker=None), MAKE)
    assert any(note.startswith("dense+rerank is left out") for note in alone["notes"])
    with pytest.raises(UsageError):
        data_set_recall(examples, RetrievalSettings(retrievers=("x",)), MAKE)
    with pytest.raises(UsageError):
        RetrievalSettings(retrievers=("dense",), pool=10)


def test_differences_are_paired(examples: tuple[Example, ...]) -> None:
    found = data_set_recall(examples, RetrievalSettings(resamples=200), MAKE)
    bm25, tfidf = found["results"]
    for name, difference in tfidf["against_bm25"].items():
        assert difference.estimate == pytest.approx(tfidf[name] - bm25[name])
        intervals = [each["intervals"][name] for each in (bm25, tfidf)]
        apart = sum(interval.high - interval.low for interval in intervals)
        assert difference.high - difference.low <= apart + 1e-12


def test_gold_counts_by_title() -> None:
    """The same title with another text is a hit: pooling gives it another id."""
    passages = (Passage(id="Lake", title="Lake", text="blue water"),)
    twin = (Passage(id="Lake", title="Lake", text="a lake of blue blue water"),)
    examples = [
        Example(
            question=Question(id=str(number), text="blue water lake"),
            gold=Gold(passage_ids=("Lake",)),
            passages=each,
        )
        for number, each in enumerate((passages, twin))
    ]
    found = data_set_recall(examples, RetrievalSettings(resamples=10), MAKE)
    assert found["results"][0]["recall@5"] == 1.0
    assert found["results"][0]["gold_hits"][5] == 2

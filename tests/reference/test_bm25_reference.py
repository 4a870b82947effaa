"""BM25 against the packages rank_bm25 and bm25s, on real, generated and random passages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rank_bm25 import BM25Okapi

from suffice.datasets.known_datasets import load
from suffice.retrieval.bm25 import OKAPI, BM25Index
from suffice.trace.rounds.records import Passage, passage_tokens, tokenize

FILES = {
    "hotpotqa": "hotpotqa_500.json.gz",
    "2wikimultihopqa": "2wikimultihopqa_500.json.gz",
    "musique": "musique_100.jsonl.gz",
}


def assert_equals_rank_bm25(passages: Sequence[Passage], query: str) -> None:
    reference = BM25Okapi([passage_tokens(passage) for passage in passages])
    scores = reference.get_scores(tokenize(query))
    index = BM25Index.build(passages, OKAPI)
    np.testing.assert_array_equal(index.scores(query), scores)
    order = sorted(range(len(passages)), key=lambda i: -scores[i])  # Python's sort is stable
    found = index.retrieve(query, len(passages))
    assert [passage.id for passage in found] == [passages[i].id for i in order]


@pytest.mark.parametrize("name", FILES)
def test_okapi_equals_rank_bm25_on_real_questions(name: str, data_folder: Path) -> None:
    for example in load(name, data_folder / "data" / FILES[name], limit=100):
        assert_equals_rank_bm25(example.passages, example.question.text)


def test_okapi_equals_rank_bm25_on_generated_questions() -> None:
    for example in load("generated", limit=100, seed=5):
        assert_equals_rank_bm25(example.passages, example.question.text)


def random_passages(rng: np.random.Generator, n: int, vocabulary: int) -> list[Passage]:
    """Few words in few passages: ties, floored IDFs and negative floors all occur."""
    return [
        Passage(id=str(i), text=" ".join(f"w{w}" for w in rng.integers(0, vocabulary, size)))
        for i, size in enumerate(rng.integers(1, 8, size=n))
    ]


def test_okapi_equals_rank_bm25_on_random_passages() -> None:
    rng = np.random.default_rng(11)
    floors = []
    for _ in range(300):
        passages = random_passages(rng, int(rng.integers(1, 9)), int(rng.integers(2, 9)))
        query = " ".join(f"w{w}" for w in rng.integers(0, 9, size=4))
        assert_equals_rank_bm25(passages, query)
        floors.append(BM25Okapi([passage_tokens(p) for p in passages]).average_idf)
    assert min(floors) < 0 < max(floors)

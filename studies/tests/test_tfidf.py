"""TF-IDF against scikit-learn used directly."""

from __future__ import annotations

import numpy as np
import pytest
from studies.tfidf import TfidfIndex

from suffice.contracts import Retriever
from suffice.datasets.known_datasets import load
from suffice.retrieval.bm25 import OKAPI, BM25Index
from suffice.testing.conformance import check_retriever
from suffice.trace.rounds.records import Passage

pytest.importorskip("sklearn", reason="the extra 'cluster' is missing")

POOL = tuple(
    {p.id: p for example in load("generated", limit=40, seed=6) for p in example.passages}.values()
)


def test_scores_are_scikit_learns() -> None:
    """Its own splitting by the same pattern, its own cosine."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.metrics.pairwise import cosine_similarity

    vectorizer = TfidfVectorizer(token_pattern=r"\w+")
    matrix = vectorizer.fit_transform([f"{p.title} {p.text}" for p in POOL])
    index = TfidfIndex(POOL)
    for example in load("generated", limit=20, seed=6):
        query = example.question.text
        wanted = cosine_similarity(vectorizer.transform([query]), matrix)[0]
        np.testing.assert_allclose(index.scores(query), wanted, rtol=1e-12, atol=1e-15)
        assert 0 < wanted.max() <= 1


def test_it_conforms_and_ranks_unlike_bm25() -> None:
    index = TfidfIndex(POOL)
    assert isinstance(index, Retriever)
    queries = [example.question.text for example in load("generated", limit=6, seed=6)]
    check_retriever(index, [*queries, "", "zeppelin"], size=len(POOL))
    other = BM25Index.build(POOL, OKAPI)
    assert any(
        [p.id for p in index.retrieve(query, 10)] != [p.id for p in other.retrieve(query, 10)]
        for query in queries
    )


@pytest.mark.parametrize("passages", [[], [Passage(id="a", text="...")]])
def test_no_words_at_all(passages: list[Passage]) -> None:
    assert len(TfidfIndex(passages).retrieve("boat", 3)) == len(passages)

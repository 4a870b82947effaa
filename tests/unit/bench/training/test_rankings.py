from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from studies.training.reranker import METRICS, compare_rankings, ranking_scores
from suffice.datasets.registry import load
from suffice.errors import UsageError
from suffice.retrieval.lexical.bm25 import OKAPI, BM25Index
from suffice.trace.rounds.records import Passage, best_reranked

EXAMPLES = load("generated", limit=30, seed=3)
GOLD = {example.question.text: set(example.gold.passage_ids) for example in EXAMPLES}


class Knowing:
    """Gold paragraphs first, or last."""

    def __init__(self, sign: float) -> None:
        self.sign = sign

    def rerank(self, query: str, passages: Sequence[Passage]) -> Sequence[Passage]:
        return best_reranked(
            passages, [self.sign * (passage.id in GOLD[query]) for passage in passages]
        )


class Keeping:
    """BM25's order."""

    def rerank(self, query: str, passages: Sequence[Passage]) -> Sequence[Passage]:
        return best_reranked(passages, [0.0] * len(passages))


def test_scores_by_hand() -> None:
    order = list("abcdefgh")
    assert ranking_scores(order, ["b", "e", "f"]) == (1 / 3, 2 / 3, 1 / 2)
    assert ranking_scores(order, ["a"]) == (1, 1, 1)
    assert ranking_scores(order, ["h", "not there"]) == (0, 0, 1 / 8)
    assert ranking_scores([], ["a"]) == (0, 0, 0)
    with pytest.raises(UsageError, match="has none"):
        ranking_scores(order, [])


def test_gains_are_paired_differences_to_bm25() -> None:
    seen: list[tuple[int, int]] = []
    comparison = compare_rankings(
        EXAMPLES,
        {"best": Knowing(1), "worst": Knowing(-1), "same": Keeping()},
        on_progress=lambda *now: seen.append(now),
    )
    assert seen == [(n, 30) for n in range(1, 31)]
    assert comparison.n_questions == 30
    rows = [
        ranking_scores(
            [p.id for p in BM25Index.build(e.passages, OKAPI).retrieve(e.question.text, 99)],
            e.gold.passage_ids,
        )
        for e in EXAMPLES
    ]
    wanted = dict(zip(METRICS, np.mean(rows, axis=0), strict=True))
    assert comparison.means["bm25"] == pytest.approx(wanted)
    assert comparison.means["best"]["mrr"] == 1
    assert comparison.means["best"]["recall@5"] == 1
    assert comparison.means["worst"]["mrr"] < 0.2
    for metric in METRICS:
        best, worst = comparison.gains["best"][metric], comparison.gains["worst"][metric]
        assert best.estimate == pytest.approx(1 - wanted[metric]) or metric == "recall@2"
        assert best.low <= best.estimate <= best.high
        assert worst.high < 0 < best.high
        same = comparison.gains["same"][metric]
        assert (same.estimate, same.low, same.high) == (0, 0, 0)


def test_the_order_of_questions_changes_nothing() -> None:
    rerankers = {"best": Knowing(1)}
    assert compare_rankings(EXAMPLES, rerankers) == compare_rankings(EXAMPLES[::-1], rerankers)

"""How well a reranker orders each question's own paragraphs, beside BM25."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from suffice.datasets.example import Example
from suffice.errors import UsageError
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_means
from suffice.protocols import Reranker
from suffice.retrieval.lexical.bm25 import OKAPI, BM25Index

METRICS: tuple[str, ...] = ("recall@2", "recall@5", "mrr")
"""Names in the order of the columns of :func:`ranking_scores`."""

BM25 = "bm25"
"""The system that all others are compared with."""


def ranking_scores(order: Sequence[str], gold: Sequence[str]) -> tuple[float, float, float]:
    """Share of the gold ids among the first 2 and the first 5, and 1 / rank of the first gold one.

    All in [0, 1], high is good. Gold ids must not be empty; those that ``order`` lacks are missed.

    >>> ranking_scores(["c", "a", "b"], ["a", "b"])
    (0.5, 1.0, 0.5)
    """
    if not gold:
        raise UsageError("a ranking is scored by its gold passages; this question has none")
    wanted = set(gold)
    ranks = [rank for rank, name in enumerate(order, start=1) if name in wanted]
    recalls = [sum(rank <= k for rank in ranks) / len(wanted) for k in (2, 5)]
    return recalls[0], recalls[1], 1.0 / ranks[0] if ranks else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingComparison:
    """Mean scores of every system, and differences to BM25 with 95% paired bootstrap intervals.

    ``means[system][metric]`` and ``gains[system][metric]`` over ``n_questions``; BM25 has no gain.
    """

    n_questions: int = field(metadata={"json": "questions"})
    means: Mapping[str, Mapping[str, float]]
    gains: Mapping[str, Mapping[str, Interval]] = field(metadata={"json": "gains_over_bm25"})


def compare_rankings(
    examples: Sequence[Example],
    rerankers: Mapping[str, Reranker],
    *,
    seed: int = 42,
    on_progress: Callable[[int, int], None] | None = None,
) -> RankingComparison:
    """Rank every question's own paragraphs with BM25, rerank them all, and compare.

    Parameters
    ----------
    examples
        Questions with gold passages among their own.
    rerankers
        By the name to report; they get all paragraphs in BM25's order.
    seed
        Of the 1,000 resamples of questions.
    on_progress
        Called with questions done and questions in all.
    """
    examples = sorted(examples, key=lambda example: example.question.id)
    rows = []
    for number, example in enumerate(examples, start=1):
        rows.append(_row(example, rerankers))
        if on_progress:
            on_progress(number, len(examples))
    scores: NDArray[np.float64] = np.array(rows)  # (n_questions, n_systems, n_metrics)
    gains = scores[:, 1:] - scores[:, :1]
    flat = gains.reshape(len(examples), -1)
    draws = resampled_means(flat, seed=seed).reshape(-1, *gains.shape[1:])
    means = scores.mean(axis=0)
    return RankingComparison(
        n_questions=len(examples),
        means={
            name: dict(zip(METRICS, means[i].tolist(), strict=True))
            for i, name in enumerate((BM25, *rerankers))
        },
        gains={
            name: {
                metric: percentile_interval(float(gains[:, i, j].mean()), draws[:, i, j])
                for j, metric in enumerate(METRICS)
            }
            for i, name in enumerate(rerankers)
        },
    )


def _row(example: Example, rerankers: Mapping[str, Reranker]) -> list[tuple[float, float, float]]:
    query, gold = example.question.text, example.gold.passage_ids
    first = BM25Index.build(example.passages, OKAPI).retrieve(query, len(example.passages))
    orders = [first, *(reranker.rerank(query, first) for reranker in rerankers.values())]
    return [ranking_scores([passage.id for passage in order], gold) for order in orders]

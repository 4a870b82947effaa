"""Passages in the order of a reranker's scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from suffice.trace.records import Passage

__all__ = ["best_reranked"]


def best_reranked(passages: Sequence[Passage], scores: Iterable[float]) -> tuple[Passage, ...]:
    """The passages with their raw scores of a reranker, best first; NaN last, ties keep order."""
    scored = [
        replace(passage, rerank_score=float(score))
        for passage, score in zip(passages, scores, strict=True)
    ]
    return tuple(sorted(scored, key=_worse))


def _worse(passage: Passage) -> tuple[bool, float]:
    score = passage.rerank_score
    undefined = score is None or math.isnan(score)
    return undefined, 0.0 if score is None or undefined else -score

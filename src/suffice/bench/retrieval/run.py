"""How much of the evidence each retriever finds in the pooled corpus of a data set (paper 2, V)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.datasets.example import Example
from suffice.errors import UsageError
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_means
from suffice.protocols import Encoder, Reranker, Retriever
from suffice.results.as_json import as_json
from suffice.retrieval.indexes import IndexKind, IndexMaker
from suffice.retrieval.retrievers import RETRIEVERS, Retrieval, RetrieverName, pooled_passages
from suffice.trace.rounds.records import Passage

DEPTHS = (5, 10, 20, 50)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings:
    """What is compared.

    Parameters
    ----------
    encoder, reranker
        For those retrievers that need them; without one they are left out.
    index
        A folder in which indexes are kept; ``None``: they are built and dropped.
    left_out
        Ids of questions that are not asked, because a reranker was trained on them. Their paragraphs
        stay in the corpus.
    resamples, seed
        Of the paired bootstrap by question.
    """

    encoder: Encoder | None = None
    reranker: Reranker | None = None
    index: Path | None = None
    left_out: Collection[str] = ()
    resamples: int = 1000
    seed: int = 42


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrieverRecall:
    """One retriever's recall.

    ``recall[k]`` is the mean over questions of the share of gold passages, by title, among the first k;
    ``gold_hits[k]`` their number in all; ``against_bm25[k]`` the paired difference (``None`` for BM25).
    """

    retriever: RetrieverName
    recall: dict[int, Interval]
    gold_hits: dict[int, int]
    against_bm25: dict[int, Interval] | None

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "retriever": self.retriever,
            **{f"recall@{k}": each.estimate for k, each in self.recall.items()},
            "gold_hits": {str(k): hits for k, hits in self.gold_hits.items()},
            "intervals": {f"recall@{k}": as_json(each) for k, each in self.recall.items()},
            "against_bm25": None
            if self.against_bm25 is None
            else {f"recall@{k}": as_json(each) for k, each in self.against_bm25.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalBench:
    """Every retriever on the same questions over the same corpus."""

    questions: int
    passages: int
    gold_passages: int
    results: tuple[RetrieverRecall, ...]
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "questions": self.questions,
            "passages": self.passages,
            "gold_passages": self.gold_passages,
            "results": [each.to_json() for each in self.results],
            "notes": list(self.notes),
        }


def retrieval_bench(
    examples: Sequence[Example], settings: RetrievalSettings, make: IndexMaker
) -> RetrievalBench:
    """Ask every question over the paragraphs of all questions.

    Raises
    ------
    UsageError
        When no question with gold passages is left.
    """
    passages = pooled_passages(each.passages for each in examples)
    asked = [each for each in examples if _gold_titles(each)]
    notes = [f"{len(examples) - len(asked)} questions name no gold passage and are left out"]
    notes = notes if len(asked) < len(examples) else []
    kept = [each for each in asked if each.question.id not in settings.left_out]
    if len(kept) < len(asked):
        notes.append(
            f"{len(asked) - len(kept)} questions on which the reranker was trained are not asked"
        )
    if not kept:
        raise UsageError("no question with gold passages is left to ask")
    indexes: dict[IndexKind, Retriever] = {}
    found: dict[RetrieverName, NDArray[np.float64]] = {}
    for name in RETRIEVERS:
        missing = _missing(name, settings)
        if missing:
            notes.append(f"{name} is left out: {missing}")
            continue
        retrieval = Retrieval(name=name, encoder=settings.encoder, reranker=settings.reranker)
        for kind in retrieval.kinds:
            if kind not in indexes:
                indexes[kind] = _index(kind, passages, settings.index, make)
        retriever = retrieval.over([indexes[kind] for kind in retrieval.kinds])
        found[name] = np.array([_hits(each, retriever) for each in kept], np.float64)
    pool = 2 * Retrieval().candidates
    if "hybrid" in found and pool < max(DEPTHS):
        notes.append(
            f"hybrid and hybrid+rerank rank a pool of at most {pool} passages, as the method does: "
            "beyond it their recall cannot rise"
        )
    gold = np.array([len(_gold_titles(each)) for each in kept], np.float64)
    return RetrievalBench(
        questions=len(kept),
        passages=len(passages),
        gold_passages=int(gold.sum()),
        results=_results(found, gold, settings),
        notes=tuple(notes),
    )


def _index(
    kind: IndexKind, passages: tuple[Passage, ...], folder: Path | None, make: IndexMaker
) -> Retriever:
    if folder is None:
        return make.build(kind, passages)
    return make.cached(kind, passages, folder / kind)


def _missing(name: RetrieverName, settings: RetrievalSettings) -> str | None:
    if name in ("dense", "hybrid", "hybrid+rerank") and settings.encoder is None:
        return "it needs an encoder (--encoder minilm)"
    if name == "hybrid+rerank" and settings.reranker is None:
        return (
            "it needs a reranker (--reranker PATH; train one with python -m "
            "suffice.bench.training.reranker)"
        )
    return None


def _gold_titles(example: Example) -> frozenset[str]:
    """Titles of the gold passages: the same title may carry two texts in a pooled corpus."""
    gold = set(example.gold.passage_ids)
    return frozenset(each.title for each in example.passages if each.id in gold)


def _hits(example: Example, retriever: Retriever) -> list[int]:
    """How many gold titles are among the first k, for every depth."""
    gold = _gold_titles(example)
    titles = [each.title for each in retriever.retrieve(example.question.text, max(DEPTHS))]
    return [len(gold.intersection(titles[:k])) for k in DEPTHS]


def _results(
    found: dict[RetrieverName, NDArray[np.float64]],
    gold: NDArray[np.float64],
    settings: RetrievalSettings,
) -> tuple[RetrieverRecall, ...]:
    recalls = {name: hits / gold[:, None] for name, hits in found.items()}
    columns = np.hstack(list(recalls.values()))  # (n_questions, n_retrievers * n_depths)
    drawn = resampled_means(columns, resamples=settings.resamples, seed=settings.seed)
    means = columns.mean(axis=0)
    width, results = len(DEPTHS), []
    for number, name in enumerate(recalls):
        own = range(number * width, (number + 1) * width)
        results.append(
            RetrieverRecall(
                retriever=name,
                recall={
                    k: percentile_interval(float(means[c]), drawn[:, c])
                    for k, c in zip(DEPTHS, own, strict=True)
                },
                gold_hits={k: int(found[name][:, i].sum()) for i, k in enumerate(DEPTHS)},
                against_bm25=None
                if name == "bm25"
                else {
                    k: percentile_interval(float(means[c] - means[i]), drawn[:, c] - drawn[:, i])
                    for i, (k, c) in enumerate(zip(DEPTHS, own, strict=True))
                },
            )
        )
    return tuple(results)

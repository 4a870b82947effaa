"""How much of the evidence each retriever finds in the pooled corpus of a data set (paper 2, V)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from studies.study import Options, Request, Study
from suffice.datasets.example import Example
from suffice.datasets.registry import WITH_PASSAGES, load
from suffice.errors import UsageError
from suffice.loops.models import connect_encoder, connect_reranker
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_means
from suffice.options import Option, read_names
from suffice.protocols import Encoder, Reranker, Retriever
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.formats import count
from suffice.results.table import Column, Kind, Table, notes_table
from suffice.results.tabular import Tabular
from suffice.retrieval.indexes import IndexKind, IndexMaker
from suffice.retrieval.pairs.training_record import trained_on
from suffice.retrieval.retrievers import (
    RETRIEVERS,
    Retrieval,
    RetrieverName,
    kinds_of,
    pooled_passages,
    reranks,
    retriever_name,
)
from suffice.trace.rounds.records import Passage

DEPTHS = (5, 10, 20, 50)


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
        against = self.against_bm25
        return {
            "retriever": self.retriever,
            **{f"recall@{k}": interval.estimate for k, interval in self.recall.items()},
            "gold_hits": as_json(self.gold_hits),
            "intervals": _by_depth(self.recall),
            "against_bm25": None if against is None else _by_depth(against),
        }


def _by_depth(intervals: dict[int, Interval]) -> dict[str, Any]:
    return {f"recall@{k}": as_json(interval) for k, interval in intervals.items()}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RetrievalStudy(Tabular):
    """Every retriever on the same questions over the same corpus."""

    questions: int
    passages: int
    gold_passages: int
    results: tuple[RetrieverRecall, ...]
    notes: tuple[str, ...] = ()

    def tables(self) -> Sequence[Table]:
        """Recall with its intervals, the differences to BM25, and notes."""
        recalls = Table(
            name="recall",
            title=f"{count(self.questions)} questions with {count(self.gold_passages)} gold passages over "
            f"{count(self.passages)} pooled passages; the share of gold titles among the first k, in "
            "percent.",
            columns=[Column(name="retriever"), *_depths("recall@", "percent")],
            rows=[
                (result.retriever, *(result.recall[k] for k in DEPTHS)) for result in self.results
            ],
        )
        differences = Table(
            name="differences",
            title="Differences to BM25 in points, paired by question.",
            columns=[Column(name="retriever"), *_depths("@", "points")],
            rows=[
                (result.retriever, *(result.against_bm25[k] for k in DEPTHS))
                for result in self.results
                if result.against_bm25 is not None
            ],
        )
        tables = tuple(table for table in (recalls, differences) if table.rows)
        return (*tables, *notes_table(f"{note}." for note in self.notes))

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return fields_as_json(self)


def _depths(head: str, kind: Kind) -> Iterator[Column]:
    for k in DEPTHS:
        yield Column(name=f"recall@{k}", head=f"{head}{k} [95%]", kind=kind, interval=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings:
    """What is compared.

    Parameters
    ----------
    retrievers
        What is compared with BM25, by name.
    encoder, reranker
        For those retrievers that need them; without one they are left out.
    pool
        How many passages are given to the reranker; ``None``: 40.
    index
        A folder in which indexes are kept; ``None``: they are built and dropped.
    left_out
        Ids of questions that are not asked, because a reranker was trained on them. Their paragraphs
        stay in the corpus.
    resamples, seed
        Of the paired bootstrap by question.
    """

    retrievers: Annotated[
        tuple[str, ...],
        Option(
            metavar="A,B,...",
            parse=read_names,
            help=f"what is compared with bm25, of {', '.join(RETRIEVERS)}",
        ),
    ] = ("tfidf", "dense", "hybrid", "hybrid+rerank")
    encoder: Encoder | None = None
    reranker: Reranker | None = None
    pool: Annotated[
        int | None,
        Option(
            metavar="N",
            at_least=1,
            help="how many passages are given to the reranker (default: 40)",
        ),
    ] = None
    index: Annotated[
        Path | None,
        Option(
            metavar="DIR", parse=Path, help="keep the indexes here and use them again when they fit"
        ),
    ] = None
    left_out: Collection[str] = ()
    resamples: Annotated[
        int, Option(name="bootstrap", metavar="N", at_least=1, help="resamples")
    ] = 1000
    seed: Annotated[int, Option(at_least=0, help="of generated data and resampling")] = 42

    def __post_init__(self) -> None:
        if self.pool is not None and not any(map(reranks, self.retrievers)):
            raise UsageError(
                "--pool is for retrievers that rerank, and none is compared; add one to --retrievers"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalOptions:
    """Which questions a command asks, and what it asks with."""

    dataset: Annotated[str, Option(choices=tuple(sorted(WITH_PASSAGES)), help="which data set")]
    data: Annotated[
        str | None, Option(metavar="PATH", help="its file, plain or .gz (generated: none)")
    ] = None
    limit: Annotated[
        int | None,
        Option(metavar="N", at_least=1, help="only the first N questions and their paragraphs"),
    ] = None
    encoder: Annotated[
        str,
        Option(
            metavar="E",
            help="as in 'suffice record' (default: minilm); none leaves out what needs one",
        ),
    ] = "minilm"
    encoder_model: Annotated[
        str | None, Option(metavar="M", help="the embedding server's model name")
    ] = None
    reranker: Annotated[str | None, Option(metavar="PATH", help="as in 'suffice record'")] = None


def retrieval_study(
    examples: Sequence[Example], settings: RetrievalSettings, make: IndexMaker
) -> RetrievalStudy:
    """Ask every question over the paragraphs of all questions."""
    passages = pooled_passages(example.passages for example in examples)
    asked = [example for example in examples if _gold_titles(example)]
    notes = [f"{len(examples) - len(asked)} questions name no gold passage and are left out"]
    notes = notes if len(asked) < len(examples) else []
    kept = [example for example in asked if example.question.id not in settings.left_out]
    if len(kept) < len(asked):
        notes.append(
            f"{len(asked) - len(kept)} questions on which the reranker was trained are not asked"
        )
    if not kept:
        raise UsageError("no question with gold passages is left to ask")
    indexes: dict[IndexKind, Retriever] = {}
    hits: dict[RetrieverName, NDArray[np.float64]] = {}
    limits: dict[int, list[str]] = {}
    for name in dict.fromkeys(map(retriever_name, ("bm25", *settings.retrievers))):
        missing = _missing(name, settings)
        if missing:
            notes.append(f"{name} is left out: {missing}")
            continue
        retrieval = Retrieval(
            name=name,
            encoder=settings.encoder,
            reranker=settings.reranker,
            pool=settings.pool if reranks(name) else None,
        )
        if retrieval.most is not None and retrieval.most < max(DEPTHS):
            limits.setdefault(retrieval.most, []).append(name)
        for kind in retrieval.kinds:
            if kind not in indexes:
                indexes[kind] = _index(kind, passages, settings.index, make)
        retriever = retrieval.over([indexes[kind] for kind in retrieval.kinds])
        hits[name] = np.array([_hits(example, retriever) for example in kept], np.float64)
    notes += [
        f"the pool of {' and '.join(names)} holds at most {pool} passages, as the method has it: beyond that "
        "recall cannot rise"
        for pool, names in limits.items()
    ]
    gold = np.array([len(_gold_titles(example)) for example in kept], np.float64)
    return RetrievalStudy(
        questions=len(kept),
        passages=len(passages),
        gold_passages=int(gold.sum()),
        results=_results(hits, gold, settings),
        notes=tuple(notes),
    )


def _index(
    kind: IndexKind, passages: tuple[Passage, ...], folder: Path | None, make: IndexMaker
) -> Retriever:
    if folder is None:
        return make.build(kind, passages)
    return make.cached(kind, passages, folder / kind)


def _missing(name: RetrieverName, settings: RetrievalSettings) -> str | None:
    if "dense" in kinds_of(name) and settings.encoder is None:
        return "it needs an encoder (--encoder minilm)"
    if reranks(name) and settings.reranker is None:
        return (
            "it needs a reranker (--reranker PATH; train one with python -m "
            "studies.training.reranker)"
        )
    return None


def _gold_titles(example: Example) -> frozenset[str]:
    """Titles of the gold passages: the same title may carry two texts in a pooled corpus."""
    gold = set(example.gold.passage_ids)
    return frozenset(passage.title for passage in example.passages if passage.id in gold)


def _hits(example: Example, retriever: Retriever) -> list[int]:
    """How many gold titles are among the first k, for every depth."""
    gold = _gold_titles(example)
    titles = [passage.title for passage in retriever.retrieve(example.question.text, max(DEPTHS))]
    return [len(gold.intersection(titles[:k])) for k in DEPTHS]


def _results(
    hits: dict[RetrieverName, NDArray[np.float64]],
    gold: NDArray[np.float64],
    settings: RetrievalSettings,
) -> tuple[RetrieverRecall, ...]:
    recalls = {name: counts / gold[:, None] for name, counts in hits.items()}
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
                gold_hits={k: int(hits[name][:, i].sum()) for i, k in enumerate(DEPTHS)},
                against_bm25=None
                if name == "bm25"
                else {
                    k: percentile_interval(float(means[c] - means[i]), drawn[:, c] - drawn[:, i])
                    for i, (k, c) in enumerate(zip(DEPTHS, own, strict=True))
                },
            )
        )
    return tuple(results)


def _run(request: Request) -> RetrievalStudy:
    asked: RetrievalOptions = request.read(RetrievalOptions)
    examples = load(
        asked.dataset, asked.data, limit=asked.limit, seed=request.read(RetrievalSettings).seed
    )
    named, reranker = asked.encoder, asked.reranker
    encoder = None if named == "none" else connect_encoder(named, asked.encoder_model)
    settings: RetrievalSettings = request.read(
        RetrievalSettings,
        encoder=encoder,
        reranker=None if reranker is None else connect_reranker(reranker),
        left_out=trained_on(reranker),
    )
    progress = request.progress("passages encoded")
    return retrieval_study(
        examples, settings, IndexMaker(encoder=encoder, on_progress=progress.show)
    )


STUDY = Study(
    description="Asks the questions of a data set over the paragraphs of all its questions and counts the "
    "gold passages, by title, among the first 5, 10, 20 and 50: BM25, TF-IDF, dense, hybrid, and hybrid "
    "reranked where --reranker names one, or what --retrievers names.",
    options=(Options(settings=RetrievalOptions), Options(settings=RetrievalSettings)),
    run=_run,
)

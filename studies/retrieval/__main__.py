"""How much of the evidence each retriever finds in the pooled corpus of a data set (AB-RAG paper, V)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from studies.command import (
    Found,
    check_names,
    mean_intervals,
    names_option,
    out_option,
    report,
    study_main,
)
from studies.tfidf import TfidfIndex
from suffice.cli.output import Form, ProgressLine, waiting
from suffice.cli.parser import command
from suffice.contracts import Encoder, Reranker, Retriever
from suffice.datasets.files import Example
from suffice.datasets.known_datasets import DATASETS, load
from suffice.errors import UsageError
from suffice.evaluation.settings import Resamples
from suffice.loops.connecting import connect_encoder, connect_reranker
from suffice.options import Option
from suffice.results.formats import count
from suffice.results.table import Column, Kind, Table
from suffice.retrieval.retrievers import (
    RETRIEVERS,
    IndexKind,
    IndexMaker,
    Retrieval,
    first_stage,
    kinds_of,
    pooled_passages,
    reranks,
)
from suffice.stats.intervals import Interval

DEPTHS = (5, 10, 20, 50)
_TFIDF = "tfidf"
_USUAL = (_TFIDF, "dense", "hybrid", "hybrid+rerank")
COMPARED = (*RETRIEVERS, _TFIDF, f"{_TFIDF}+rerank")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings:
    """What is compared with BM25."""

    retrievers: Annotated[tuple[str, ...], names_option(COMPARED, ", compared with bm25")] = _USUAL
    encoder: Encoder | None = None
    reranker: Reranker | None = None
    pool: Annotated[
        int | None,
        Option(metavar="N", at_least=1, help="passages given to the reranker (default: 40)"),
    ] = None
    resamples: Resamples = 1000
    seed: Annotated[int, Option(at_least=0, help="of generated data and resampling")] = 42

    def __post_init__(self) -> None:
        check_names("--retrievers", self.retrievers, COMPARED)
        if self.pool is not None and not any(map(reranks, self.retrievers)):
            raise UsageError(
                "--pool is for retrievers that rerank, and none is compared; add one to --retrievers"
            )


def data_set_recall(
    examples: Sequence[Example], settings: RetrievalSettings, make: IndexMaker
) -> dict[str, Any]:
    """Every retriever asked every question over the paragraphs of all questions."""
    passages = pooled_passages(example.passages for example in examples)
    asked = [example for example in examples if _gold_titles(example)]
    notes = [f"{len(examples) - len(asked)} questions name no gold passage and are left out"]
    notes = notes if len(asked) < len(examples) else []
    if not asked:
        raise UsageError("no question with gold passages is left to ask")
    indexes: dict[IndexKind, Retriever] = {}
    hits: dict[str, NDArray[np.float64]] = {}
    limits: dict[int, list[str]] = {}
    for name in dict.fromkeys(("bm25", *settings.retrievers)):
        if missing := _missing(name, settings):
            notes.append(f"{name} is left out: {missing}")
            continue
        retrieval = Retrieval(
            name=name,
            source=TfidfIndex(passages) if first_stage(name) == _TFIDF else None,
            encoder=settings.encoder,
            reranker=settings.reranker,
            pool=settings.pool if reranks(name) else None,
        )
        if retrieval.most is not None and retrieval.most < max(DEPTHS):
            limits.setdefault(retrieval.most, []).append(name)
        for kind in retrieval.kinds:
            if kind not in indexes:
                indexes[kind] = make.build(kind, passages)
        retriever = retrieval.over([indexes[kind] for kind in retrieval.kinds])
        hits[name] = np.array([_hits(example, retriever) for example in asked], np.float64)
    notes += [
        f"the pool of {' and '.join(names)} holds at most {pool} passages, as the method has it: beyond that "
        "recall cannot rise"
        for pool, names in limits.items()
    ]
    gold = np.array([len(_gold_titles(example)) for example in asked], np.float64)
    return {
        "questions": len(asked),
        "passages": len(passages),
        "gold_passages": int(gold.sum()),
        "results": list(_results(hits, gold, settings)),
        "notes": notes,
    }


def _missing(name: str, settings: RetrievalSettings) -> str | None:
    if "dense" in kinds_of(name) and settings.encoder is None:
        return "it needs an encoder (--encoder minilm)"
    if reranks(name) and settings.reranker is None:
        return "it needs a reranker (--reranker PATH)"
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
    hits: dict[str, NDArray[np.float64]], gold: NDArray[np.float64], settings: RetrievalSettings
) -> Iterator[dict[str, Any]]:
    """Every retriever's recall: the mean over questions of the share of gold titles among the first k."""
    bm25 = hits["bm25"] / gold[:, None]

    def by_depth(shares: NDArray[np.float64]) -> dict[str, Interval]:
        found = mean_intervals(shares, resamples=settings.resamples, seed=settings.seed)
        return {f"recall@{k}": interval for k, interval in zip(DEPTHS, found, strict=True)}

    for retriever, counts in hits.items():
        shares = counts / gold[:, None]
        recall = by_depth(shares)
        yield {
            "retriever": retriever,
            **{name: interval.estimate for name, interval in recall.items()},
            "gold_hits": dict(zip(DEPTHS, counts.sum(axis=0).astype(int), strict=True)),
            "intervals": recall,
            "against_bm25": None if retriever == "bm25" else by_depth(shares - bm25),
        }


def _tables(dataset: str, found: Mapping[str, Any]) -> Iterator[Table]:
    """The paper's Table V, and every retriever against BM25."""
    title = (
        f"Table V: share of the gold titles among the first k, in percent. {dataset}: "
        f"{count(found['questions'])} questions, {count(found['passages'])} passages."
    )
    yield _by_depth(found, "recall", title, "percent", "intervals")
    title = "Differences to BM25 in points, paired by question."
    yield _by_depth(found, "difference", title, "points", "against_bm25")


def _by_depth(found: Mapping[str, Any], name: str, title: str, kind: Kind, figures: str) -> Table:
    depths = [
        Column(name=f"{name}@{k}", head=f"@{k} [95%]", kind=kind, interval=True) for k in DEPTHS
    ]
    return Table(
        name=name,
        title=title,
        columns=[Column(name="retriever"), *depths],
        rows=[
            (result["retriever"], *result[figures].values())
            for result in found["results"]
            if result[figures] is not None
        ],
    )


@command()
def run(
    *,
    dataset: Annotated[str, Option(choices=tuple(sorted(DATASETS)), help="which data set")],
    data: Annotated[
        str | None, Option(metavar="PATH", help="its file, plain or .gz (generated: none)")
    ] = None,
    limit: Annotated[
        int | None, Option(metavar="N", at_least=1, help="the first N questions, their paragraphs")
    ] = None,
    encoder: Annotated[
        str, Option(metavar="E", help="as in 'suffice record'; none leaves out what needs one")
    ] = "minilm",
    encoder_model: Annotated[
        str | None, Option(metavar="M", help="the embedding server's model name")
    ] = None,
    reranker: Annotated[str | None, Option(metavar="PATH", help="as in 'suffice record'")] = None,
    settings: RetrievalSettings,
    out: Annotated[str | None, out_option("write retrieval.json into this folder")] = None,
    form: Form,
) -> int:
    """Ask the questions of a data set over the paragraphs of all its questions.

    Counts the gold passages, by title, among the first 5, 10, 20 and 50: BM25, TF-IDF, dense, hybrid, and
    hybrid reranked where --reranker names one, or what --retrievers names.
    """
    vectors = None if encoder == "none" else connect_encoder(encoder, encoder_model)
    wanted = replace(
        settings, encoder=vectors, reranker=None if reranker is None else connect_reranker(reranker)
    )
    with waiting("retrieval"):
        examples = load(dataset, data and Path(data), limit=limit, seed=settings.seed)
        make = IndexMaker(encoder=vectors, on_progress=ProgressLine("passages encoded").show)
        document = data_set_recall(examples, wanted, make)
    notes = [f"{dataset}: {note}" for note in document["notes"]]
    shown = tuple(_tables(dataset, document))
    return report("retrieval", Found(document=document, shown=shown, notes=notes), form, out)


main = study_main("retrieval", run)

if __name__ == "__main__":
    sys.exit(main())

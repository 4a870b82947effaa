"""How much of the evidence each retriever finds in the pooled corpus of a data set (AB-RAG paper, V)."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from studies.command import Found, out_option, report, study_app
from studies.tfidf import TfidfIndex
from studies.training.interaction import trained_on, trained_reranker
from suffice.cli import main as command_line
from suffice.cli.output import Form, ProgressLine, waiting
from suffice.cli.parser import command
from suffice.contracts import Encoder, Reranker, Retriever
from suffice.datasets.files import Example
from suffice.datasets.registry import WITH_PASSAGES, load
from suffice.errors import UsageError, did_you_mean, unknown_name
from suffice.loops.models import connect_encoder
from suffice.options import Option, read_names
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
from suffice.stats.intervals import percentile_interval, resampled_means

DEPTHS = (5, 10, 20, 50)
NO_TRIVIAQA = (
    "TriviaQA is not among these data sets: no file of it comes with this project. Its row: take a file with "
    "evidence from the authors (triviaqa-rc, or unfiltered with its search results) or the Parquet of the "
    "Hub's 'rc', then: python -m studies.retrieval --set triviaqa=FILE"
)
_TFIDF = "tfidf"
COMPARED = (*RETRIEVERS, _TFIDF, f"{_TFIDF}+rerank")
_FORM = "--set NAME=FILE, as in --set hotpotqa=hotpotqa.json.gz; --set generated needs no file"


def read_set(text: str) -> tuple[str, str | None]:
    """A data set's name with its file.

    >>> read_set("hotpotqa=dev.json"), read_set("generated")
    (('hotpotqa', 'dev.json'), ('generated', None))
    """
    name, separator, path = text.partition("=")
    if name not in WITH_PASSAGES:
        near = did_you_mean(name, WITH_PASSAGES)
        raise UsageError(
            f"no data set {name!r} with passages; allowed: {', '.join(WITH_PASSAGES)}; type {_FORM}{near}"
        )
    if bool(path) == (name == "generated") or (separator and not path):
        raise UsageError(f"{text!r} names {'a' if path else 'no'} file; type {_FORM}")
    return name, path or None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalOptions:
    """Which questions are asked, and what is asked with."""

    dataset: Annotated[
        str | None, Option(choices=tuple(sorted(WITH_PASSAGES)), help="which data set")
    ] = None
    data: Annotated[
        str | None, Option(metavar="PATH", help="its file, plain or .gz (generated: none)")
    ] = None
    sets: Annotated[
        tuple[Any, ...],
        Option(
            name="set",
            metavar="NAME=FILE",
            parse=read_set,
            repeats=True,
            help="in place of --dataset: a data set with its file; may be given several times",
        ),
    ] = ()
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

    def __post_init__(self) -> None:
        if (self.dataset is None) != bool(self.sets):
            raise UsageError(f"name data sets by --dataset NAME --data PATH, or by {_FORM}")
        names = [name for name, _ in self.sets]
        if len(set(names)) < len(names):
            raise UsageError(f"a data set is named twice: {', '.join(names)}; name each once")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings:
    """What is compared with BM25; ``left_out`` are questions that a reranker was trained on."""

    retrievers: Annotated[
        tuple[str, ...],
        Option(
            metavar="A,B,...",
            parse=read_names,
            help=f"what is compared with bm25, of {', '.join(COMPARED)}",
        ),
    ] = ("tfidf", "dense", "hybrid", "hybrid+rerank")
    encoder: Encoder | None = None
    reranker: Reranker | None = None
    pool: Annotated[
        int | None,
        Option(metavar="N", at_least=1, help="passages given to the reranker (default: 40)"),
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


def data_set_recall(
    examples: Sequence[Example], settings: RetrievalSettings, make: IndexMaker
) -> dict[str, Any]:
    """Every retriever asked every question over the paragraphs of all questions."""
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
    hits: dict[str, NDArray[np.float64]] = {}
    limits: dict[int, list[str]] = {}
    for name in dict.fromkeys(("bm25", *settings.retrievers)):
        if name not in COMPARED:
            raise UsageError(unknown_name("retriever", name, COMPARED))
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
                folder = settings.index
                indexes[kind] = (
                    make.build(kind, passages)
                    if folder is None
                    else make.cached(kind, passages, folder / kind)
                )
        retriever = retrieval.over([indexes[kind] for kind in retrieval.kinds])
        hits[name] = np.array([_hits(example, retriever) for example in kept], np.float64)
    notes += [
        f"the pool of {' and '.join(names)} holds at most {pool} passages, as the method has it: beyond that "
        "recall cannot rise"
        for pool, names in limits.items()
    ]
    gold = np.array([len(_gold_titles(example)) for example in kept], np.float64)
    return {
        "questions": len(kept),
        "passages": len(passages),
        "gold_passages": int(gold.sum()),
        "results": list(_results(hits, gold, settings)),
        "notes": notes,
    }


def _missing(name: str, settings: RetrievalSettings) -> str | None:
    if "dense" in kinds_of(name) and settings.encoder is None:
        return "it needs an encoder (--encoder minilm)"
    if reranks(name) and settings.reranker is None:
        return (
            "it needs a reranker (--reranker PATH; train one: python -m studies.training reranker)"
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
    hits: dict[str, NDArray[np.float64]], gold: NDArray[np.float64], settings: RetrievalSettings
) -> Iterator[dict[str, Any]]:
    """Every retriever's recall.

    ``recall@k`` is the mean over questions of the share of gold passages, by title, among the first k;
    ``gold_hits`` their number in all; ``against_bm25`` the paired difference (``None`` for BM25).
    """
    columns = np.hstack([counts / gold[:, None] for counts in hits.values()])  # by retriever, depth
    drawn = resampled_means(columns, resamples=settings.resamples, seed=settings.seed)
    means = columns.mean(axis=0)
    names = [f"recall@{k}" for k in DEPTHS]
    for number, (retriever, counts) in enumerate(hits.items()):
        recall, against = {}, {}
        for at, name in enumerate(names):
            own = number * len(DEPTHS) + at
            recall[name] = percentile_interval(float(means[own]), drawn[:, own])
            difference = float(means[own] - means[at])
            against[name] = percentile_interval(difference, drawn[:, own] - drawn[:, at])
        yield {
            "retriever": retriever,
            **{name: interval.estimate for name, interval in recall.items()},
            "gold_hits": dict(zip(DEPTHS, counts.sum(axis=0).astype(int), strict=True)),
            "intervals": recall,
            "against_bm25": None if retriever == "bm25" else against,
        }


# --- tables ---------------------------------------------------------------------------------------
def _tables(sets: Mapping[str, dict[str, Any]]) -> Iterator[Table]:
    """The paper's Table V, and every retriever against BM25."""
    held = "; ".join(
        f"{name}: {count(one['questions'])} questions, {count(one['passages'])} passages"
        for name, one in sets.items()
    )
    title = f"Table V: share of the gold titles among the first k, in percent. {held}."
    yield _by_depth(sets, "recall", title, "percent", "intervals")
    title = "Differences to BM25 in points, paired by question."
    yield _by_depth(sets, "difference", title, "points", "against_bm25")


def _by_depth(
    sets: Mapping[str, dict[str, Any]], name: str, title: str, kind: Kind, figures: str
) -> Table:
    depths = [
        Column(name=f"{name}@{k}", head=f"@{k} [95%]", kind=kind, interval=True) for k in DEPTHS
    ]
    return Table(
        name=name,
        title=title,
        columns=[Column(name="dataset", once=True), Column(name="retriever"), *depths],
        rows=[
            (dataset, result["retriever"], *result[figures].values())
            for dataset, one in sets.items()
            for result in one["results"]
            if result[figures] is not None
        ],
        names=2,
    )


# --- the command ----------------------------------------------------------------------------------
@command()
def run(
    *,
    asked: RetrievalOptions,
    settings: RetrievalSettings,
    out: Annotated[str | None, out_option("write retrieval.json into this folder")] = None,
    form: Form,
) -> int:
    """Ask the questions of a data set over the paragraphs of all its questions.

    Counts the gold passages, by title, among the first 5, 10, 20 and 50: BM25, TF-IDF, dense, hybrid, and
    hybrid reranked where --reranker names one, or what --retrievers names. Of TriviaQA, which has no judged
    passages, a gold passage is one that holds an answer.
    """
    with waiting("retrieval"):
        found = _found(asked, settings)
    return report("retrieval", found, form, out)


def _found(asked: RetrievalOptions, options: RetrievalSettings) -> Found:
    encoder = (
        None if asked.encoder == "none" else connect_encoder(asked.encoder, asked.encoder_model)
    )
    settings = replace(
        options,
        encoder=encoder,
        reranker=None if asked.reranker is None else trained_reranker(asked.reranker),
        left_out=trained_on(asked.reranker),
    )
    named = asked.sets if asked.dataset is None else [(asked.dataset, asked.data)]
    loaded = {
        name: load(name, path and Path(path), limit=asked.limit, seed=settings.seed)
        for name, path in named
    }
    make = IndexMaker(encoder=encoder, on_progress=ProgressLine("passages encoded").show)
    sets = {}
    for name, examples in loaded.items():
        index = settings.index
        if index is not None and len(loaded) > 1:
            index = index / name
        sets[name] = data_set_recall(examples, replace(settings, index=index), make)
    notes = [f"{name}: {note}" for name, one in sets.items() for note in one["notes"]]
    document: Mapping[str, Any] = {
        "sets": [{"dataset": name, **one} for name, one in sets.items()],
        "notes": notes,
    }
    if asked.dataset is not None:
        document = sets[asked.dataset]
    elif "triviaqa" not in sets:
        notes.append(NO_TRIVIAQA)
    return Found(document=document, shown=tuple(_tables(sets)), notes=notes)


main = partial(command_line.main, app=study_app("retrieval", run))

if __name__ == "__main__":
    sys.exit(main())

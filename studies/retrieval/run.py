"""Recall of every retriever on several data sets: Table V and Figure 6 of the AB-RAG paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from studies.retrieval.page import retrieval_page
from studies.retrieval.results import RetrievalSets
from studies.retrieval.recall import RetrievalOptions, RetrievalSettings, retrieval_study
from studies.study import Options, Request, Study
from suffice.datasets.example import Example
from suffice.datasets.registry import WITH_PASSAGES, load
from suffice.errors import UsageError, did_you_mean
from suffice.loops.models import connect_encoder, connect_reranker
from suffice.options import Option
from suffice.retrieval.indexes import IndexMaker
from suffice.retrieval.pairs.training_record import trained_on

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
class SetsSettings:
    """Which data sets are asked."""

    sets: Annotated[
        tuple[Any, ...],
        Option(
            name="set",
            metavar="NAME=FILE",
            parse=read_set,
            repeats=True,
            help="a data set with its file, plain or .gz; may be given several times",
        ),
    ]


def retrieval_sets(
    named: Sequence[tuple[str, Sequence[Example]]], settings: RetrievalSettings, make: IndexMaker
) -> RetrievalSets:
    """Ask the questions of each data set over the passages of all its questions."""
    studies = []
    for name, examples in named:
        index = None if settings.index is None else settings.index / name
        own = replace(settings, index=index)
        studies.append((name, retrieval_study(examples, own, make)))
    return RetrievalSets(sets=tuple(studies))


def _run(request: Request) -> RetrievalSets:
    wanted: SetsSettings = request.read(SetsSettings)
    names = [name for name, _ in wanted.sets]
    if len(set(names)) < len(names):
        raise UsageError(f"a data set is named twice: {', '.join(names)}; name each once")
    asked: RetrievalOptions = request.read(RetrievalOptions, dataset="", data=None)
    encoder = (
        None if asked.encoder == "none" else connect_encoder(asked.encoder, asked.encoder_model)
    )
    settings: RetrievalSettings = request.read(
        RetrievalSettings,
        encoder=encoder,
        reranker=None if asked.reranker is None else connect_reranker(asked.reranker),
        left_out=trained_on(asked.reranker),
    )
    named = [
        (name, load(name, path and Path(path), limit=asked.limit, seed=settings.seed))
        for name, path in wanted.sets
    ]
    progress = request.progress("passages encoded")
    return retrieval_sets(named, settings, IndexMaker(encoder=encoder, on_progress=progress.show))


STUDY = Study(
    description="Asks the questions of each data set over the passages of all its questions and counts the "
    "gold passages, by title, among the first 5, 10, 20 and 50, as 'suffice bench retrieval' does. Of "
    "TriviaQA, which has no judged passages, a gold passage is one that holds an answer.",
    options=(
        Options(settings=SetsSettings),
        Options(settings=RetrievalOptions, without=("dataset", "data")),
        Options(settings=RetrievalSettings),
    ),
    run=_run,
    out="write retrieval.json and retrieval.html, the figure, into this folder",
    page=retrieval_page,
)

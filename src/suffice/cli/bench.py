"""``suffice bench``: the published experiments."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from suffice.bench.ab_rag import SWEPT, StudySettings, ab_rag_study
from suffice.bench.ab_rag_table import ab_rag_tables
from suffice.bench.retrieval import RetrievalSettings, retrieval_bench
from suffice.bench.retrieval_table import retrieval_tables
from suffice.cli.options import (
    add_json,
    add_replay,
    add_traces,
    comparison_settings,
    grid,
    natural,
    open_traces,
    positive,
)
from suffice.cli.output import ProgressLine, print_json, say
from suffice.datasets.registry import DATASETS, load
from suffice.pipelines.indexes import IndexMaker
from suffice.pipelines.sources import connect_encoder, connect_reranker
from suffice.retrieval.training_record import trained_on

__all__ = ["add_command"]


def add_command(commands: Any) -> None:
    """Declare the command and its experiments."""
    parser = commands.add_parser(
        "bench",
        help="the published experiments",
        description="Runs a published experiment on your own data, model or record.",
    )
    experiments = parser.add_subparsers(dest="experiment", metavar="NAME", required=True)
    _add_retrieval(experiments)
    _add_ab_rag(experiments)


def _add_retrieval(experiments: Any) -> None:
    parser = experiments.add_parser(
        "retrieval",
        help="recall of every retriever on the pooled corpus of a data set",
        description="Asks the questions of a data set over the paragraphs of all its questions and "
        "counts the gold passages, by title, among the first 5, 10, 20 and 50: BM25, TF-IDF, dense, "
        "hybrid, and hybrid reranked where --reranker names one.",
    )
    parser.add_argument("--dataset", required=True, choices=sorted(DATASETS), help="which data set")
    parser.add_argument("--data", metavar="PATH", help="its file, plain or .gz (generated: none)")
    parser.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        help="only the first N questions and their paragraphs",
    )
    parser.add_argument(
        "--encoder",
        default="minilm",
        metavar="E",
        help="as in 'suffice record' (default: minilm); none leaves out what needs one",
    )
    parser.add_argument("--encoder-model", metavar="M", help="the embedding server's model name")
    parser.add_argument("--reranker", metavar="PATH", help="as in 'suffice record'")
    parser.add_argument(
        "--index", metavar="DIR", help="keep the indexes here and use them again when they fit"
    )
    parser.add_argument(
        "--bootstrap", type=positive, default=1000, metavar="N", help="resamples (default: 1000)"
    )
    parser.add_argument(
        "--seed", type=natural, default=42, help="of generated data and resampling (default: 42)"
    )
    add_json(parser)
    parser.set_defaults(run=_run_retrieval)


def _run_retrieval(arguments: argparse.Namespace) -> int:
    examples = load(arguments.dataset, arguments.data, limit=arguments.limit, seed=arguments.seed)
    encoder = (
        None
        if arguments.encoder == "none"
        else connect_encoder(arguments.encoder, arguments.encoder_model)
    )
    reranker = None if arguments.reranker is None else connect_reranker(arguments.reranker)
    line = ProgressLine("passages encoded")
    found = retrieval_bench(
        examples,
        RetrievalSettings(
            encoder=encoder,
            reranker=reranker,
            left_out=trained_on(arguments.reranker),
            index=None if arguments.index is None else Path(arguments.index),
            resamples=arguments.bootstrap,
            seed=arguments.seed,
        ),
        IndexMaker(encoder=encoder, on_progress=line.show),
    )
    if arguments.json:
        print_json(found.to_json())
        for note in found.notes:
            say(note)
    else:
        print(retrieval_tables(found))
    return 0


def _add_ab_rag(experiments: Any) -> None:
    parser = experiments.add_parser(
        "ab-rag",
        help="AB-RAG on a record: static against adaptive, its confidence, thresholds, signals",
        description="Evaluates AB-RAG on a record that holds its signals: static against adaptive "
        "retrieval with costs, what its confidence is worth (AUROC, answers above and below the "
        "threshold), other thresholds, and every single signal with its alternative forms.",
    )
    add_traces(parser)
    parser.add_argument(
        "--grid",
        type=grid,
        default=SWEPT,
        metavar="LOW:HIGH:STEP|A,B,...",
        help="thresholds swept (default: 0.3:0.8:0.05)",
    )
    add_replay(parser)
    add_json(parser)
    parser.set_defaults(run=_run_ab_rag)


def _run_ab_rag(arguments: argparse.Namespace) -> int:
    study = ab_rag_study(
        open_traces(arguments, say),
        StudySettings(comparison=comparison_settings(arguments), taus=arguments.grid),
    )
    if arguments.json:
        print_json(study.to_json())
        for note in study.comparison.result.notes:
            say(note)
    else:
        print(ab_rag_tables(study))
    return 0

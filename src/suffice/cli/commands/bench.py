"""``suffice bench``: the published experiments."""

from __future__ import annotations

import argparse
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from suffice.bench.ab_rag.run import SWEPT, StudySettings, ab_rag_study
from suffice.bench.ab_rag.show import ab_rag_tables
from suffice.bench.micp.found import ALPHAS, PARTS, PRESETS, MiCPStudy, MiCPStudySettings
from suffice.bench.micp.page import micp_page
from suffice.bench.micp.run import micp_study
from suffice.bench.micp.table import micp_tables
from suffice.bench.retrieval.run import RetrievalSettings, retrieval_bench
from suffice.bench.retrieval.show import retrieval_tables
from suffice.cli.commands.bench_hidden_constraints import add_experiment as add_hidden_constraints
from suffice.cli.commands.bench_stop_rag import add_experiment as add_stop_rag
from suffice.cli.options import (
    add_json,
    add_replay,
    add_traces,
    comparison_settings,
    grid,
    names,
    natural,
    number,
    open_more,
    open_traces,
    positive,
)
from suffice.cli.output import ProgressLine, print_json, say
from suffice.cli.settings_options import add_settings, read_settings
from suffice.datasets.registry import DATASETS, load
from suffice.errors import UsageError
from suffice.pipelines.models import connect_encoder, connect_reranker
from suffice.policies.micp.settings import MiCPSettings
from suffice.retrieval.indexes import IndexMaker
from suffice.retrieval.pairs.training_record import trained_on
from suffice.trace.durable import replace_file


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the command and its experiments."""
    parser.description = "Runs a published experiment on your own data, model or record."
    experiments = parser.add_subparsers(dest="experiment", metavar="NAME", required=True)
    _add_retrieval(experiments)
    _add_ab_rag(experiments)
    _add_micp(experiments)
    add_stop_rag(experiments)
    add_hidden_constraints(experiments)


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


def _add_micp(experiments: Any) -> None:
    parser = experiments.add_parser(
        "micp",
        help="MiCP on records: coverage, rounds, answer sets and retention against target",
        description="Evaluates MiCP on records that hold samples, as the paper does: over random divisions "
        "of the labelled questions and a grid of alpha, what the answer sets cover, rounds, set size, answer "
        "rate and objective, by what the error budget is divided for and against no early stop; and what the "
        "passage filter keeps.",
    )
    parser.add_argument(
        "traces",
        metavar="TRACES",
        nargs="+",
        help="Parquet files or directories of them, each evaluated by itself",
    )
    parser.add_argument(
        "--skip-invalid",
        action="store_true",
        help="leave out what is invalid, count it, and go on with the rest",
    )
    parser.add_argument(
        "--alphas",
        type=grid,
        default=ALPHAS,
        metavar="LOW:HIGH:STEP|A,B,...",
        help="errors promised, of answer sets and of the passage filter (default: 0.05:0.3:0.05)",
    )
    parser.add_argument(
        "--at",
        type=number,
        metavar="A",
        help="alpha of the tables of rounds and sets (default: 0.1 where it is among --alphas, else the "
        "first); --json and --out hold all",
    )
    parser.add_argument(
        "--presets",
        type=names,
        default=PRESETS,
        metavar="A,B",
        help=f"of {', '.join(PRESETS)} (default: both)",
    )
    _add_divisions(parser)
    _add_micp_fit(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="also write micp.json and micp.html, a page with the figures"
    )
    add_json(parser)
    parser.set_defaults(run=_run_micp)


def _add_divisions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seeds", type=positive, default=3, metavar="N", help="random divisions (default: 3)"
    )
    parser.add_argument(
        "--seed",
        type=natural,
        default=42,
        help="of the first; each next one's is 1 more (default: 42)",
    )
    parser.add_argument(
        "--shares",
        type=_shares,
        default=(1 / 3, 1 / 3, 1 / 3),
        metavar="O,C,T",
        help="of the questions, how many optimise, calibrate and test, as in 1/3,1/3,1/3 (the default) or "
        "optimize=0.2,calibrate=0.5,test=0.3",
    )


def _shares(text: str) -> tuple[float, ...]:
    """An argparse type: three shares in the order of the parts, or by their names."""
    given: dict[str, float] = {}
    for position, part in enumerate(text.split(",")):
        name, named, share = part.rpartition("=")
        key = name.strip() if named else PARTS[position] if position < len(PARTS) else ""
        try:
            value = float(Fraction(share.strip()))
        except (ValueError, ZeroDivisionError):
            value = -1.0
        if key not in PARTS or key in given or value <= 0.0:
            break
        given[key] = value
    else:
        if len(given) == len(PARTS):
            return tuple(given[each] for each in PARTS)
    raise argparse.ArgumentTypeError(
        f"must be three shares above 0, as in 1/3,1/3,1/3 or {PARTS[0]}=0.2,{PARTS[1]}=0.5,{PARTS[2]}=0.3, "
        f"found {text!r}"
    )


_FIT_OPTIONS = ("rounds", "weight", "steps", "stop_on", "penalty", "clusters", "match_f1")


def _add_micp_fit(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("fitting", "as in 'suffice fit micp'")
    add_settings(group, MiCPSettings, only=_FIT_OPTIONS)


def _run_micp(arguments: argparse.Namespace) -> int:
    settings = MiCPStudySettings(
        alphas=arguments.alphas,
        presets=arguments.presets,
        divisions=arguments.seeds,
        seed=arguments.seed,
        shares=arguments.shares,
        fit=read_settings(arguments, MiCPSettings, seed=MiCPSettings().seed),
    )
    if arguments.at is not None and arguments.at not in arguments.alphas:
        listed = ", ".join(f"{each:g}" for each in arguments.alphas)
        raise UsageError(f"--at {arguments.at:g} is not among --alphas {listed}")
    study = micp_study([open_more(each, arguments, say) for each in arguments.traces], settings)
    if arguments.json:
        print_json(study.to_json())
        for each in study.traces:
            for note in each.notes:
                say(note)
    else:
        print(micp_tables(study, at=arguments.at))
    if arguments.out is not None:
        _write_micp(study, Path(arguments.out))
    return 0


def _write_micp(study: MiCPStudy, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    document = json.dumps(study.to_json(), allow_nan=False, ensure_ascii=False, indent=1)
    replace_file(folder / "micp.json", f"{document}\n".encode())
    replace_file(folder / "micp.html", micp_page(study).encode())
    say(f"wrote {folder / 'micp.json'} and {folder / 'micp.html'}")

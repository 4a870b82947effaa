"""``suffice record``: record full-budget rounds of a data set."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from suffice.cli.options import add_json, add_model, connect_model, natural, positive
from suffice.cli.output import INTERRUPTED, ProgressLine, print_json, say
from suffice.datasets.registry import DATASETS, load
from suffice.pipelines.cumulative import CumulativeSettings
from suffice.pipelines.prompts import PROMPTS
from suffice.pipelines.recorder import Progress, RecordSummary
from suffice.pipelines.recording import Recording, record_examples
from suffice.pipelines.splits import parse_splits

__all__ = ["add_command", "show_summary"]


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "record",
        help="record full-budget rounds of a data set",
        description="Runs every question of a data set to the full budget and keeps each round. "
        "Resumable: run the same command again and it goes on where it stopped, and tries failed "
        "questions anew.",
    )
    parser.add_argument("--dataset", required=True, choices=sorted(DATASETS), help="which data set")
    parser.add_argument("--data", metavar="PATH", help="its file, plain or .gz (generated: none)")
    parser.add_argument(
        "--out", required=True, metavar="TRACES", help="a directory, or a .parquet file"
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="only the first N questions")
    parser.add_argument(
        "--rounds", type=positive, default=5, metavar="R", help="the full budget (5)"
    )
    parser.add_argument(
        "--samples", type=natural, default=0, metavar="M", help="sampled answers a round (0)"
    )
    parser.add_argument(
        "--closed-book",
        action="store_true",
        help="also record the answer without passages, as round 0",
    )
    parser.add_argument(
        "--judge",
        action="store_true",
        help="also ask the model after each round how well the evidence supports its answer: the "
        "signal judge_support (later: suffice signals --llm)",
    )
    parser.add_argument(
        "--pipeline", choices=("cumulative",), default="cumulative", help="the loop"
    )
    parser.add_argument("--prompt", choices=PROMPTS, default="answer-first", help="which prompt")
    parser.add_argument("--retriever", choices=("bm25",), default="bm25", help="the retriever")
    parser.add_argument(
        "--corpus",
        choices=("own", "pooled"),
        default="own",
        help="rank each question's own paragraphs, or all paragraphs of the data set",
    )
    parser.add_argument(
        "--splits",
        default="tune=0.4,eval=0.6",
        metavar="NAME=SHARE,...",
        help="how questions are split (tune=0.4,eval=0.6)",
    )
    parser.add_argument("--seed", type=natural, default=42, help="of data, splits and samples (42)")
    parser.add_argument(
        "--skip-invalid", action="store_true", help="leave out questions without passages"
    )
    add_model(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Load, connect, record, summarise."""
    examples = load(arguments.dataset, arguments.data, limit=arguments.limit, seed=arguments.seed)
    pool = None
    if arguments.corpus == "pooled" and arguments.data is not None:
        # --limit chooses questions, not what they are asked over
        pool = load(arguments.dataset, arguments.data, seed=arguments.seed)
    model = connect_model(arguments)
    recording = Recording(
        dataset=arguments.dataset,
        settings=CumulativeSettings(
            rounds=arguments.rounds,
            samples=arguments.samples,
            prompt=arguments.prompt,
            seed=arguments.seed,
            closed_book=arguments.closed_book,
            judge=arguments.judge,
        ),
        corpus=arguments.corpus,
        pool=pool,
        source=arguments.data,
        splits=parse_splits(arguments.splits),
        skip_invalid=arguments.skip_invalid,
    )
    line = ProgressLine("recorded")

    def progress(now: Progress) -> None:
        line.show(now.finished, now.planned, failed=now.failed)

    summary = record_examples(examples, model, Path(arguments.out), recording, progress)
    return show_summary(summary, arguments)


def show_summary(summary: RecordSummary, arguments: argparse.Namespace) -> int:
    """Print what a recording did; the exit code."""
    if arguments.json:
        print_json(
            {
                "out": arguments.out,
                "recorded": summary.recorded,
                "before": summary.before,
                "failed": summary.failed,
                "questions": summary.recorded + summary.before,
                "interrupted": summary.interrupted,
            }
        )
    else:
        print(f"{arguments.out}: {summary.recorded + summary.before} questions", end="")
        print(f" ({summary.recorded} recorded now, {summary.before} before)")
    if summary.failed:
        say(f"{summary.failed} questions failed, see failures.jsonl; run again to retry them")
    if summary.interrupted:
        say("interrupted; run the same command again to go on")
        return INTERRUPTED
    return 1 if summary.failed else 0

"""``suffice probe``: ask for the answers that a loop was not asked for."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from suffice.cli.commands.record import show_summary
from suffice.cli.options import (
    add_json,
    add_model,
    add_shard,
    connect_model,
    natural,
    out_path,
)
from suffice.cli.output import question_progress, say, waiting
from suffice.cli.settings_options import add_settings, read_settings
from suffice.pipelines.record.probe import (
    ProbePlan,
    ProbeSettings,
    probe_agreement,
    probe_traces,
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Asks a model for the answer in every round that has none, from the evidence as recorded, and writes "
        "the record again with these answers, marked probed, and what they cost. The loop's own answers and "
        "all other columns stay. Resumable: run the same command again and it goes on where it stopped."
    )
    parser.add_argument("traces", metavar="TRACES", help="a Parquet file or a directory of them")
    parser.add_argument(
        "--out",
        required=True,
        type=out_path(".parquet", folder=True),
        metavar="TRACES2",
        help="another directory or .parquet file",
    )
    add_settings(parser, ProbeSettings)
    add_shard(parser, "--limit or --sample")
    parser.add_argument(
        "--seed", type=natural, default=42, help="of --sample and --samples (default: 42)"
    )
    parser.add_argument(
        "--corpus",
        metavar="PATH",
        help="where passages were recorded by their ids alone: a folder or file of txt, md and jsonl that "
        "gives their texts",
    )
    parser.add_argument(
        "--skip-invalid",
        action="store_true",
        help="leave out what is invalid, and questions that cannot be asked since texts are missing",
    )
    add_model(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Ask, and say what was asked."""
    settings = read_settings(arguments, ProbeSettings, seed=arguments.seed)
    with waiting(f"probing {arguments.traces}"):
        summary = probe_traces(
            arguments.traces,
            arguments.out,
            partial(connect_model, arguments),
            settings,
            corpus=arguments.corpus,
            skip_invalid=arguments.skip_invalid,
            shard=arguments.shard,
            on_plan=_tell,
            on_progress=question_progress("probed"),
        )
    more: dict[str, Any] = {}
    if settings.all_rounds and summary.recorded + summary.before:
        agreeing, compared = probe_agreement(arguments.out)
        more["agreement"] = {"rounds": compared, "agreeing": agreeing}
        if compared:
            say(
                f"the model gives the loop's own answer in {agreeing:,} of {compared:,} rounds that have one"
            )
    return show_summary(summary, arguments, done="probed", **more)


def _tell(plan: ProbePlan) -> None:
    """Say, before it starts, what will be asked, from what, and what is left out."""
    for why, questions in plan.left_out.items():
        say(f"{questions:,} questions are left out, since they {why}")
    if plan.asked:
        say(
            f"{plan.calls:,} model calls: {plan.asked:,} of {plan.rounds:,} rounds of {plan.questions:,} "
            "questions"
        )
    if plan.blind:
        say(
            f"up to {plan.blind:,} of these rounds nothing was found, so they are asked from the question "
            "alone"
        )

"""``suffice probe``: ask for an answer in every round."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from suffice.cli.commands.record import show_summary
from suffice.cli.options import (
    TRACES,
    add_json,
    add_model,
    add_shard,
    connect_model,
    natural,
    out_path,
)
from suffice.cli.output import question_progress, say, waiting
from suffice.cli.settings_options import add_settings, read_settings
from suffice.loops.record.probe import (
    ProbePlan,
    ProbeSettings,
    probe_agreement,
    probe_traces,
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Asks a model for an answer in every round, from the evidence as recorded and by one prompt. "
        "Writes the record again with these answers, marked probed, and what they cost. The loop's own "
        "answers are kept in columns such as loop_answer; all other columns stay. Resumable: run the same "
        "command again and it goes on where it stopped."
    )
    parser.add_argument("traces", metavar="TRACES", help=TRACES)
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

    def tell(plan: ProbePlan) -> None:
        _tell(plan, settings)

    with waiting(f"probing {arguments.traces}"):
        summary = probe_traces(
            arguments.traces,
            arguments.out,
            partial(connect_model, arguments),
            settings,
            corpus=arguments.corpus,
            skip_invalid=arguments.skip_invalid,
            shard=arguments.shard,
            on_plan=tell,
            on_progress=question_progress("probed"),
        )
    more: dict[str, Any] = {}
    if not settings.missing_only and summary.recorded + summary.before:
        agreeing, compared = probe_agreement(arguments.out)
        more["agreement"] = {"rounds": compared, "agreeing": agreeing}
        if compared:
            say(
                f"the model gives the loop's own answer in {agreeing:,} of {compared:,} rounds that have one"
            )
    return show_summary(summary, arguments, done="probed", **more)


def _tell(plan: ProbePlan, settings: ProbeSettings) -> None:
    """Say, before it starts, what will be asked, from what, and what is left out."""
    for why, questions in plan.left_out.items():
        say(f"{questions:,} questions are left out, since they {why}")
    if plan.asked:
        say(
            f"{plan.calls:,} model calls: {plan.asked:,} of {plan.rounds:,} rounds of {plan.questions:,} "
            "questions"
        )
    if plan.own and settings.missing_only:
        say(
            f"two prompts mix in this record: {plan.own:,} answers are the loop's, {plan.asked:,} will be "
            "this prompt's; without --missing-only all rounds are asked by one prompt"
        )
    elif plan.own:
        say(
            f"{plan.own:,} of these rounds have an answer by the loop's own prompt, kept in loop_answer "
            "(to ask only where none is: --missing-only)"
        )
    if plan.blind:
        say(
            f"up to {plan.blind:,} of these rounds nothing was found, so they are asked from the question "
            "alone"
        )

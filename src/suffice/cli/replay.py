"""``suffice replay``: score policies on recorded rounds."""

from __future__ import annotations

import argparse
from typing import Any

from suffice.cli.options import add_json, add_replay, add_traces, comparison_settings, open_traces
from suffice.cli.output import print_json, say
from suffice.replay.compare import compare
from suffice.report.table import comparison_table

__all__ = ["add_command"]


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "replay",
        help="score policies on recorded rounds",
        description="Scores policies on recorded rounds: what each would have cost and scored, with "
        "paired intervals.",
    )
    add_traces(parser)
    add_replay(parser)
    parser.add_argument(
        "--per-question", action="store_true", help="with --json: the stop round of every question"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Replay and print."""
    comparison = compare(open_traces(arguments, say), comparison_settings(arguments))
    if arguments.json:
        print_json(comparison.result.to_json(per_question=arguments.per_question))
    else:
        print(comparison_table(comparison.result))
    for note in comparison.result.notes if arguments.json else ():
        say(note)
    return 0

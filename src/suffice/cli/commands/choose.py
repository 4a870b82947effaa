"""``suffice choose``: from a record to one policy, with a promise."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from suffice.cli.options import add_traces, open_measures, out_path, write_policy
from suffice.cli.output import add_format, print_result, put, say, waiting
from suffice.cli.settings_options import add_settings, read_settings
from suffice.replay.settings import ChoiceSettings

_TOP = 15  # candidates printed


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Compares everything that the record can feed (fixed budgets, every method, rules, values learned "
        "from all signals) and gives one policy: fitted on one part of the questions, ranked on a second, "
        "its promise proven on a third. Writes policy.json, choice.json and index.html, whose first screen "
        "says whether looping pays here, which policy to run, what it costs and saves, and how sure that is."
    )
    add_traces(parser, sampled=True, measured=True)
    add_settings(parser, ChoiceSettings)
    parser.add_argument(
        "--out",
        required=True,
        type=out_path(folder=True),
        metavar="DIR",
        help="gets policy.json, choice.json and index.html",
    )
    add_format(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Choose, write and print."""
    from suffice.replay.choose.choice import choose
    from suffice.report.page.choice import write_choice

    measures = open_measures(arguments, say)
    settings = read_settings(arguments, ChoiceSettings)
    out = Path(arguments.out)
    with waiting("choosing"):
        choice = choose(measures, settings)
    written = write_policy(str(out), choice.policy, measures.traces)
    with waiting("writing the page"):
        page = write_choice(choice, out)

    def document() -> Any:
        return {**choice.to_json(), **written, "page": str(page)}

    notes = [*(f"note: {note}" for note in choice.notes)]
    notes += [f"left out {name}: {reason}" for name, reason in choice.left_out.items()]
    tables = choice.tables(top=_TOP if arguments.format == "text" else None)
    print_result(arguments, tables, document, notes)
    if arguments.format == "text":
        put(f"wrote {page}; to run it:")
        for what, command in choice.live(written["out"]):
            put(f"  {what}: {command}")
    return 0

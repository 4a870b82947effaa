"""``suffice sweep``: one number of a rule over a grid."""

from __future__ import annotations

import argparse

from suffice.cli.options import add_json, add_traces, open_traces
from suffice.cli.output import print_json, say
from suffice.cli.settings_options import add_settings, read_settings
from suffice.replay.settings import SweepSettings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Tries a grid of numbers in place of the '?' in a rule: out of fold on tune, then on "
        "eval, with the knee of the curve and a five-fold cross-validation of the choice."
    )
    add_traces(parser)
    add_settings(parser, SweepSettings)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Sweep and print."""
    from suffice.replay.choose.sweep import sweep
    from suffice.report.tables.sweep import sweep_table

    result = sweep(open_traces(arguments, say), read_settings(arguments, SweepSettings))
    if arguments.json:
        print_json(result.to_json())
        for note in result.notes:
            say(f"note: {note}")
    else:
        print(sweep_table(result))
    return 0

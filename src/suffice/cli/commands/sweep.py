"""``suffice sweep``: one number of a rule over a grid."""

from __future__ import annotations

import argparse

from suffice.cli.options import add_traces, open_traces
from suffice.cli.output import add_format, print_result, say, waiting
from suffice.cli.settings_options import add_settings, read_settings
from suffice.replay.settings import SweepSettings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Tries a grid of numbers in place of the '?' in a rule: out of fold on tune, then on "
        "eval, with the knee of the curve and a five-fold cross-validation of the choice."
    )
    add_traces(parser, sampled=True)
    add_settings(parser, SweepSettings)
    add_format(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Sweep and print."""
    from suffice.replay.choose.sweep import sweep

    settings = read_settings(arguments, SweepSettings)
    traces = open_traces(arguments, say)
    with waiting("sweeping"):
        result = sweep(traces, settings)
    notes = [f"note: {note}" for note in result.notes]
    print_result(arguments, result.tables(), result.to_json, notes)
    return 0

"""``suffice measure``: write what is measured of a large record once."""

from __future__ import annotations

import argparse

from suffice.cli.options import add_json, add_traces, open_traces, out_path, workers_of
from suffice.cli.output import print_json, put, say


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Writes scores, signals and narrow columns of a large record once, without its passages, tokens and "
        "samples. replay, search, sweep, fit and diagnose take the result in place of TRACES and need not "
        "read those again. A run that was interrupted is gone on with."
    )
    add_traces(parser, measured=True)
    parser.add_argument(
        "--out",
        type=out_path(folder=True),
        required=True,
        metavar="MEASURES",
        help="the folder to write",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="write all of it anew, where the record or the code has changed since",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure and write."""
    from suffice.measures.narrow import write_measures
    from suffice.results.as_json import fields_as_json

    traces = open_traces(arguments, say)

    def told(done: int, parts: int) -> None:
        say(f"measured {done:,} of {parts:,} parts")

    written = write_measures(
        traces,
        arguments.out,
        executor=workers_of(arguments),
        again=arguments.again,
        on_part=told,
    )
    if arguments.json:
        print_json(fields_as_json(written))
        return 0
    kept = f" ({written.kept:,} were there)" if written.kept else ""
    put(
        f"wrote {written.out}: {written.questions:,} questions, {written.rounds:,} rounds, "
        f"{len(written.signals)} signals, {written.parts:,} parts{kept}\n"
        f"use it with: suffice replay {written.out} --policy P"
    )
    return 0

"""``suffice measure``: measure all of a large record now, which every command does when it needs to."""

from __future__ import annotations

import argparse

from suffice.cli.options import add_json, add_traces, open_measures
from suffice.cli.output import print_json, put, say, waiting


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Measures every signal and score of a large record and keeps the columns beside it, in "
        "RECORD.measures. Other commands measure what they need and keep it there too."
    )
    add_traces(parser, measured=True)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure everything."""
    from suffice.scoring import F1_KINDS
    from suffice.signals.available import given_signals

    measures = open_measures(arguments, say)
    names = given_signals(measures.traces)
    with waiting("measuring"):
        for kind in F1_KINDS:
            measures.measure(names, kind)
    held = {
        "questions": measures.traces.n_questions,
        "rounds": measures.traces.table.num_rows,
        "signals": names,
        "kept": None if measures.kept is None else str(measures.kept.folders[0]),
    }
    if arguments.json:
        print_json(held)
        return 0
    kept = f"kept in {held['kept']}" if held["kept"] else "a small record: nothing is kept"
    size = f"{held['questions']:,} questions, {held['rounds']:,} rounds"
    put(f"measured {size}, {len(names)} signals; {kept}")
    return 0

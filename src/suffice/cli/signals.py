"""``suffice signals``: compute signals and store them."""

from __future__ import annotations

import argparse
from typing import Any

from suffice.cli.options import add_json, add_traces, open_traces
from suffice.cli.output import print_json, say
from suffice.signals.store import with_signals
from suffice.trace.writer import write_trace_set

__all__ = ["add_command"]


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "signals",
        help="compute signals and store them in the trace",
        description="Computes every signal that needs neither model nor network and stores it in the "
        "'signals' map. Stored values stay as they stand; all columns are kept.",
    )
    add_traces(parser)
    parser.add_argument(
        "--out",
        required=True,
        metavar="TRACES2",
        help="a .parquet file, or a directory that gets one",
    )
    parser.add_argument("--only", metavar="A,B", help="just these signals")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compute, write, and list what was skipped and why."""
    traces = open_traces(arguments, say, keep_unknown=True)
    only = (
        None
        if arguments.only is None
        else tuple(name.strip() for name in arguments.only.split(","))
    )
    stored = with_signals(traces, only)
    written = write_trace_set(stored.traces, arguments.out)
    if arguments.json:
        print_json(
            {
                "out": str(written),
                "computed": list(stored.computed),
                "skipped": dict(stored.skipped),
            }
        )
    else:
        print(f"wrote {written}")
        print(f"  computed {', '.join(stored.computed) or 'nothing new'}")
        for name, reason in stored.skipped.items():
            print(f"  skipped {name}: {reason}")
    return 0

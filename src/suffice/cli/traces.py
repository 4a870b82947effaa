"""``suffice traces validate``: check traces against the schema."""

from __future__ import annotations

import argparse
from typing import Any

from suffice.cli.options import add_json
from suffice.cli.output import print_json
from suffice.trace.reader import inspect_traces

__all__ = ["add_command"]

_MOST_SHOWN = 20


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "traces", help="check trace files", description="Works on trace files."
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    validate = actions.add_parser(
        "validate",
        help="check against the schema",
        description="Checks traces against the schema and lists every problem with file, row and "
        "column. Exit code 2 when there is one.",
    )
    validate.add_argument("traces", metavar="TRACES", help="a Parquet file or a directory of them")
    validate.add_argument(
        "--skip-invalid", action="store_true", help="exit with 0 as long as a question is valid"
    )
    add_json(validate)
    validate.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Inspect and list."""
    inspection = inspect_traces(arguments.traces)
    traces, errors = inspection.traces, inspection.errors
    if arguments.json:
        print_json(
            {
                "questions": traces.n_questions,
                "rounds": traces.table.num_rows,
                "errors": [
                    {"message": e.message, "file": e.file, "row": e.row, "column": e.column}
                    for e in errors
                ],
                "failures": traces.origin.failures,
            }
        )
    else:
        print(f"{traces.n_questions} valid questions, {traces.table.num_rows} rounds")
        for error in errors[:_MOST_SHOWN]:
            print(f"  {error}")
        if len(errors) > _MOST_SHOWN:
            print(f"  and {len(errors) - _MOST_SHOWN} more; --json lists all")
        if traces.origin.failures:
            print(f"{traces.origin.failures} questions failed when recorded; record again to retry")
        if not errors and traces.n_questions == 0:
            print("the trace set is empty")
    passed = traces.n_questions > 0 and (not errors or arguments.skip_invalid)
    return 0 if passed else 2

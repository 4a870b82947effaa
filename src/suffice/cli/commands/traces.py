"""``suffice traces validate``: check traces against the schema."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from suffice.cli.options import add_json
from suffice.cli.output import print_json, waiting
from suffice.errors import DataError
from suffice.trace.plans.file import inspect_plans
from suffice.trace.plans.schema import PLANS
from suffice.trace.reader import schema_of
from suffice.trace.rounds.reader import blank_answers, inspect_traces

_MOST_SHOWN = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = "Works on trace files."
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    validate = actions.add_parser(
        "validate",
        help="check against the schema",
        description="Checks traces of questions, or of plans, against the schema and lists every "
        "problem with file, row and column. Exit code 2 when there is one.",
    )
    validate.add_argument("traces", metavar="TRACES", help="a Parquet file or a directory of them")
    validate.add_argument(
        "--skip-invalid",
        action="store_true",
        help="exit with 0 as long as a question or plan is valid",
    )
    add_json(validate)
    validate.set_defaults(run=run)


@dataclass(frozen=True, slots=True)
class _Checked:
    """A trace set as the command reports it; ``counts`` starts with what must not be 0."""

    name: str
    counts: Mapping[str, int]
    errors: Sequence[DataError]
    failures: int
    remarks: Sequence[str] = ()

    @property
    def empty(self) -> bool:
        return not next(iter(self.counts.values()))


def run(arguments: argparse.Namespace) -> int:
    """Inspect and list."""
    is_plan = schema_of(arguments.traces) == PLANS
    with waiting(f"reading {arguments.traces}"):
        checked = (_plan_trace if is_plan else _question_trace)(arguments.traces)
    if arguments.json:
        errors = [
            {"message": e.message, "file": e.file, "row": e.row, "column": e.column}
            for e in checked.errors
        ]
        remarks = {"warnings": list(checked.remarks)} if checked.remarks else {}
        print_json({**checked.counts, "errors": errors, "failures": checked.failures, **remarks})
    else:
        _print(checked)
    passed = not checked.empty and (not checked.errors or arguments.skip_invalid)
    return 0 if passed else 2


def _question_trace(path: str) -> _Checked:
    inspection = inspect_traces(path)
    traces = inspection.traces
    return _Checked(
        "trace set",
        {"questions": traces.n_questions, "rounds": traces.table.num_rows},
        inspection.errors,
        traces.origin.failures,
        (*inspection.remarks, *blank_answers(traces)),
    )


def _plan_trace(path: str) -> _Checked:
    plans = inspect_plans(path)
    counts = {"plans": len(plans.records), "steps": plans.n_steps}
    return _Checked("plan trace", counts, plans.skipped, plans.failures)


def _print(checked: _Checked) -> None:
    (things, number), (parts, more) = checked.counts.items()
    heading = "plan trace: " if things == "plans" else ""
    print(f"{heading}{number} valid {things}, {more} {parts}")
    for remark in checked.remarks:
        print(f"  warning: {remark}")
    for error in checked.errors[:_MOST_SHOWN]:
        print(f"  {error}")
    if len(checked.errors) > _MOST_SHOWN:
        print(f"  and {len(checked.errors) - _MOST_SHOWN} more; --json lists all")
    if checked.failures:
        print(f"{checked.failures} {things} failed when recorded; record again to retry")
    if not checked.errors and checked.empty:
        print(f"the {checked.name} is empty")

"""``python -m studies.hidden_constraints``: a blind sheet, judges against it, and Table 7."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from studies.hidden_constraints.judging import Judging, judging, new_verdicts, recorded_verdicts
from studies.hidden_constraints.labels import NEEDED, Labels, drawn_runs, read_labels, write_sheet
from studies.hidden_constraints.recorded import Recorded, read_records
from studies.hidden_constraints.table7 import table7
from suffice.cli.options import add_model, connect_model, natural, out_path, positive
from suffice.cli.output import ProgressLine, add_format, print_result, say
from suffice.cli.parser import Parser
from suffice.errors import SufficeError, UsageError
from suffice.results.formats import counted

_RECORDS = "a folder of 'suffice bench hidden-constraints --out', or a plan record"


def parser() -> Parser:
    """The commands and their options."""
    made = Parser(
        prog="python -m studies.hidden_constraints",
        description="Judges of plans against people, on one record or several, and the paper's Table 7.",
    )
    commands = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    sheet = commands.add_parser("sheet", help="write a blind sheet of plans for people to judge")
    sheet.description = (
        "Draws runs and writes their constraints and plans without agent, retriever and verdict. Fill in yes "
        "or no under satisfied; rows may stay empty."
    )
    sheet.add_argument("records", nargs="+", metavar="RECORD", help=_RECORDS)
    sheet.add_argument("--out", required=True, type=out_path(".csv", ".jsonl"), metavar="FILE")
    sheet.add_argument(
        "--runs", type=positive, default=20, metavar="N", help="how many (default: 20, the paper's)"
    )
    sheet.add_argument("--all", action="store_true", help="all runs")
    sheet.add_argument("--seed", type=natural, default=42, help="of the draw (default: 42)")
    sheet.set_defaults(run=_sheet)
    judge = commands.add_parser("judge", help="judge, checker and people on one or several records")
    judge.description = (
        "Shows for every record, and for all together, how many plans satisfy their constraint, and how far "
        "judge, checker and people agree. Without --llm the judge is the recorded one."
    )
    judge.add_argument("records", nargs="+", metavar="RECORD", help=_RECORDS)
    judge.add_argument(
        "--labels",
        metavar="FILE",
        help=f"people's verdicts: a CSV, JSON or JSONL file with {', '.join(NEEDED)}, as 'sheet' writes it",
    )
    judge.add_argument(
        "--told",
        choices=("token", "requirement"),
        help="what a new judge is told: the token (the paper's; default), or its sentence too",
    )
    judge.add_argument(
        "--bootstrap", type=positive, default=2000, metavar="N", help="resamples (default: 2000)"
    )
    judge.add_argument("--seed", type=natural, default=42, help="of the resampling (default: 42)")
    add_model(judge, default=None)
    add_format(judge)
    judge.set_defaults(run=_judge)
    seventh = commands.add_parser(
        "table7", help="budgets and cool-downs against the paper's Table 7"
    )
    seventh.description = (
        "Runs the gate on the tasks of hard-small with the paper's thresholds and compares mean documents "
        "with Table 7, by budget, cool-down and agreement of the candidates."
    )
    seventh.add_argument("--budgets", type=_counts, default=(2, 3, 4), metavar="A,B,...")
    seventh.add_argument("--cool-downs", type=_counts, default=(1, 2), metavar="A,B,...")
    seventh.add_argument(
        "--agreement", type=_span, default=(0.0, 0.3), metavar="LOW,HIGH", help="(default: 0,0.3)"
    )
    add_format(seventh)
    seventh.set_defaults(run=_table7)
    return made


def _counts(text: str) -> tuple[int, ...]:
    counts = tuple(positive(part) for part in text.split(","))
    if len(set(counts)) < len(counts):
        raise argparse.ArgumentTypeError(f"names one twice: {text}")
    return counts


def _span(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        low, high = 1.0, 0.0
    if not 0.0 <= low <= high <= 1.0:
        raise argparse.ArgumentTypeError(
            f"must be LOW,HIGH with 0 <= LOW <= HIGH <= 1, found {text!r}"
        )
    return low, high


def _sheet(arguments: argparse.Namespace) -> None:
    records = read_records(arguments.records)
    runs = drawn_runs(records, None if arguments.all else arguments.runs, arguments.seed)
    write_sheet(runs, Path(arguments.out))
    say(f"wrote {counted(len(runs), 'plan')} to {arguments.out}; write yes or no under satisfied")


def _judge(arguments: argparse.Namespace) -> None:
    records = read_records(arguments.records)
    labels = None if arguments.labels is None else read_labels(Path(arguments.labels), records)
    result = _judged(arguments, records, labels)
    print_result(arguments, result.tables(), result.to_json, result.notes)


def _judged(
    arguments: argparse.Namespace, records: Sequence[Recorded], labels: Labels | None
) -> Judging:
    if arguments.llm is None:
        if arguments.told is not None or arguments.model is not None:
            raise UsageError(
                "--told and --model go with --llm; without it the recorded judge is shown"
            )
        rated, judges = recorded_verdicts(records, labels), {one.name: one.judge for one in records}
    else:
        model = connect_model(arguments)
        line = ProgressLine("verdicts")
        told: Literal["token", "requirement"] = arguments.told or "token"
        rated = new_verdicts(records, labels, model, told, line.show)
        judges = {one.name: model.name for one in records}
    notes = [
        f"{one.name}: {counted(one.left_out, 'run')} without a hidden constraint left out"
        for one in records
        if one.left_out
    ]
    if labels is not None and labels.elsewhere:
        notes.append(
            f"{counted(labels.elsewhere, 'verdict')} of people are of runs in no record here"
        )
    return judging(rated, judges, resamples=arguments.bootstrap, seed=arguments.seed, notes=notes)


def _table7(arguments: argparse.Namespace) -> None:
    found = table7(arguments.budgets, arguments.cool_downs, *arguments.agreement)
    print_result(arguments, found.tables(), found.to_json)


def main(words: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    try:
        arguments = parser().parse_args(words)
        arguments.run(arguments)
    except SufficeError as error:
        say(" ".join(str(error).split()), lead="python -m studies.hidden_constraints:")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())

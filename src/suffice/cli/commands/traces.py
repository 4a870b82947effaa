"""``suffice traces``: look into records, check, split, join, narrow, label, redact, import, export them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from suffice.cli.options import TRACES, add_json, add_traces, natural, out_path
from suffice.cli.output import add_format, print_json, print_result, put, say, waiting
from suffice.cli.settings_options import add_settings, read_settings
from suffice.datasets.recordings.columns import parse_roles
from suffice.datasets.recordings.labels import label_traces, parse_label_roles
from suffice.datasets.recordings.registry import FORMATS, import_traces
from suffice.errors import DataError, UsageError
from suffice.live.redact import RedactedScore, redact_traces
from suffice.measures.seen import record_banners
from suffice.trace.export import EXPORT_FORMATS, export_traces
from suffice.trace.plans.file import inspect_plans
from suffice.trace.plans.schema import PLANS
from suffice.trace.reader import schema_of
from suffice.trace.recording import Retention, prune
from suffice.trace.rounds.copying import Written
from suffice.trace.rounds.derive import merge_traces, parse_splits, split_traces
from suffice.trace.rounds.filter import TraceFilter, filter_traces
from suffice.trace.rounds.reader import inspect_traces

_MOST_SHOWN = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Looks into records, checks, lists, splits, joins, narrows, labels, redacts, imports and "
        "exports them."
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_info(actions)
    _add_validate(actions)
    _add_prune(actions)
    _add_split(actions)
    _add_merge(actions)
    _add_filter(actions)
    _add_label(actions)
    _add_redact(actions)
    _add_import(actions)
    _add_export(actions)


def _add_info(actions: Any) -> None:
    info = actions.add_parser(
        "info",
        help="what is in a record",
        description="Says what is in a record: questions, rounds, who made it, splits, labels, columns, and "
        "the signals it gives with the share of rounds where each is undefined.",
    )
    add_traces(info)
    add_format(info)
    info.set_defaults(run=_info)


def _add_validate(actions: Any) -> None:
    validate = actions.add_parser(
        "validate",
        help="check against the schema",
        description="Checks traces of questions, or of plans, against the schema and lists every "
        "problem with file, row and column. Exit code 2 when there is a problem.",
    )
    validate.add_argument("traces", metavar="TRACES", help=TRACES)
    validate.add_argument(
        "--skip-invalid",
        action="store_true",
        help="exit with 0 as long as a question or plan is valid",
    )
    add_json(validate)
    validate.set_defaults(run=_validate)


def _add_prune(actions: Any) -> None:
    pruned = actions.add_parser(
        "prune",
        help="remove the oldest questions of a record of live loops",
        description="Removes questions of a store, the oldest first: those that ended longer ago, or as many "
        "as the store has too much. What is under way is left alone.",
    )
    pruned.add_argument("traces", metavar="STORE", help="FILE.db, or a folder with record.db")
    pruned.add_argument(
        "--keep-days", type=float, metavar="DAYS", help="remove questions that are older than this"
    )
    pruned.add_argument(
        "--keep-gigabytes",
        type=float,
        metavar="GB",
        help="remove the oldest questions until the rest takes no more",
    )
    pruned.add_argument("--dry-run", action="store_true", help="say what would be removed")
    add_json(pruned)
    pruned.set_defaults(run=_prune)


def _add_split(actions: Any) -> None:
    split = actions.add_parser(
        "split",
        help="write it again with a split for every question",
        description="Writes a record again with a split for every question, drawn by a seed; questions of "
        "each data set and type take their shares to within about one question. The record itself is left "
        "as it is.",
    )
    add_traces(split)
    split.add_argument(
        "--splits",
        default="tune=0.4,eval=0.6",
        metavar="NAME=SHARE,...",
        help="which splits there are (default: tune=0.4,eval=0.6)",
    )
    split.add_argument("--seed", type=natural, default=42, help="of the draw (default: 42)")
    split.add_argument(
        "--replace", action="store_true", help="draw anew where questions have a split already"
    )
    _add_out(split)
    split.set_defaults(run=_split)


def _add_merge(actions: Any) -> None:
    merge = actions.add_parser(
        "merge",
        help="join several records",
        description="Writes the questions of several records as one. A question that two of them hold is "
        "refused. Where they differ in data set, model or loop, columns of these names (dataset, model, "
        "pipeline) say which a question is of.",
    )
    add_traces(merge, several="two or more")
    _add_out(merge)
    merge.set_defaults(run=_merge)


def _add_filter(actions: Any) -> None:
    narrow = actions.add_parser(
        "filter",
        help="keep some questions or rounds",
        description="Writes the part of a record that all conditions leave; every column stays. Data set, "
        "model and loop are read from a column of that name, else from what the recorder noted in the file.",
    )
    add_traces(narrow)
    add_settings(narrow, TraceFilter)
    _add_out(narrow)
    narrow.set_defaults(run=_filter)


def _add_label(actions: Any) -> None:
    label = actions.add_parser(
        "label",
        help="add gold answers, scores, types or groups that became known later",
        description="Adds labels of a file: gold answers, types, groups, and scores of what was returned (of "
        "the last round, or of the round named). A store of live loops takes them; any other record is left "
        "as it is, and written again with them. Labels that differ from each other, or from what the record "
        "says, are refused.",
    )
    add_traces(label)
    label.add_argument(
        "labels", metavar="LABELS", help="JSON lines, JSON, CSV or Parquet, a row a label"
    )
    label.add_argument(
        "--columns",
        metavar="MAP",
        help="which columns hold what: question_id=.., gold_answers=.., score=.., round=.., "
        "question_type=.., group=..; question=.. in place of question_id: a label is of every question of "
        "that text; default: columns of these names",
    )
    label.add_argument(
        "--replace", action="store_true", help="labels take the place of others in the record"
    )
    label.add_argument(
        "--skip-unknown",
        action="store_true",
        help="leave out labels of questions that are not recorded",
    )
    _add_out(label, instead="; left out: the store itself")
    label.set_defaults(run=_label)


def _add_redact(actions: Any) -> None:
    redact = actions.add_parser(
        "redact",
        help="write a record without its texts, to be shown to others",
        description="Writes a record again with names in place of its texts and all signals stored, so that "
        "policies replay, are searched and chosen on it as on the record itself, by its scores. Question "
        "ids stay as they are. What reads texts or tokens themselves needs the record.",
    )
    add_traces(redact)
    redact.add_argument(
        "--texts",
        choices=("hashes", "no-texts"),
        default="hashes",
        help="hashes: equal texts have equal names all over, under a key that is thrown away; no-texts: "
        "within a question only, and no gold answers (default: hashes)",
    )
    redact.add_argument(
        "--score",
        choices=get_args(RedactedScore),
        default="f1",
        help="what answers score against the gold answers, kept in the column score (default: f1)",
    )
    _add_out(redact)
    redact.set_defaults(run=_redact)


def _add_import(actions: Any) -> None:
    known = "; ".join(f"{name}: {kind.meaning}" for name, kind in FORMATS.items())
    taken = actions.add_parser(
        "import",
        help="read recordings made elsewhere",
        description="Writes recordings made elsewhere as a record, and says what they lack and what to do. "
        f"Formats: {known}.",
    )
    taken.add_argument("files", nargs="+", metavar="FILE", help="files of the format")
    taken.add_argument("--format", required=True, choices=tuple(FORMATS), help="what the files are")
    taken.add_argument(
        "--columns",
        metavar="MAP",
        help="for columns: which hold what: question_id=..,round=..,question=..,answer=..,gold_answers=.. "
        "(these also by name), any other column of the schema, passage_ids=.., passage_texts=.. (lists; also "
        "passage_titles, passage_scores), latency_ms=.., signals.NAME=..; a field within a column is "
        "usage.in, or hits[].doc of each in a list; default: every column that bears a name of the schema. "
        "No round: rows are numbered in the file's order; no question_id: a question is known by its text",
    )
    taken.add_argument(
        "--rounds-from",
        type=int,
        choices=(0, 1),
        help="the number of a question's first round in the table; 1: round 0 is the closed-book answer "
        "(default: 1, but asked where most questions have a round 0 or one retrieved something)",
    )
    taken.add_argument(
        "--duplicates",
        choices=("refuse", "first", "last"),
        default="refuse",
        help="which of several rows of one round in the table stands (default: refuse)",
    )
    taken.add_argument(
        "--skip-invalid",
        action="store_true",
        help="leave out questions of the table that lack a round or have a wrong cell, and count them",
    )
    _add_out(taken)
    taken.set_defaults(run=_import)


def _add_export(actions: Any) -> None:
    export = actions.add_parser(
        "export",
        help="write a store as Parquet, or any record as JSON lines, CSV or spans",
        description="Writes a store of live loops as Parquet files in a folder; typed again it adds what "
        "ended since. In other formats: a record's columns of the schema as text, one row per question and "
        "round, which traces import --format columns reads back; in CSV lists, passages, tokens and signals "
        "are JSON, and a null is a blank cell. As otlp: spans by OpenTelemetry's GenAI names, a document of "
        "OTLP JSON a question, which traces import --format otlp reads back.",
    )
    add_traces(export)
    export.add_argument(
        "--format",
        default=EXPORT_FORMATS[0],
        choices=EXPORT_FORMATS,
        help="parquet: a store as a folder (default); jsonl: an object a line; csv: a table; otlp: spans of "
        "OpenTelemetry",
    )
    export.add_argument(
        "--out",
        required=True,
        type=out_path(".jsonl", ".json", ".csv", ".otlp", ".txt", folder=True),
        metavar="OUT",
        help="the folder; of text the file, where nothing may stand yet",
    )
    add_json(export)
    export.set_defaults(run=_export)


def _add_out(parser: argparse.ArgumentParser, instead: str = "") -> None:
    parser.add_argument(
        "--out",
        required=not instead,
        type=out_path(".parquet", folder=True),
        metavar="NEW",
        help=f"a .parquet file or a directory; nothing may stand there yet{instead}",
    )
    add_json(parser)


def _info(arguments: argparse.Namespace) -> int:
    from suffice.measures.contents import traces_info

    with waiting(f"reading {arguments.traces}"):
        contents = traces_info(arguments.traces, skip_invalid=arguments.skip_invalid)
    print_result(arguments, contents.tables(), contents.to_json)
    return 0


def _split(arguments: argparse.Namespace) -> int:
    shares = parse_splits(arguments.splits)
    with waiting(f"splitting {arguments.traces}"):
        written = split_traces(
            arguments.traces,
            arguments.out,
            shares,
            seed=arguments.seed,
            replace_splits=arguments.replace,
            skip_invalid=arguments.skip_invalid,
        )
    return _tell(written, arguments)


def _merge(arguments: argparse.Namespace) -> int:
    with waiting(f"joining {len(arguments.traces)} records"):
        written = merge_traces(arguments.traces, arguments.out, skip_invalid=arguments.skip_invalid)
    return _tell(written, arguments)


def _filter(arguments: argparse.Namespace) -> int:
    keep = read_settings(arguments, TraceFilter)
    with waiting(f"filtering {arguments.traces}"):
        written = filter_traces(
            arguments.traces, arguments.out, keep, skip_invalid=arguments.skip_invalid
        )
    return _tell(written, arguments)


def _label(arguments: argparse.Namespace) -> int:
    columns = None if arguments.columns is None else parse_label_roles(arguments.columns)
    with waiting(f"labelling {arguments.traces}"):
        written = label_traces(
            arguments.traces,
            arguments.labels,
            arguments.out,
            columns=columns,
            replace=arguments.replace,
            skip_unknown=arguments.skip_unknown,
            skip_invalid=arguments.skip_invalid,
        )
    return _tell(written, arguments)


def _redact(arguments: argparse.Namespace) -> int:
    with waiting(f"redacting {arguments.traces}"):
        written = redact_traces(
            arguments.traces,
            arguments.out,
            texts=arguments.texts,
            score=arguments.score,
            skip_invalid=arguments.skip_invalid,
        )
    return _tell(written, arguments)


def _import(arguments: argparse.Namespace) -> int:
    columns = None if arguments.columns is None else parse_roles(arguments.columns)
    with waiting(f"reading {', '.join(arguments.files)}"):
        written = import_traces(
            arguments.files,
            arguments.out,
            format=arguments.format,
            columns=columns,
            rounds_from=arguments.rounds_from,
            duplicates=arguments.duplicates,
            skip_invalid=arguments.skip_invalid,
        )
    return _tell(written, arguments)


def _export(arguments: argparse.Namespace) -> int:
    with waiting(f"reading {arguments.traces}"):
        written = export_traces(
            arguments.traces,
            arguments.out,
            format=arguments.format,
            skip_invalid=arguments.skip_invalid,
        )
    return _tell(written, arguments)


def _tell(written: Written, arguments: argparse.Namespace) -> int:
    """What was written; notes go to stderr."""
    for note in written.notes:
        say(note)
    if arguments.json:
        document = asdict(written)
        print_json({name: value for name, value in document.items() if name != "stays" or value})
        return 0
    put(f"wrote {written.out}: {written.questions:,} questions, {written.rounds:,} rounds")
    if written.splits:
        told = ", ".join(f"{name} {questions:,}" for name, questions in written.splits.items())
        put(f"  splits: {told}")
    if written.failures:
        put(f"  {written.failures:,} questions failed when recorded")
    if written.stays:
        put("stays as it is:")
    for name, said in written.stays.items():
        put(f"  {name}: {said}")
    return 0


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


def _prune(arguments: argparse.Namespace) -> int:
    retention = Retention(days=arguments.keep_days, gigabytes=arguments.keep_gigabytes)
    if not retention.limited:
        raise UsageError(
            "how much is to be kept? Type --keep-days DAYS, --keep-gigabytes GB or both"
        )
    done = prune(arguments.traces, retention, dry=arguments.dry_run)
    if arguments.json:
        print_json(asdict(done))
        return 0
    would = "would be " if arguments.dry_run else ""
    put(
        f"{done.questions:,} questions {would}removed, {done.bytes:,} bytes; {done.bytes_left:,} bytes "
        "are kept"
    )
    return 0


def _validate(arguments: argparse.Namespace) -> int:
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
        (*inspection.remarks, *record_banners(traces)),
    )


def _plan_trace(path: str) -> _Checked:
    plans = inspect_plans(path)
    counts = {"plans": len(plans.records), "steps": plans.n_steps}
    return _Checked("plan trace", counts, plans.skipped, plans.failures)


def _print(checked: _Checked) -> None:
    (things, number), (parts, more) = checked.counts.items()
    heading = "plan trace: " if things == "plans" else ""
    put(f"{heading}{number} valid {things}, {more} {parts}")
    for remark in checked.remarks:
        put(f"  warning: {remark}")
    for error in checked.errors[:_MOST_SHOWN]:
        put(f"  {error}")
    if len(checked.errors) > _MOST_SHOWN:
        put(f"  and {len(checked.errors) - _MOST_SHOWN} more; --json lists all")
    if checked.failures:
        put(f"{checked.failures} {things} failed when recorded; record again to retry")
    if not checked.errors and checked.empty:
        put(f"the {checked.name} is empty")

"""``suffice traces``: look into records, check, split, join, narrow, label, redact, import, export them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from cyclopts import App

from suffice.cli.output import Form, print_json, print_result, put, say, waiting
from suffice.cli.parser import command, make_app
from suffice.cli.shared_options import Json, Reading, Seed, SkipInvalid, Traces, out_path
from suffice.datasets.columns import ROLES, SIGNAL
from suffice.datasets.files import parse_column_map
from suffice.datasets.recordings import FORMATS, LABEL_ROLES, import_traces, label_traces
from suffice.errors import UsageError
from suffice.live.privacy import RedactedScore, redact_traces
from suffice.measures.contents import traces_info
from suffice.measures.seen import record_banners
from suffice.options import Option
from suffice.trace.export import EXPORT_FORMATS, export_traces
from suffice.trace.plan_traces import PLANS, inspect_plans
from suffice.trace.recording import prune as prune_store
from suffice.trace.rounds.derive import (
    TraceFilter,
    Written,
    filter_traces,
    merge_traces,
    parse_splits,
    split_traces,
)
from suffice.trace.rounds.reader import inspect_traces
from suffice.trace.stored_file import schema_of

_MOST_SHOWN = 20
_NEW = "a .parquet file or a directory; nothing may stand there yet"
Replace = Annotated[bool, Option(help="what is given takes the place of what the record says")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told(Reading):
    """How a record is read, and what was written told."""

    json: Json = False

    def write(self, doing: str, write: Callable[..., Written], *words: Any, **options: Any) -> None:
        """Write a record and say what was written; notes go to stderr."""
        with waiting(doing):
            written = write(*words, skip_invalid=self.skip_invalid, **options)
        for note in written.notes:
            say(note)
        if self.json:
            print_json(asdict(written))
            return
        put(f"wrote {written.out}: {written.questions:,} questions, {written.rounds:,} rounds")
        if written.splits:
            told = ", ".join(f"{name} {questions:,}" for name, questions in written.splits.items())
            put(f"  splits: {told}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToNew(Told):
    """The same of a record that is written anew."""

    out: Annotated[str, Option(metavar="NEW", parse=out_path(".parquet", folder=True), help=_NEW)]


traces: App = make_app(
    "traces",
    "Look into records, check, split, join, narrow, label, redact, import and export them.",
)


@traces.command
@command()
def info(traces: Traces, *, reading: Reading, form: Form) -> None:
    """Say what is in a record.

    Questions, rounds, who made it, splits, labels, columns, and the signals it gives with the share of
    rounds where each is undefined.
    """
    with waiting(f"reading {traces}"):
        contents = traces_info(traces, skip_invalid=reading.skip_invalid)
    print_result(form, contents.tables(), contents.to_json)


@traces.command
@command()
def validate(traces: Traces, *, skip_invalid: SkipInvalid = False, json: Json = False) -> int:
    """Check a record against the schema.

    Traces of questions, or of plans. Lists every problem with file, row and column. Exit code 2 when there
    is a problem; with --skip-invalid 0 as long as a question or plan is valid.
    """
    remarks: tuple[str, ...] = ()
    with waiting(f"reading {traces}"):
        if schema_of(traces) == PLANS:
            plans = inspect_plans(traces)
            counts = {"plans": len(plans.records), "steps": plans.n_steps}
            name, errors, failures = "plan trace", plans.skipped, plans.failures
        else:
            found = inspect_traces(traces)
            record = found.traces
            counts = {"questions": record.n_questions, "rounds": record.table.num_rows}
            name, errors, failures = "trace set", found.errors, record.origin.failures
            remarks = (*found.remarks, *record_banners(record))
    (things, number), (parts, more) = counts.items()
    if json:
        told = [
            {"message": e.message, "file": e.file, "row": e.row, "column": e.column} for e in errors
        ]
        warned = {"warnings": list(remarks)} if remarks else {}
        print_json({**counts, "errors": told, "failures": failures, **warned})
    else:
        put(f"{'plan trace: ' * (things == 'plans')}{number} valid {things}, {more} {parts}")
        for remark in remarks:
            put(f"  warning: {remark}")
        for error in errors[:_MOST_SHOWN]:
            put(f"  {error}")
        if len(errors) > _MOST_SHOWN:
            put(f"  and {len(errors) - _MOST_SHOWN} more; --json lists all")
        if failures:
            put(f"{failures} {things} failed when recorded; record again to retry")
        if not errors and not number:
            put(f"the {name} is empty")
    return 0 if number and (not errors or skip_invalid) else 2


@traces.command
@command()
def prune(
    traces: Annotated[
        str, Option(positional=True, metavar="STORE", help="FILE.db, or a folder with record.db")
    ],
    *,
    keep_days: Annotated[
        float | None, Option(metavar="DAYS", help="remove questions that are older than this")
    ] = None,
    keep_gigabytes: Annotated[
        float | None,
        Option(metavar="GB", help="remove the oldest questions until the rest takes no more"),
    ] = None,
    dry_run: Annotated[bool, Option(help="say what would be removed")] = False,
    json: Json = False,
) -> None:
    """Remove the oldest questions of a record of live loops.

    Those that ended longer ago, or as many as the store has too much. What is under way is left alone.
    """
    if keep_days is None and keep_gigabytes is None:
        raise UsageError(
            "how much is to be kept? Type --keep-days DAYS, --keep-gigabytes GB or both"
        )
    done = prune_store(traces, days=keep_days, gigabytes=keep_gigabytes, dry=dry_run)
    if json:
        print_json(asdict(done))
        return
    removed = f"{done.questions:,} questions {'would be ' * dry_run}removed, {done.bytes:,} bytes"
    put(f"{removed}; {done.bytes_left:,} bytes are kept")


@traces.command
@command()
def split(
    traces: Traces,
    *,
    splits: Annotated[
        str, Option(metavar="NAME=SHARE,...", help="which splits there are")
    ] = "tune=0.4,eval=0.6",
    seed: Seed = 42,
    replace: Replace = False,
    to: ToNew,
) -> None:
    """Write a record again with a split for every question, drawn by a seed.

    Questions of each data set and type take their shares to within about one question. The record itself
    is left as it is.
    """
    to.write(
        f"splitting {traces}",
        split_traces,
        traces,
        to.out,
        parse_splits(splits),
        seed=seed,
        replace_splits=replace,
    )


@traces.command
@command()
def merge(
    traces: Annotated[
        tuple[str, ...],
        Option(positional=True, repeats=True, metavar="TRACES", help="two records or more"),
    ],
    *,
    to: ToNew,
) -> None:
    """Write the questions of several records as one.

    A question that two of them hold is refused. Where they differ in data set, model or loop, columns of
    these names (dataset, model, pipeline) say which a question is of.
    """
    doing = f"joining {len(traces)} records"
    to.write(doing, merge_traces, traces, to.out)


@traces.command(name="filter")
@command()
def narrow(traces: Traces, *, keep: TraceFilter, to: ToNew) -> None:
    """Write the part of a record that all conditions leave; every column stays.

    Data set, model and loop are read from a column of that name, else from what the recorder noted in the
    file.
    """
    to.write(f"filtering {traces}", filter_traces, traces, to.out, keep)


@traces.command
@command()
def label(
    traces: Traces,
    labels: Annotated[
        str,
        Option(
            positional=True,
            metavar="LABELS",
            help="JSON lines, JSON, CSV or Parquet, a row a label",
        ),
    ],
    *,
    columns: Annotated[
        str | None,
        Option(
            metavar="MAP",
            help="question_id=..,gold_answers=..,score=..,round=..,question_type=..,group=..; or question=.. "
            "in "
            "place of question_id (default: columns of these names)",
        ),
    ] = None,
    replace: Replace = False,
    skip_unknown: Annotated[
        bool, Option(help="leave out labels of questions that are not recorded")
    ] = False,
    out: Annotated[
        str | None,
        Option(
            metavar="NEW",
            parse=out_path(".parquet", folder=True),
            help=f"{_NEW}; left out: the store itself",
        ),
    ] = None,
    to: Told,
) -> None:
    """Add gold answers, scores, types or groups that became known later.

    Scores are of what was returned: of the last round, or of the round named. A store of live loops takes
    the labels; any other record is left as it is, and written again with them. Labels that differ from each
    other, or from what the record says, are refused.
    """
    to.write(
        f"labelling {traces}",
        label_traces,
        traces,
        labels,
        out,
        columns=None if columns is None else parse_column_map(columns, LABEL_ROLES),
        replace=replace,
        skip_unknown=skip_unknown,
    )


@traces.command
@command()
def redact(
    traces: Traces,
    *,
    texts: Annotated[
        Literal["hashes", "no-texts"],
        Option(
            help="hashes: equal texts have equal names; no-texts: within a question only, no gold answers"
        ),
    ] = "hashes",
    score: Annotated[
        RedactedScore, Option(help="what answers score, kept in the column score")
    ] = "f1",
    to: ToNew,
) -> None:
    """Write a record without its texts, to be shown to others.

    Names stand in their place and all signals are stored, so that policies replay, are searched and chosen
    on it as on the record itself, by its scores. Question ids stay as they are. What reads texts or tokens
    themselves needs the record.
    """
    to.write(f"redacting {traces}", redact_traces, traces, to.out, texts=texts, score=score)


@traces.command(name="import")
@command()
def take(
    files: Annotated[
        tuple[str, ...],
        Option(positional=True, repeats=True, metavar="FILE", help="files of the format"),
    ],
    *,
    format: Annotated[  # noqa: A002 - the option's name
        str,
        Option(
            choices=tuple(FORMATS),
            help="; ".join(f"{name}: {kind.meaning}" for name, kind in FORMATS.items()),
        ),
    ],
    columns: Annotated[
        str | None,
        Option(
            metavar="MAP",
            help="question_id=..,round=..,question=..,answer=..,gold_answers=.., any other column of the "
            "schema, passage_ids=..,passage_texts=..,latency_ms=..,signals.NAME=..; a field within a column "
            "is usage.in, or hits[].doc of each in a list (default: columns of these names)",
        ),
    ] = None,
    rounds_from: Annotated[
        Literal[0, 1] | None,
        Option(
            help="the number of a question's first round; 1: round 0 is closed-book (default: 1)"
        ),
    ] = None,
    duplicates: Annotated[
        Literal["refuse", "first", "last"],
        Option(help="which of several rows of one round in the table stands"),
    ] = "refuse",
    to: ToNew,
) -> None:
    """Read recordings made elsewhere, and say what they lack and what to do."""
    to.write(
        f"reading {', '.join(files)}",
        import_traces,
        files,
        to.out,
        format=format,
        columns=None if columns is None else parse_column_map(columns, ROLES, free=SIGNAL),
        rounds_from=rounds_from,
        duplicates=duplicates,
    )


@traces.command
@command()
def export(
    traces: Traces,
    *,
    format: Annotated[  # noqa: A002 - the option's name
        str,
        Option(
            choices=tuple(EXPORT_FORMATS), help="parquet: a store as a folder; jsonl: any record"
        ),
    ] = EXPORT_FORMATS[0],
    out: Annotated[
        str,
        Option(
            metavar="OUT",
            parse=out_path(".jsonl", ".json", ".txt", folder=True),
            help="the folder; of jsonl the file, where nothing may stand yet",
        ),
    ],
    to: Told,
) -> None:
    """Write a store as Parquet, or any record as JSON lines.

    A store typed again adds what ended since. JSON lines hold a record's columns of the schema, an object
    per question and round, which traces import --format columns reads back.
    """
    to.write(f"reading {traces}", export_traces, traces, out, format=format)

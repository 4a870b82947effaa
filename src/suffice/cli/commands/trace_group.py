"""``suffice traces``: inspect, check, split, merge, filter, label, import and export records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from cyclopts import App

from suffice.cli.output import Form, print_json, print_result, put, say, waiting
from suffice.cli.parser import command, make_app
from suffice.cli.shared_options import Json, Reading, Seed, SkipInvalid, Traces, out_path
from suffice.datasets.columns import ROLES, SIGNAL
from suffice.datasets.files import parse_column_map
from suffice.datasets.formats import FORMATS
from suffice.datasets.recordings import LABEL_ROLES, import_traces, label_traces
from suffice.errors import UsageError, counted
from suffice.live.privacy import RedactedScore, redact_traces
from suffice.measures.contents import traces_info
from suffice.measures.seen import record_banners
from suffice.options import Option, read_range
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
_NEW = "a .parquet file or a directory that does not exist yet"
Separator = Annotated[
    str, Option(metavar="TEXT", help="what parts several texts in a cell, as in 'Oslo|Kristiania'")
]
ScoreRange = Annotated[
    tuple[float, ...],
    Option(metavar="LOW,HIGH", parse=read_range, help="worst and best score, which become 0 and 1"),
]
Replace = Annotated[bool, Option(help="replace what the record says")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told(Reading):
    json: Json = False

    def write(self, doing: str, write: Callable[..., Written], *words: Any, **options: Any) -> None:
        """Write a record and print a summary; notes go to stderr."""
        with waiting(doing):
            written = write(*words, skip_invalid=self.skip_invalid, **options)
        for note in written.notes:
            say(note)
        if self.json:
            print_json(asdict(written))
            return
        rounds = counted(written.rounds, "round")
        put(f"wrote {written.out}: {counted(written.questions, 'question')}, {rounds}")
        if written.splits:
            told = ", ".join(f"{name} {questions:,}" for name, questions in written.splits.items())
            put(f"  splits: {told}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToNew(Told):
    out: Annotated[str, Option(metavar="NEW", parse=out_path(".parquet", folder=True), help=_NEW)]


traces: App = make_app(
    "traces", "Inspect, check, split, merge, filter, label, redact, import and export records."
)


@traces.command
@command()
def info(traces: Traces, *, reading: Reading, form: Form) -> None:
    """Say what is in a record.

    Prints questions, rounds, origin, splits, labels and columns, and what the record can feed. Lists its
    signals, with the share of rounds where each is undefined.
    """
    with waiting(f"reading {traces}"):
        contents = traces_info(traces, skip_invalid=reading.skip_invalid)
    print_result(form, contents.tables(), contents.to_json)


@traces.command
@command()
def validate(traces: Traces, *, skip_invalid: SkipInvalid = False, json: Json = False) -> int:
    """Check a record of questions or of plans against the schema.

    Lists every problem with its file, row and column. The exit code is 2 if there is a problem. With
    --skip-invalid it is 0 as long as one question or plan is valid.
    """
    remarks: tuple[str, ...] = ()
    with waiting(f"reading {traces}"):
        if schema_of(traces) == PLANS:
            plans = inspect_plans(traces)
            steps = sum(len(record.steps) for record in plans.records)
            counts = {"plans": len(plans.records), "steps": steps}
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
        float | None, Option(metavar="DAYS", help="remove questions older than this")
    ] = None,
    keep_gigabytes: Annotated[
        float | None,
        Option(metavar="GB", help="remove the oldest questions until the store is no larger"),
    ] = None,
    dry_run: Annotated[bool, Option(help="only print what would be removed")] = False,
    json: Json = False,
) -> None:
    """Remove the oldest questions from a store of live loops.

    Removes by age, by size, or both. Keeps questions that are still running.
    """
    if keep_days is None and keep_gigabytes is None:
        raise UsageError(
            "nothing says how much to keep; type --keep-days DAYS, --keep-gigabytes GB or both"
        )
    done = prune_store(traces, days=keep_days, gigabytes=keep_gigabytes, dry=dry_run)
    if json:
        print_json(asdict(done))
        return
    removed = f"{counted(done.questions, 'question')} {'would be ' * dry_run}removed, {done.bytes:,} bytes"
    put(f"{removed}; {done.bytes_left:,} bytes remain")


@traces.command
@command()
def split(
    traces: Traces,
    *,
    splits: Annotated[
        str, Option(metavar="NAME=SHARE,...", help="splits and their shares")
    ] = "tune=0.4,eval=0.6",
    seed: Seed = 42,
    replace: Replace = False,
    to: ToNew,
) -> None:
    """Write a copy of a record with a random split for every question.

    Stratifies by data set and question type, to within about one question. Does not change the record itself.
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
        Option(positional=True, repeats=True, metavar="TRACES", help="two or more records"),
    ],
    *,
    to: ToNew,
) -> None:
    """Write the questions of several records as one record.

    Refuses a question that occurs in two of them. If data set, model or loop differ, the new columns dataset,
    model and pipeline keep them apart.
    """
    to.write(f"merging {len(traces)} records", merge_traces, traces, to.out)


@traces.command(name="filter")
@command()
def narrow(traces: Traces, *, keep: TraceFilter, to: ToNew) -> None:
    """Write the part of a record that meets all conditions, with every column.

    Reads data set, model and loop from the column of that name, else from the record's notes.
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
            help="JSON lines, JSON, CSV or Parquet, one label a row",
        ),
    ],
    *,
    columns: Annotated[
        Mapping[str, str] | None,
        Option(
            metavar="MAP",
            parse=lambda text: parse_column_map(text, LABEL_ROLES),
            help="columns of the labels: question_id=.. or "
            "question=..,gold_answers=..,score=..,round=..,question_type=..,group=.. (default: "
            "columns of these names)",
        ),
    ] = None,
    separator: Separator = "",
    score_range: ScoreRange = (),
    replace: Replace = False,
    skip_unknown: Annotated[
        bool, Option(help="leave out labels of questions that are not in the record")
    ] = False,
    out: Annotated[
        str | None,
        Option(
            metavar="NEW",
            parse=out_path(".parquet", folder=True),
            help=f"{_NEW} (default: the store itself)",
        ),
    ] = None,
    to: Told,
) -> None:
    """Add gold answers, scores, types or groups that became known later.

    A score is of the last round, or of the round named. A store of live loops takes the labels itself; of any
    other record a labeled copy is written. Refuses labels that contradict each other or the record.
    """
    to.write(
        f"labeling {traces}",
        label_traces,
        traces,
        labels,
        out,
        columns=columns,
        separator=separator,
        score_range=score_range,
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
            help="hashes: equal texts get equal names. no-texts: within a question only, no gold answers."
        ),
    ] = "hashes",
    score: Annotated[
        RedactedScore, Option(help="score to keep of each answer, in the column score")
    ] = "f1",
    to: ToNew,
) -> None:
    """Write a copy of a record without its texts, to share with others.

    Replaces texts by names and stores all signals. Replay, search and choose give the same results on it, by
    its scores. Keeps question ids as they are. Whatever reads texts or tokens still needs the original
    record.
    """
    to.write(f"redacting {traces}", redact_traces, traces, to.out, texts=texts, score=score)


@traces.command(name="import")
@command()
def take(
    files: Annotated[
        tuple[str, ...],
        Option(positional=True, repeats=True, metavar="FILE", help="files, or folders of them"),
    ],
    *,
    format: Annotated[  # noqa: A002 - the option's name
        str | None,
        Option(
            choices=tuple(FORMATS),
            help="; ".join(f"{name}: {kind.meaning}" for name, kind in FORMATS.items())
            + " (default: what each file looks like)",
        ),
    ] = None,
    columns: Annotated[
        Mapping[str, str] | None,
        Option(
            metavar="MAP",
            parse=lambda text: parse_column_map(text, ROLES, free=SIGNAL),
            help="question_id=..,round=..,question=..,answer=..,gold_answers=..,passage_ids=.., "
            "signals.NAME=.., or any other column. Name a nested field as usage.in, or hits[].doc in a list. "
            "Columns of these names are read too, except NAME=-.",
        ),
    ] = None,
    rounds_from: Annotated[
        Literal[0, 1] | None,
        Option(
            help="number of a question's first round; with 1, round 0 is closed-book (default: 1)"
        ),
    ] = None,
    duplicates: Annotated[
        Literal["refuse", "first", "last"],
        Option(help="which row to keep if a round appears twice"),
    ] = "refuse",
    answers_in_every_round: Annotated[
        bool,
        Option(
            help="the loop does so anyway (answer_calls = 0): a policy pays for all rounds it ran"
        ),
    ] = False,
    separator: Separator = "",
    score_range: ScoreRange = (),
    to: ToNew,
) -> None:
    """Import recordings made elsewhere, and say what they lack and how to add it."""
    to.write(
        f"reading {', '.join(files)}",
        import_traces,
        files,
        to.out,
        format=format,
        columns=columns,
        rounds_from=rounds_from,
        duplicates=duplicates,
        answers_in_every_round=answers_in_every_round,
        separator=separator,
        score_range=score_range,
    )


@traces.command
@command()
def export(
    traces: Traces,
    *,
    format: Annotated[  # noqa: A002 - the option's name
        str,
        Option(
            choices=tuple(EXPORT_FORMATS), help="parquet: a store as a folder. jsonl: any record."
        ),
    ] = EXPORT_FORMATS[0],
    out: Annotated[
        str,
        Option(
            metavar="OUT",
            parse=out_path(".jsonl", ".json", ".txt", folder=True),
            help="parquet: the folder. jsonl: a file that does not exist yet.",
        ),
    ],
    to: Told,
) -> None:
    """Write a store as Parquet, or any record as JSON lines.

    Export the same store again to add new questions. JSON lines hold one object for each question and round,
    with the columns of the schema. 'traces import --format columns' reads them back.
    """
    to.write(f"reading {traces}", export_traces, traces, out, format=format)

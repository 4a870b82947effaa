"""Import of recordings made elsewhere, and of labels that arrive later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace as replaced
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from suffice.datasets.columns import ROLES, SIGNAL, Layout, cell, scaled
from suffice.datasets.files import Row, check_roles, no_column, open_table
from suffice.datasets.formats import FORMATS, Format, inside, recognized
from suffice.errors import DataError, UsageError, counted, did_you_mean
from suffice.trace.durable import check_free, sha256_of
from suffice.trace.lazy import in_memory
from suffice.trace.recording import live_store
from suffice.trace.rounds.derive import Written, read_source, write_copy
from suffice.trace.rounds.labels import LABEL_COLUMNS, Label, Labels
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.schema import SCHEMA
from suffice.trace.rounds.trace_set import TraceSet
from suffice.trace.rounds.writer import write_new


def import_traces(
    files: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    columns: Mapping[str, str] | None = None,
    rounds_from: Literal[0, 1] | None = None,
    duplicates: Literal["refuse", "first", "last"] = "refuse",
    answers_in_every_round: bool = False,
    separator: str = "",
    score_range: Sequence[float] = (),
    skip_invalid: bool = False,
) -> Written:
    """Read recordings made elsewhere and write them as a trace set: all of them, or nothing.

    ``files`` are one or several of a ``format`` (a name of :data:`FORMATS`; ``None``: what each file looks
    like, said in a note), or folders of them; all rounds of a question are in one of them.
    ``out`` is a new ``.parquet`` file or directory. The returned notes say what the recording
    lacks and what to do. The other arguments are for tables, not for agent runs.

    ``columns`` maps roles to the file's columns: names of the schema, ``passage_ids``, ``passage_titles``,
    ``passage_texts``, ``passage_scores`` and ``signals.NAME``. A field inside a column is ``usage.in``; of
    each item of a list it is ``hits[].doc``. Seconds may be in smaller units: then the role or the column
    ends in the unit, as ``latency_ms``. Every other column with a name of the schema is read too, unless the
    map has ``NAME=-``; the notes list what is not read.
    ``rounds_from`` is the number of a question's first round; 1: a round 0 is the closed-book answer;
    ``None``: 1, and an error if most questions have a round 0, or one retrieved something. ``duplicates``
    chooses among several rows of one round. ``answers_in_every_round``: the loop answers in each round
    anyway, so that ``answer_calls`` is 0 where the table does not say it. ``separator`` parts several texts
    in a cell. ``score_range`` is what the worst and the best score are; they become 0 and 1.
    ``skip_invalid`` drops questions that lack a round or have an invalid cell, with a note.
    """
    if format is not None and format not in FORMATS:
        raise UsageError(
            f"no format {format!r}; allowed: {', '.join(FORMATS)}{did_you_mean(format, FORMATS)}"
        )
    stated = "columns" if columns and format is None else format
    if columns and stated != "columns":
        raise UsageError(f"the columns of {format} are known; --columns goes with --format columns")
    check_roles(columns or {}, ROLES, free=SIGNAL)
    if rounds_from not in (None, 0, 1) or duplicates not in ("refuse", "first", "last"):
        raise UsageError(
            "rounds_from is 0 or 1, duplicates 'refuse', 'first' or 'last'; "
            f"found {rounds_from!r:.40}, {duplicates!r:.40}"
        )
    layout = Layout(
        columns=columns or {},
        rounds_from=rounds_from,
        duplicates=duplicates,
        answers_in_every_round=answers_in_every_round,
        separator=separator,
        score_range=score_range,
        skip_invalid=skip_invalid,
    )
    given = [Path(file) for file in ([files] if isinstance(files, str | Path) else files)]
    named, foreign = _named(given, stated)
    runs = [name for name in named.values() if not FORMATS[name].rows]
    if runs and layout != Layout(columns=layout.columns):
        raise UsageError(
            f"the rounds of {runs[0]} are known; --rounds-from, --duplicates, --answers-in-every-round, "
            "--separator, --score-range and --skip-invalid go with --format columns"
        )
    check_free(Path(out))
    records: dict[str, QuestionRecord] = {}
    sources: dict[str, Path] = {}
    for path, kind in named.items():
        for record in _read(path, FORMATS[kind], layout):
            name = record.question.id
            if name in records:
                raise DataError(
                    f"holds question {name!r}, as {sources[name]} does; a question is recorded once: import "
                    "different runs of it to records of their own",
                    file=str(path),
                )
            records[name] = record
            sources[name] = path
    empty = named.keys() - sources.values()
    if missed := [path for path in named if path in empty and (path in given or not records)]:
        raise DataError("holds no step of an agent", file=str(missed[0]))
    named = {path: name for path, name in named.items() if path not in empty}
    foreign += sorted(empty)
    came_from = {
        "format": ", ".join(dict.fromkeys(named.values())),
        "files": [
            {"file": path.name, **({} if path.is_dir() else {"sha256": sha256_of(path)})}
            for path in named
        ],
        **({"columns": dict(columns)} if columns else {}),
        **({} if rounds_from is None else {"rounds_from": rounds_from}),
        **({"score_range": [*score_range]} if score_range else {}),
        **({"answers_in_every_round": True} if answers_in_every_round else {}),
    }
    write_new(records.values(), Path(out), {"imported": came_from})
    splits = Counter(r.question.split for r in records.values() if r.question.split is not None)
    kinds = dict.fromkeys(named.values())
    notes = [] if stated else [_believed(named, name) for name in kinds]
    if foreign:
        notes.append(
            f"left out {counted(len(foreign), 'file')} of no known format or without a step of an agent, "
            f"the first: {foreign[0]}"
        )
    notes += dict.fromkeys(FORMATS[name].note for name in kinds if FORMATS[name].note)
    return Written(
        out=str(out),
        questions=len(records),
        rounds=sum(len(record.rounds) for record in records.values()),
        splits=dict(sorted(splits.items())),
        notes=(*notes, *dict.fromkeys(layout.notes), *_lacking([*records.values()], out)),
    )


def _named(given: Iterable[Path], stated: str | None) -> tuple[dict[Path, str], list[Path]]:
    """Return the formats of files, and the files in folders that are in none."""
    named: dict[Path, str] = {}
    foreign: dict[Path, DataError] = {}
    for path in given:
        for one in inside(path) if stated is None and path.is_dir() else [path]:
            try:
                named[one] = stated or recognized(one)
            except DataError as error:
                if one == path:
                    raise
                foreign[one] = error
    if foreign and not named:
        raise next(iter(foreign.values()))
    if not named:
        raise UsageError("no file to import; name at least one")
    return named, [*foreign]


def _believed(named: Mapping[Path, str], name: str) -> str:
    mine = [path for path, one in named.items() if one == name]
    more = f" and {counted(len(mine) - 1, 'file')} more" if len(mine) > 1 else ""
    return f"{mine[0]}{more}: {FORMATS[name].called} (--format {name})"


def _read(path: Path, kind: Format, layout: Layout) -> Iterator[QuestionRecord]:
    try:
        yield from kind.read(path, layout)
    except DataError as error:
        whole = error.row is None and error.column is None
        raise DataError(
            f"{error.message}; read as {kind.meaning}" if whole else error.message,
            file=error.file or str(path),
            row=error.row,
            column=error.column,
        ) from error


def _lacking(records: Sequence[QuestionRecord], out: str | Path) -> Iterator[str]:
    rounds = [round_ for record in records for round_ in record.rounds]
    passages = [passage for round_ in rounds for passage in round_.passages or ()]
    tokens = [token for round_ in rounds for token in round_.tokens or ()]
    longest = max(len(record.rounds) for record in records)
    if untold := sum(not record.question.text.strip() for record in records):
        yield (
            f"no text of {untold:,} of {counted(len(records), 'question')}: no model can be asked for their "
            "answers; record what was asked"
        )
    if unanswered := sum(round_.answer is None for round_ in rounds):
        few = " --missing-only" if 2 * unanswered < len(rounds) else ""
        yield (
            f"no answer in {unanswered:,} of {counted(len(rounds), 'round')}: what stopping there would "
            "score is not known, unless the record has scores; record an answer per round, or ask for it on "
            f"the recorded evidence: suffice probe {out} --llm URL --out NEW{few}"
        )
    if not any(record.gold.answers for record in records):
        yield (
            "no question has gold answers: policies are compared by the record's scores, or else by "
            f"agreement with the full budget's answer; label some: suffice traces label {out} LABELS"
        )
    yield from _parting(record.gold.answers for record in records)
    if not any(passage.text for passage in passages):
        kind = "passages without text" if passages else "no passages"
        yield f"{kind}: signals that read them are undefined; record passages with id and text"
    if not any(token.top for token in tokens):
        kind = (
            "log-probabilities without alternatives" if tokens else "no log-probabilities of tokens"
        )
        yield f"{kind}: margins are undefined unless given as signals; ask the model for top_logprobs"
    if all(round_.usage.prompt_tokens is None for round_ in rounds):
        yield (
            "no token counts of whole rounds, which one call without them makes unknown: costs are rounds "
            "and calls; record prompt_tokens and completion_tokens of every call"
        )
    elif untold := sum(bool(r.usage.llm_calls) and r.usage.prompt_tokens is None for r in rounds):
        yield (
            f"{counted(untold, 'round')} of {len(rounds):,} with a model call that tells no prompt tokens: "
            "their sums are unknown, and so are costs in tokens; have every call report its usage"
        )
    told = [r.usage.prompt_tokens is None or r.usage.answer_calls is not None for r in rounds]
    if not any(told) and not unanswered and longest > 1:
        yield (
            "a round's usage counts as its answer's: a policy that reads no answers pays for one round; if "
            "your loop answers in every round anyway, add --answers-in-every-round (answer_calls = 0)"
        )
    short = (record for record in records if len(record.rounds) < longest)
    if unstated := sum(record.stopped_by is None for record in short):
        yield (
            f"{counted(unstated, 'question')} of fewer than {counted(longest, 'round')} without a reason "
            "(stopped_by: policy, budget, end, error, gold or user); each reads as run to a full budget of "
            "its own"
        )
    if any(record.closed_book is not None for record in records):
        yield "round 0 was taken for the closed-book answer, at which no policy stops"


def _parting(golds: Iterable[Iterable[str]]) -> Iterator[str]:
    texts = [*chain.from_iterable(golds)]
    for mark in [mark for mark in "|;" if 2 * sum(mark in one for one in texts) > len(texts)][:1]:
        yield f"most gold answers hold {mark!r}; if it parts several of them, add --separator {mark!r}"


LABEL_ROLES = ("question_id", "question", *LABEL_COLUMNS, "round")
"""What a column of a file of labels may hold."""


def label_traces(
    source: str | Path,
    labels: str | Path | Iterable[Label],
    out: str | Path | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    separator: str = "",
    score_range: Sequence[float] = (),
    replace: bool = False,
    skip_unknown: bool = False,
    skip_invalid: bool = False,
) -> Written:
    """Add gold answers, types, groups or scores later: to a store, or to a copy of the record.

    ``source`` is a Parquet file or a directory of them, which stays unchanged, or a store. ``out`` is a new
    ``.parquet`` file or directory, or ``None``: into the store. ``labels`` are labels, or a file of JSON
    lines, JSON, CSV or Parquet with one label per row. ``columns`` maps :data:`LABEL_ROLES` to its columns:
    ``question_id`` (or ``question``, for every question with that text) and others; default: columns of the
    same name. ``separator`` and ``score_range`` as in :func:`suffice.traces.import_`. ``replace``: the label
    overrides the record. ``skip_unknown`` drops labels of unrecorded
    questions, with a note.
    """
    store = live_store(source)
    if out is not None:
        check_free(Path(out))
    elif store is None or replace:
        raise UsageError("only a store can be labeled in place; write a copy: --out NEW")
    read = read_source(source, skip_invalid=skip_invalid)
    name = read.origin.source
    notes: list[str] = []
    if isinstance(labels, str | Path):
        place = str(labels)
        layout = Layout(separator=separator, score_range=score_range, notes=notes)
        given = _read_labels(Path(labels), columns or {}, layout, read)
        notes += _parting(label.gold_answers for label in given)
    else:
        place = "the labels given"
        given = list(labels)
        if columns:
            raise UsageError("columns goes with a file of labels; these are labels already")
    try:
        merged = Labels.of(given)
        known = frozenset(read.question_ids)
        import pyarrow as pa

        held = {"question_id", "round", *LABEL_COLUMNS} & {*read.table.column_names}
        rows = pa.concat_tables(one.select(sorted(held)) for one in (read.table, read.closed_book))
        fitted = merged.only(known).fitted_to(rows)
    except DataError as error:
        raise DataError(
            error.message, file=error.file or place, row=error.row, column=error.column
        ) from error
    if unknown := merged.unknown(known):
        named = ", ".join(map(repr, unknown[:10]))
        more = f" and {len(unknown) - 10:,} more" * (len(unknown) > 10)
        of = f"{len(unknown):,} of {len(merged.questions):,} labeled questions"
        said = f"{of} are not in {name}: {named}{more}"
        if not skip_unknown:
            near = did_you_mean(unknown[0], read.question_ids)
            raise DataError(
                f"{said}{near}; leave them out with --skip-unknown",
                column="question_id",
                file=place,
            )
        notes.append(f"{said}; they were left out")
    if not fitted:
        raise DataError(
            "labels no question of the record: every row is empty, or names an unrecorded question",
            file=place,
        )
    conflicts = [] if replace else [error for _, error in fitted.conflicts(rows, name)]
    if conflicts:
        more = f" ({len(conflicts) - 1:,} more)" if len(conflicts) > 1 else ""
        raise DataError(conflicts[0].message + more, file=place, column=conflicts[0].column)
    labelled = len(fitted.questions)
    notes.insert(0, f"labeled {labelled:,} of {counted(len(known), 'question')}")
    if out is None and store is not None:
        for label in given:
            if label.question_id in fitted.questions and any(label.parts()):
                store.label(label)
        return Written.of(read, name, notes=tuple(notes))
    step = {"by": "label", "from": Path(name).name, "labels": place, "questions": labelled}
    table, closed_book = (fitted.onto(in_memory(one)) for one in (read.table, read.closed_book))
    filled = TraceSet(table=table, closed_book=closed_book, origin=read.origin)
    return write_copy([filled], str(out), step=step, notes=notes)


def _read_labels(
    path: Path, columns: Mapping[str, str], layout: Layout, read: TraceSet
) -> list[Label]:
    table = open_table(path)
    command = f"suffice traces label {read.origin.source} {path}"
    check_roles(columns, LABEL_ROLES)
    for role, column in columns.items():
        if column not in table.names:
            raise no_column(table, role, column, command)
    free = {*table.names} - {*columns.values()}
    held = {**{role: role for role in LABEL_ROLES if role in free}, **columns}
    by_text = "question_id" not in held
    if by_text and "question" not in held:
        raise no_column(table, "question_id", "question_id", command)
    if not {*LABEL_COLUMNS} & {*held}:
        raise no_column(table, "gold_answers", "gold_answers", command)
    ids: dict[str, list[str]] = {}
    for question in read.questions if by_text else ():
        ids.setdefault(question.text.strip(), []).append(question.id)
    labels: list[Label] = []
    blank = 0
    for row in table.rows(tuple(dict.fromkeys(held.values()))):
        found = _labels(row, held, ids if by_text else None, layout)
        blank += not found
        labels += found
    if blank:
        layout.notes.append(f"{counted(blank, 'row')} of {path} without a label")
    return labels


def _labels(
    row: Row, held: Mapping[str, str], ids: Mapping[str, Collection[str]] | None, layout: Layout
) -> list[Label]:
    row, values = replaced(row, separator=layout.separator), dict[str, Any]()
    for role, column in held.items():
        value = row.get(column)
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        value = cell(row, value, column, SCHEMA.field(role).type)
        if isinstance(value, list):
            values[role] = tuple(text.strip() for text in value)
        elif role == "score" and value is not None and layout.score_range:
            values[role] = scaled(row, value, column, layout.score_range)
        elif value is not None:
            values[role] = value.strip() if isinstance(value, str) else value
    key = values.pop("question" if ids is not None else "question_id", None)
    values.pop("question", None)
    if not {*LABEL_COLUMNS} & {*values}:
        return []
    if key is None:
        raise row.error("is empty; each question needs one", held.get("question_id", "question"))
    place = f"{row.file}, row {row.number}"
    try:
        return [
            Label(question_id=name, **values, place=place)
            for name in ([key] if ids is None else ids.get(key, [key]))
        ]
    except DataError as error:
        raise row.error(error.message, held.get(error.column or "", error.column)) from error

"""Labels of a file into a record: gold answers, types and scores by question."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from suffice.datasets.files import Row, check_roles, no_column, open_table, parse_column_map
from suffice.datasets.recordings.cells import cell
from suffice.errors import DataError, UsageError, did_you_mean
from suffice.trace.durable import check_free
from suffice.trace.recording import live_store
from suffice.trace.rounds.derive import Written, read_source, write_copy
from suffice.trace.rounds.labels import LABEL_COLUMNS, Label, Labels
from suffice.trace.rounds.reader import TraceInspection
from suffice.trace.rounds.schema import SCHEMA

LABEL_ROLES = ("question_id", "question", *LABEL_COLUMNS, "round")
"""What a column of a file of labels may hold."""
_MOST_NAMED = 10


def parse_label_roles(text: str) -> dict[str, str]:
    """``question_id=id,gold_answers=gold`` as columns by role.

    >>> parse_label_roles("question=q,gold_answers=gold")
    {'question': 'q', 'gold_answers': 'gold'}
    """
    form = "question_id=NAME,gold_answers=NAME,score=NAME,round=NAME,question_type=NAME,group=NAME"
    return parse_column_map(text, LABEL_ROLES, form)


def label_traces(
    source: str | Path,
    labels: str | Path | Iterable[Label],
    out: str | Path | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    replace: bool = False,
    skip_unknown: bool = False,
    skip_invalid: bool = False,
) -> Written:
    """Add gold answers, types, groups or scores that became known later: to a store, or a copy of the record.

    ``source`` is a Parquet file or a directory of them, left as it is, or a store; ``out`` a ``.parquet``
    file or a directory, neither of which may be there yet, or ``None``: into the store. ``labels`` are
    labels, or a file of JSON lines, JSON, CSV or Parquet with a row a label. ``columns`` has its columns by
    what they hold, of :data:`LABEL_ROLES`: ``question_id`` (or ``question``, its text: the label is of every
    question of that text) and others; default: those of the same name. ``replace``: where the record says
    otherwise the label holds. ``skip_unknown`` leaves out labels of questions that are not recorded, with a
    note.
    """
    store = live_store(source)
    if out is not None:
        check_free(Path(out))
    elif store is None or replace:
        raise UsageError(
            "only a store takes labels, and keeps those it has; write a copy: --out NEW"
        )
    read = read_source(source, skip_invalid=skip_invalid)
    notes: list[str] = []
    if isinstance(labels, str | Path):
        place = str(labels)
        given = _read_labels(Path(labels), columns or {}, read, notes)
    else:
        place = "the labels given"
        given = list(labels)
        if columns:
            raise UsageError("columns name those of a file of labels; these are labels already")
    try:
        merged = Labels.of(given)
        known = frozenset(read.traces.question_ids)
        _refuse_unknown(
            merged.unknown(known), len(merged.questions), read, notes, skip=skip_unknown
        )
        import pyarrow as pa

        rows = pa.concat_tables([read.traces.table, read.traces.closed_book])
        fitted = merged.only(known).fitted_to(rows)
    except DataError as error:
        raise DataError(
            error.message, file=error.file or place, row=error.row, column=error.column
        ) from error
    if not fitted:
        raise DataError(
            "labels no question of the record: every row is empty, or of a question that is not recorded",
            file=place,
        )
    conflicts = [] if replace else [error for _, error in fitted.conflicts(rows, read.name)]
    if conflicts:
        more = f" ({len(conflicts) - 1:,} more)" if len(conflicts) > 1 else ""
        raise DataError(conflicts[0].message + more, file=place, column=conflicts[0].column)
    labelled = len(fitted.questions)
    notes.insert(0, f"{labelled:,} of {len(known):,} questions were labelled")
    if out is None and store is not None:
        for label in given:
            if label.question_id in fitted.questions and any(label.parts()):
                store.label(label)
        return Written.of(read.traces, read.name, notes=tuple(notes))
    step = {"by": "label", "from": Path(read.name).name, "labels": place, "questions": labelled}
    return write_copy(
        [read],
        str(out),
        step=step,
        change=lambda table, _: fitted.onto(table),
        fills=fitted.columns(),
        failures=True,
        notes=notes,
    )


def _refuse_unknown(
    unknown: Sequence[str], labelled: int, read: TraceInspection, notes: list[str], *, skip: bool
) -> None:
    if not unknown:
        return
    named = ", ".join(map(repr, unknown[:_MOST_NAMED]))
    more = f" and {len(unknown) - _MOST_NAMED:,} more" if len(unknown) > _MOST_NAMED else ""
    said = (
        f"{len(unknown):,} of {labelled:,} labelled questions are not in {read.name}: {named}{more}"
    )
    if not skip:
        raise DataError(
            f"{said}{did_you_mean(unknown[0], read.traces.question_ids)}; leave them out with --skip-unknown",
            column="question_id",
        )
    notes.append(f"{said}; they were left out")


def _read_labels(
    path: Path, columns: Mapping[str, str], read: TraceInspection, notes: list[str]
) -> list[Label]:
    """The labels of a file; a row that says nothing of its question is passed over and counted."""
    table = open_table(path)
    command = f"suffice traces label {read.name} {path}"
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
    for question in read.traces.questions if by_text else ():
        ids.setdefault(question.text.strip(), []).append(question.id)
    labels: list[Label] = []
    blank = 0
    for row in table.rows(tuple(dict.fromkeys(held.values()))):
        found = _labels(row, held, ids if by_text else None)
        blank += not found
        labels += found
    if blank:
        notes.append(f"{blank:,} rows of {path} say nothing of their question")
    return labels


def _labels(
    row: Row, held: Mapping[str, str], ids: Mapping[str, Collection[str]] | None
) -> list[Label]:
    """Of a row: one, or where questions are known by their text one for each of that text."""
    values: dict[str, Any] = {}
    for role, column in held.items():
        value = row.values.get(column)
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        value = cell(row, value, column, SCHEMA.field(role).type)
        if isinstance(value, list):
            values[role] = tuple(text.strip() for text in value)
        elif value is not None:
            values[role] = value.strip() if isinstance(value, str) else value
    key = values.pop("question" if ids is not None else "question_id", None)
    values.pop("question", None)
    if not {*LABEL_COLUMNS} & {*values}:
        return []
    if key is None:
        raise row.error(
            "is empty; it tells the questions apart", held.get("question_id", "question")
        )
    place = f"{row.file}, row {row.number}"
    try:
        return [
            Label(question_id=name, **values, place=place)
            for name in ([key] if ids is None else ids.get(key, [key]))
        ]
    except DataError as error:
        raise row.error(error.message, held.get(error.column or "", error.column)) from error

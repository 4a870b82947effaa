"""Questions of the user's own, and NQ-Open: a row is a question, in JSON lines, CSV or Parquet."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from suffice.datasets.example import Example
from suffice.datasets.files import (
    FileTable,
    Row,
    drop_empty,
    no_column,
    open_table,
    parse_column_map,
    read_rows,
    text_id,
    unique_ids,
)
from suffice.errors import SufficeWarning
from suffice.trace.rounds.records import Gold, Question

_KNOWN: Mapping[str, tuple[str, ...]] = {
    "question": ("question",),
    "answers": ("answers", "answer", "gold_answers", "golden_answers"),
    "id": ("id", "_id", "question_id"),
    "type": ("type", "question_type"),
}


NQ_OPEN: Mapping[str, str] = {"question": "question", "answers": "answer"}
"""The columns of NQ-Open, whose questions bear no ids."""


def parse_question_roles(text: str) -> dict[str, str]:
    """``question=q,answers=gold`` as columns by role.

    >>> parse_question_roles("question=q, answers=gold")
    {'question': 'q', 'answers': 'gold'}
    """
    return parse_column_map(text, tuple(_KNOWN), ",".join(f"{role}=NAME" for role in _KNOWN))


def columns_of(path: str | Path, columns: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """The columns by role that :func:`read_questions` reads of a file."""
    return _within(open_table(Path(path)), columns or {})


def _within(table: FileTable, named: Mapping[str, str]) -> Mapping[str, str]:
    """Those that are named, and the first of the usual names of each other role."""
    held: dict[str, str] = {}
    for role, usual in _KNOWN.items():
        column = named.get(role) or next((name for name in usual if name in table.names), None)
        if column not in (None, *table.names) or (role == "question" and column is None):
            raise no_column(table, role, column or usual[0], f"--dataset {table.file}")
        if column is not None:
            held[role] = column
    return held


def read_questions(
    path: str | Path, columns: Mapping[str, str] | None = None, *, limit: int | None = None
) -> tuple[Example, ...]:
    """Questions of a file, in file order; the first ``limit`` of them. They bring no passages.

    ``columns`` are the file's by ``question``, ``answers``, ``id`` and ``type``; all but the question may
    be missing, and for a role that is not named the first of the usual names is taken.

    Notes
    -----
    Answers are a text, a number, or a list of them; in CSV a list is written as JSON, ``["a", "b"]``. None
    and blank ones: unlabelled. Without a column for them, ids are made of the questions' texts, so that
    they stay when rows are added.
    """
    path = Path(path)
    table = open_table(path)
    held = _within(table, columns or {})
    rows = list(table.rows(tuple(held.values())))[:limit]
    texts = [row.required(held["question"]) for row in rows]
    made = [] if "id" in held else _ids(texts, path)

    def build(row: Row) -> Example:
        return Example(
            question=Question(
                id=made[row.number] if made else _id(row, held["id"]),
                text=texts[row.number],
                type=_cell_text(row, held.get("type")) or None,
            ),
            gold=Gold(answers=_answers(row, held.get("answers"))),
            passages=(),
        )

    return read_rows(rows, build, path, limit, id_column=held.get("id", "id"))


def _ids(texts: Sequence[str], path: Path) -> list[str]:
    """The start of each text's SHA-256, with ``#2`` where it comes again."""
    repeated = [text for text, count in Counter(texts).items() if count > 1]
    if repeated:
        warnings.warn(
            f"{path}: {len(repeated)} questions stand in it more than once, the first {repeated[0]!r:.80}, "
            "and are asked as often, since no column tells them apart; name one: --columns id=NAME",
            SufficeWarning,
            stacklevel=3,
        )
    return unique_ids(text_id(text) for text in texts)


def _id(row: Row, column: str) -> str:
    name = _cell_text(row, column)
    if not name:
        raise row.error(
            "is empty; every question needs an id of its own, or leave the column out: name another with "
            "--columns id=NAME",
            column,
        )
    return name


def _cell_text(row: Row, column: str | None) -> str:
    """A text or a whole number, as text; nothing: empty."""
    value = None if column is None else row.values.get(column)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is not None and not isinstance(value, str):
        raise row.error(f"must be a text or a whole number, found {value!r:.60}", column)
    return (value or "").strip()


def _answers(row: Row, column: str | None) -> tuple[str, ...]:
    value = row.listed(column)
    if value is None or (isinstance(value, str) and not value.strip()):
        return ()
    return drop_empty(row.texts(value, column), row)

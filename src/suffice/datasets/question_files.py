"""Questions of the user's own, and NQ-Open: a row is a question, in JSON lines, CSV or Parquet."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which columns of a file hold what; all but the question may be missing.

    ``None``: the first of the usual names that the file has (``answers``, ``answer``, ``gold_answers``, ...).
    """

    question: str | None = None
    answers: str | None = None
    id: str | None = None
    type: str | None = None

    @classmethod
    def parse(cls, text: str) -> Columns:
        """``question=q,answers=gold`` as columns.

        >>> Columns.parse("question=q, answers=gold").answers
        'gold'
        """
        roles = [own.name for own in fields(cls)]
        return cls(**parse_column_map(text, roles, ",".join(f"{role}=NAME" for role in roles)))

    def within(self, table: FileTable) -> Columns:
        """The same for a file; a role that it lacks is ``None``."""
        chosen: dict[str, str | None] = {}
        for role, named in asdict(self).items():
            usual = next((name for name in _KNOWN[role] if name in table.names), None)
            chosen[role] = usual if named is None else named
            if named not in (None, *table.names) or (role == "question" and chosen[role] is None):
                raise no_column(table, role, named or _KNOWN[role][0], f"--dataset {table.file}")
        return Columns(**chosen)

    @property
    def named(self) -> dict[str, str]:
        """The columns by role, without the roles that have none."""
        return {role: column for role, column in asdict(self).items() if column is not None}


NQ_OPEN = Columns(question="question", answers="answer")
"""The columns of NQ-Open, whose questions bear no ids."""


def columns_of(path: str | Path, columns: Columns | None = None) -> Columns:
    """The columns that :func:`read_questions` reads of a file."""
    table = open_table(Path(path))
    return (columns or Columns()).within(table)


def read_questions(
    path: str | Path, columns: Columns | None = None, *, limit: int | None = None
) -> tuple[Example, ...]:
    """Questions of a file, in file order; the first ``limit`` of them. They bring no passages.

    Notes
    -----
    Answers are a text, a number, or a list of them; in CSV a list is written as JSON, ``["a", "b"]``. None
    and blank ones: unlabelled. Without a column for them, ids are made of the questions' texts, so that
    they stay when rows are added.
    """
    path = Path(path)
    table = open_table(path)
    held = (columns or Columns()).within(table)
    rows = list(table.rows(tuple(held.named.values())))
    texts = [row.required(str(held.question)) for row in rows[:limit]]
    ids = None if held.id is not None else _ids(texts, path)

    def build(row: Row) -> Example:
        own = _id(row, held.id) if ids is None and held.id is not None else (ids or [])[row.number]
        return Example(
            question=Question(
                id=own, text=texts[row.number], type=_cell_text(row, held.type) or None
            ),
            gold=Gold(answers=_answers(row, held.answers)),
            passages=(),
        )

    return read_rows(rows[:limit], build, path, limit, id_column=held.id or "id")


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

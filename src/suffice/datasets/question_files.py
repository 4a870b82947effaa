"""Questions of the user's own, and NQ-Open: a row is a question, in JSON lines, CSV or Parquet."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from suffice.datasets.example import Example
from suffice.datasets.files import Row, drop_empty, open_table, read_rows, unique_ids
from suffice.errors import DataError, SufficeWarning, UsageError, did_you_mean
from suffice.trace.rounds.records import Gold, Question

_KNOWN: Mapping[str, tuple[str, ...]] = {
    "question": ("question",),
    "answers": ("answers", "answer", "gold_answers", "golden_answers"),
    "id": ("id", "_id", "question_id"),
    "type": ("type", "question_type"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which columns of a file hold what.

    Parameters
    ----------
    question, answers, id, type
        A column's name; ``None``: the first of the usual names that the file has (``question``; ``answers``,
        ``answer``, ``gold_answers``, ``golden_answers``; ``id``, ``_id``, ``question_id``; ``type``,
        ``question_type``). All but the question may be missing.
    """

    question: str | None = None
    answers: str | None = None
    id: str | None = None
    type: str | None = None

    @classmethod
    def parse(cls, text: str) -> Columns:
        """``question=q,answers=gold`` as columns.

        Raises
        ------
        UsageError
            When a part names nothing, something unknown, or a thing twice.

        >>> Columns.parse("question=q, answers=gold").answers
        'gold'
        """
        allowed = [own.name for own in fields(cls)]
        named: dict[str, str] = {}
        for part in text.split(","):
            role, _, column = (piece.strip() for piece in part.partition("="))
            wrong = None
            if role not in allowed:
                wrong = f"{role!r} is none of {', '.join(allowed)}"
            elif not column:
                wrong = f"{role} names no column"
            elif role in named:
                wrong = f"{role} is named twice"
            if wrong is not None:
                raise UsageError(
                    f"--columns {text!r}: {wrong}; type some of --columns "
                    f"question=NAME,answers=NAME,id=NAME,type=NAME{did_you_mean(role, allowed)}"
                )
            named[role] = column
        return cls(**named)

    def within(self, names: Sequence[str], file: str) -> Columns:
        """The same for a file with the columns ``names``; a role that it lacks is ``None``.

        Raises
        ------
        DataError
            When a column that was named, or any for the question, is not there.
        """
        chosen: dict[str, str | None] = {}
        for role, named in asdict(self).items():
            usual = next((name for name in _KNOWN[role] if name in names), None)
            chosen[role] = usual if named is None else named
            if named not in (None, *names) or (role == "question" and chosen[role] is None):
                wanted = named or _KNOWN[role][0]
                listed = ", ".join(repr(name) for name in names) or "none"
                raise DataError(
                    f"has no column {wanted!r} for the {role}; it has: {listed}; name the right one: "
                    f"--dataset {file} --columns {role}=NAME{did_you_mean(wanted, names)}",
                    file=file,
                )
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
    return (columns or Columns()).within(table.names, table.file)


def read_questions(
    path: str | Path, columns: Columns | None = None, *, limit: int | None = None
) -> tuple[Example, ...]:
    """Questions of a file, in file order; the first ``limit`` of them. They bring no passages.

    Parameters
    ----------
    path
        ``.jsonl`` (an object a line), ``.json`` (a list of objects), ``.csv``, ``.tsv`` (with a header),
        these also as ``.gz``, or ``.parquet``.
    columns
        Which columns hold what; ``None``: those with the usual names.

    Notes
    -----
    Answers are a text, a number, or a list of them; in CSV a list is written as JSON, ``["a", "b"]``. None
    and blank ones: unlabelled. Without a column for them, ids are made of the questions' texts, so that
    they stay when rows are added.

    Raises
    ------
    DataError
        When the file is not what it must be, naming file, row and column.
    """
    path = Path(path)
    table = open_table(path)
    held = (columns or Columns()).within(table.names, table.file)
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
    return unique_ids(
        hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16] for text in texts
    )


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
    value = None if column is None else row.values.get(column)
    if value is None or (isinstance(value, str) and not value.strip()):
        return ()
    if row.untyped and isinstance(value, str) and value.strip().startswith("["):
        value = _listed(row, value, column)
    return drop_empty(answer_texts(row, value, column), row)


def _listed(row: Row, text: str, column: str | None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise row.error(
            f'begins as a list and is no JSON ({error}); write several answers as ["a", "b"], and one '
            f"that begins so as a list of one; found {text!r:.60}",
            column,
        ) from error


def answer_texts(row: Row, value: Any, column: str | None) -> list[str]:
    """Answers of a cell: a text, a number, or a list of them."""
    texts = []
    for answer in value if isinstance(value, list) else [value]:
        if isinstance(answer, int | float) and not isinstance(answer, bool):
            if not math.isnan(answer):  # as a table writes a missing number
                texts.append(str(answer).removesuffix(".0"))
        elif isinstance(answer, str):
            texts.append(answer)
        elif answer is not None:
            raise row.error(
                f"answers must be a text, a number or a list of them, found {answer!r:.60}", column
            )
    return texts

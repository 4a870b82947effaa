"""A table with one row per question and round, by a map of its columns; TASR's files are one of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffice.datasets.files import Row, no_column, open_table, parse_column_map, text_id
from suffice.errors import DataError
from suffice.trace.rounds.records import Gold, Question, QuestionRecord
from suffice.trace.rounds.schema import COLUMNS, record_from_rows
from suffice.trace.schema import columns_of, from_cells

if TYPE_CHECKING:
    import pyarrow as pa

_HELD = {column.name: column for column in COLUMNS}
_QUESTION, _GOLD = columns_of(Question, COLUMNS), columns_of(Gold, COLUMNS)
_SHARED = (*(column.name for column in (*_QUESTION, *_GOLD)), "propensity", "policy_hash")
_SIGNAL = "signals."
_PASSAGES = {"passage_ids": "id", "passage_texts": "text"}
ROLES: tuple[str, ...] = (*_HELD, *_PASSAGES)
"""What a column may hold: the columns of the schema, and passages as a list of ids or of texts."""

_USUAL = ("question_id", "round", "question", "answer", "gold_answers")

TASR: Mapping[str, str] = {
    "question_id": "qid",
    "round": "round",
    "answer": "current_answer",
    "score": "current_f1",
    "verbalized_confidence": "llm_confidence",
    "signals.answer_token_margin": "answer_token_margin",
    "signals.overlap": "overlap_signal",
    "signals.retrieval_gap": "gap",
}
"""The columns of the files that TASR's experiments write, with their published names."""


def parse_roles(text: str) -> dict[str, str]:
    """``question=q,answer=a,signals.margin=m`` as columns by role.

    Raises
    ------
    UsageError
        When a part names nothing, something unknown, or a thing twice.

    >>> parse_roles("question=q, answer=a, signals.margin=m")
    {'question': 'q', 'answer': 'a', 'signals.margin': 'm'}
    """
    form = "question_id=NAME,round=NAME,question=NAME,answer=NAME,gold_answers=NAME,..."
    return parse_column_map(text, ROLES, form, free=_SIGNAL)


def read_columns(path: Path, roles: Mapping[str, str]) -> tuple[QuestionRecord, ...]:
    """Records of a file whose columns hold ``roles``.

    Id, round, question, answer and gold answers are also read from columns of the schema's names, and without
    any roles every column that bears one.

    Cells are read by what their column holds; where cells are text, lists are written as JSON. A blank
    cell there, and a null, is no value. Without a column of rounds, a question's rows are numbered in the
    order of the file, and without one of ids, a question is known by its text.

    Raises
    ------
    DataError
        Naming file, row and column.
    """
    table = open_table(path)
    command = f"--format columns {path}"
    for role, column in roles.items():
        if column not in table.names:
            raise no_column(table, role, column, command)
    own = _USUAL if roles else ROLES
    free = set(table.names) - set(roles.values())
    usual = {role: role for role in own if role in free and role not in roles}
    held = {**usual, **roles}
    if not {"question", "question_id"} & set(held):
        raise no_column(table, "question", "question", command)
    if not {"answer", "score"} & set(held):
        raise no_column(table, "answer", "answer", command)
    lines = [_line(row, held) for row in table.rows(tuple(dict.fromkeys(held.values())))]
    by_question: dict[str, list[_Line]] = {}
    for line in lines:
        by_question.setdefault(line.cells["question_id"], []).append(line)
    return tuple(_record(rows, numbered="round" in held) for rows in by_question.values())


@dataclass(frozen=True, slots=True)
class _Line:
    """A row of the file with its cells by column of the schema; ``names``: the file's own columns."""

    row: Row
    cells: dict[str, Any]
    names: Mapping[str, str]

    def error(self, message: str, column: str) -> DataError:
        return self.row.error(message, self.names.get(column, column))


def _line(row: Row, held: Mapping[str, str]) -> _Line:
    cells: dict[str, Any] = {}
    signals: dict[str, float] = {}
    parts: dict[str, list[str]] = {}
    for role, column in held.items():
        value = row.values.get(column)
        if isinstance(value, str) and (row.untyped or role == "question_id"):
            value = value.strip() or None
        if value is None:
            continue
        if role in _PASSAGES:
            parts[role] = row.texts(row.listed(column), column)
        elif role == "signals":
            signals |= _signals(row, value, column)
        elif role.startswith(_SIGNAL):
            signals[role.removeprefix(_SIGNAL)] = _number(row, value, column)
        else:
            cells[role] = _cell(row, value, column, _HELD[role].type)
    if parts:
        cells["passages"] = _passages(row, parts, held)
    if signals:
        cells["signals"] = list(signals.items())
    if "question_id" not in cells:
        if "question_id" in held or not cells.get("question"):
            wanted = "question_id" if "question_id" in held else "question"
            raise row.error("is empty; it tells the questions apart", held.get(wanted, wanted))
        cells["question_id"] = text_id(cells["question"])
    return _Line(row, cells, held)


def _passages(
    row: Row, parts: Mapping[str, list[str]], held: Mapping[str, str]
) -> list[dict[str, Any]]:
    counts = {role: len(items) for role, items in parts.items()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count} in {held[role]}" for role, count in counts.items())
        raise row.error(f"as many ids as texts are needed, found {told}", held["passage_texts"])
    blank = {"id": None, "title": None, "text": None, "score": None, "rerank_score": None}
    rows = [
        {**blank, **dict(zip((_PASSAGES[role] for role in parts), items, strict=True))}
        for items in zip(*parts.values(), strict=True)
    ]
    return [{**passage, "id": passage["id"] or text_id(str(passage["text"]))} for passage in rows]


def _signals(row: Row, value: Any, column: str) -> dict[str, float]:
    """Of an object, of JSON text of one, or of the pairs that a map column gives."""
    if isinstance(value, str):
        value = _json(row, value, column)
    try:
        pairs = dict(value)
    except (TypeError, ValueError) as error:
        raise row.error(
            f"must be numbers by name, as {{'margin': 0.5}}, found {value!r:.60}", column
        ) from error
    return {
        str(name): math.nan if number is None else _number(row, number, column)
        for name, number in pairs.items()
    }


def _json(row: Row, text: str, column: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise row.error(f"no JSON ({error}), found {text!r:.60}", column) from error


def _number(row: Row, value: Any, column: str) -> float:
    try:
        if isinstance(value, str | int | float):  # true and false are a signal's 1 and 0
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise row.error(f"must be a number, found {value!r:.60}", column)


def _whole(row: Row, value: Any, column: str) -> int:
    number = math.nan if isinstance(value, bool) else _number(row, value, column)
    if not number.is_integer():
        raise row.error(f"must be a whole number, found {value!r:.60}", column)
    return int(number)


def _moment(row: Row, value: Any, column: str) -> datetime:
    try:
        return value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise row.error(
            f"must be a moment as 2026-01-31T12:00:00+00:00, found {value!r:.60}", column
        ) from error


def _cell(row: Row, value: Any, column: str, kind: pa.DataType) -> Any:
    """The value as the schema's column takes it; NaN, as a table writes a missing number: none."""
    if kind.num_fields:
        return _items(row, value, column, kind)
    if isinstance(value, float) and math.isnan(value):
        return None
    if str(kind) == "string":
        texts = [] if isinstance(value, list) else row.texts(value, column)
        if len(texts) != 1:
            raise row.error(f"must be one text, found {value!r:.60}", column)
        return texts[0]
    if str(kind) == "bool":
        truth = {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower())
        if truth is None:
            raise row.error(f"must be true or false, found {value!r:.60}", column)
        return truth
    if str(kind).startswith("timestamp"):
        return _moment(row, value, column)
    if str(kind).startswith("int"):
        return _whole(row, value, column)
    number = _number(row, value, column)
    return None if math.isnan(number) else number


def _items(row: Row, value: Any, column: str, kind: pa.DataType) -> Any:
    """Lists, and of passages and tokens the parts that the schema knows."""
    item = kind.value_type
    if str(item) == "string":
        return row.texts(row.listed(column) if isinstance(value, str) else value, column)
    if isinstance(value, str):
        value = _json(row, value, column)
    if not isinstance(value, list):
        raise row.error(f"must be a list, found {value!r:.60}", column)
    if not item.num_fields:
        return [None if one is None else _cell(row, one, column, item) for one in value]
    names = [item.field(number).name for number in range(item.num_fields)]
    structs = []
    for one in value:
        if not isinstance(one, dict) or not set(names) & set(one):
            raise row.error(
                f"each item must be an object with some of {', '.join(names)}, found {one!r:.60}; lists of "
                "ids or of texts alone are --columns passage_ids=NAME,passage_texts=NAME",
                column,
            )
        struct = {
            name: None
            if one.get(name) is None
            else _cell(row, one[name], column, item.field(name).type)
            for name in names
        }
        if "text" in names and struct["id"] is None and struct["text"] is not None:
            struct["id"] = text_id(struct["text"])
        structs.append(struct)
    return structs


def _record(lines: Sequence[_Line], *, numbered: bool) -> QuestionRecord:
    """A question of its rows."""
    rows = _numbered(lines) if numbered else dict(enumerate(lines, start=1))
    shared = _agreed(lines)
    closed = rows.pop(0, None)
    last = {**rows[len(rows)].cells, **{name: shared.get(name) for name in _SHARED}}
    cells = [rows[number].cells for number in range(1, len(rows))] + [last]
    try:
        return record_from_rows(
            Question(**{"text": "", **from_cells(shared, _QUESTION)}),
            Gold(**from_cells(shared, _GOLD)),
            cells,
            None if closed is None else closed.cells,
        )
    except DataError as error:
        at = next(
            (line for line in lines if line.cells.get(error.column or "") is not None), lines[0]
        )
        raise at.error(
            f"question {shared['question_id']!r}: {error.message}", error.column or "question_id"
        ) from error


def _numbered(lines: Sequence[_Line]) -> dict[int, _Line]:
    """Rows by round: 1 to the last, each once, and perhaps 0."""
    rows: dict[int, _Line] = {}
    question = lines[0].cells["question_id"]
    for line in lines:
        number = line.cells.get("round")
        if number is None or number < 0:
            raise line.error(
                f"must be a whole number from 1 (0: the closed-book answer), found {number}",
                "round",
            )
        if number in rows:
            raise line.error(
                f"question {question!r} has round {number} already, in row {rows[number].row.number}; a "
                "round is one row, and different runs need ids of their own",
                "round",
            )
        rows[number] = line
    last = max(rows)
    missing = next((number for number in range(1, last + 1) if number not in rows), None)
    if missing is not None or last == 0:
        raise lines[-1].error(
            f"question {question!r} has rounds {', '.join(map(str, sorted(rows)[:20]))} and no round "
            f"{missing or 1}; rounds count from 1 without gaps (0 is the closed-book answer). Rename the "
            "column to number the rows in the order of the file",
            "round",
        )
    return rows


def _agreed(lines: Sequence[_Line]) -> dict[str, Any]:
    """What the rows say of their question; a blank agrees with everything."""
    shared: dict[str, Any] = {}
    for line in lines:
        for name in _SHARED:
            value = line.cells.get(name)
            if value is None:
                continue
            if shared.setdefault(name, value) != value:
                raise line.error(
                    f"question {line.cells['question_id']!r} has {shared[name]!r:.60} in an earlier row and "
                    f"{value!r:.60} here; it is the same in all rows of a question",
                    name,
                )
    return shared

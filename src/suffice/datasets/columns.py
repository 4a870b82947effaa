"""Import of tables with one row per question and round, by a map of their columns."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from suffice.datasets.files import UNITS, FileTable, Row, no_column, open_table, text_id
from suffice.errors import DataError, UsageError, counted
from suffice.trace.parquet import columns_of, from_cells
from suffice.trace.rounds.checks import OF_QUESTIONS, meant
from suffice.trace.rounds.records import Gold, Question, QuestionRecord
from suffice.trace.rounds.schema import COLUMNS, record_from_rows
from suffice.trace.values import MOST_INT16

if TYPE_CHECKING:
    import pyarrow as pa


_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def fields_of(value: Any, name: str = "") -> Iterator[str]:
    """Return the fields of a value by their path in a map: ``usage.in``, ``hits[].doc``."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from fields_of(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for item in value:
            yield from fields_of(item, f"{name}[]")
    else:
        yield name


def number(row: Row, value: Any, column: str) -> float:
    """Return a number, or the number in a text; true and false are 1 and 0."""
    try:
        if isinstance(value, str | int | float):
            return float(_TRUTH.get(str(value).lower(), value))
    except (ValueError, OverflowError):
        pass
    raise row.error(f"must be a number, found {value!r:.60}", column)


def numbers_by_name(row: Row, value: Any, column: str) -> dict[str, float]:
    """Return numbers by name, from an object, its JSON text, or the pairs of a map column."""
    if isinstance(value, str):
        value = row.json(value, column)
    try:
        pairs = dict(value)
    except (TypeError, ValueError) as error:
        raise row.error(
            f"must be numbers by name, as {{'margin': 0.5}}, found {value!r:.60}", column
        ) from error
    return {
        str(name): math.nan if held is None else number(row, held, column)
        for name, held in pairs.items()
    }


def scaled(row: Row, score: float, column: str, ends: Sequence[float]) -> float:
    """Return a score between the ends of a range as one from 0 to 1."""
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise UsageError(f"the range of scores is LOW,HIGH as in 1,5; found {ends!r:.60}")
    if not ends[0] <= score <= ends[1]:
        raise row.error(f"must be a score from {ends[0]:g} to {ends[1]:g}, found {score:g}", column)
    return (score - ends[0]) / (ends[1] - ends[0])


def _refuse_objects(row: Row, value: Any, column: str) -> None:
    if any(isinstance(item, dict) for item in (value if isinstance(value, list) else [value])):
        names = ", ".join(dict.fromkeys(fields_of(value, column))) or "none"
        raise row.error(f"holds an object; name one of its fields: {names}", column)


def texts(row: Row, value: Any, column: str) -> list[str]:
    """Return the texts of a cell; refuse an object and name its fields."""
    _refuse_objects(row, value, column)
    return row.texts(value, column)


def cell(row: Row, value: Any, column: str, kind: pa.DataType) -> Any:
    """Return the value for the schema's column; NaN, a table's missing number, counts as none."""
    if kind.num_fields:
        return _items(row, value, column, kind.value_type)
    if isinstance(value, float) and math.isnan(value):
        return None
    _refuse_objects(row, value, column)
    name = str(kind)
    if name == "string":
        found = row.texts(value, column)
        if len(found) != 1 or isinstance(value, list):
            raise row.error(f"must be one text, found {value!r:.60}", column)
        return found[0]
    if name == "bool":
        if str(value).lower() not in _TRUTH:
            raise row.error(f"must be true or false, found {value!r:.60}", column)
        return _TRUTH[str(value).lower()]
    if name.startswith("timestamp"):
        return replace(row, values={column: value}).moment(column)
    found_number = number(row, value, column)
    if not name.startswith("int"):
        return None if math.isnan(found_number) else found_number
    if isinstance(value, bool) or not found_number.is_integer():
        raise row.error(f"must be a whole number, found {value!r:.60}", column)
    return int(found_number)


def _items(row: Row, value: Any, column: str, item: pa.DataType) -> Any:
    if str(item) == "string":
        return texts(row, row.listed(column) if isinstance(value, str) else value, column)
    if isinstance(value, str):
        value = row.json(value, column)
    if not isinstance(value, list):
        raise row.error(f"must be a list, found {value!r:.60}", column)
    if not item.num_fields:
        return [None if one is None else cell(row, one, column, item) for one in value]
    parts = {item.field(at).name: item.field(at).type for at in range(item.num_fields)}
    structs = []
    for one in value:
        others = [] if not isinstance(one, dict) else [*{*one} - {*parts}]
        nameless = "text" in parts and bool(others) and one.get("id") is None is one.get("text")
        if not isinstance(one, dict) or not {*parts} & {*one} or nameless:
            fields = f", of {', '.join(fields_of(one, f'{column}[]'))}" if others else ""
            raise row.error(
                f"each item must be an object with some of {', '.join(parts)}, found {one!r:.60}; name what "
                f"holds ids and texts: --columns passage_ids=NAME,passage_texts=NAME{fields}",
                column,
            )
        struct = {
            name: None if one.get(name) is None else cell(row, one[name], column, kind)
            for name, kind in parts.items()
        }
        if "text" in parts and struct["id"] is None:
            own = struct["text"] or struct["title"]
            struct["id"] = own and text_id(own)
        structs.append(struct)
    return structs


_TYPES = {column.name: column.type for column in COLUMNS}
_PASSAGE = _TYPES["passages"].value_type
_QUESTION, _GOLD = columns_of(Question, COLUMNS), columns_of(Gold, COLUMNS)
_SHARED = ("question_id", *OF_QUESTIONS)
SIGNAL = "signals."
_PASSAGES = {
    "passage_ids": "id",
    "passage_titles": "title",
    "passage_texts": "text",
    "passage_scores": "score",
}
_UNIT = re.compile(r"(?:[ _.-]|(?<=[a-z])(?=[A-Z]))(s|ms|us|ns)$", re.IGNORECASE)
_SECONDS = tuple(name for name in _TYPES if name.endswith("_s"))
_TIMES = {f"{name[:-2]}_{unit}": name for unit in ("ms", "us", "ns") for name in _SECONDS}
ROLES: tuple[str, ...] = (*_TYPES, *_PASSAGES, *_TIMES)
"""What a column may hold: the columns of the schema, lists of passages' parts, seconds in smaller units."""

_FORM = "question_id=NAME,round=NAME,question=NAME,answer=NAME,gold_answers=NAME,..."
_NEEDED = (("question", "question_id"), ("answer", "score"))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The layout of a table, see :func:`suffice.traces.import_`; ``notes`` collects notes."""

    columns: Mapping[str, str] = field(default_factory=dict)
    rounds_from: Literal[0, 1] | None = None
    separator: str = ""
    score_range: Sequence[float] = ()
    duplicates: Literal["refuse", "first", "last"] = "refuse"
    answers_in_every_round: bool = False
    skip_invalid: bool = False
    notes: list[str] = field(default_factory=list)


def read_columns(path: Path, layout: Layout) -> tuple[QuestionRecord, ...]:
    broken: list[DataError] = []
    return read_table(open_table(path, broken), layout, broken)


def read_table(
    table: FileTable, layout: Layout, broken: Sequence[DataError] = ()
) -> tuple[QuestionRecord, ...]:
    """Return the records of rows; ``broken`` are its invalid lines.

    Columns with the schema's names are read too. The column decides how a cell is read. In text cells lists
    are JSON, or parted by the separator. A blank text cell, or a null, is no value.
    """
    held = _columns(table, layout)
    problems = [_Problem("broken lines", None, error) for error in broken]
    lines = _lines(table, held, problems, layout)
    first = _first_round(lines, layout)
    records: dict[str, QuestionRecord] = {}
    wrong = {problem.question for problem in problems}
    repeats: list[_Problem] = []
    for question, rows in lines.items():
        if question in wrong:
            continue
        try:
            kept: dict[int, _Line] | None = dict(enumerate(rows, start=1))
            if "round" in held:
                kept = _by_round(rows, first, layout.duplicates, repeats)
            if kept is None:
                numbers = sorted({line.cells["round"] for line in rows})[:20]
                said = f"question {question!r} lacks a round: it has {', '.join(map(str, numbers))}"
                problems.append(
                    _Problem("questions with gaps", question, rows[-1].error(said, "round"))
                )
            else:
                records[question] = _record(kept, rows)
        except DataError as error:
            problems.append(_Problem("wrong cells", question, error))
    if layout.duplicates == "refuse":
        problems += repeats
    elif repeats:
        layout.notes.append(
            f"left out {counted(len(repeats), 'row')} of repeated rounds; of each the {layout.duplicates} "
            "stands"
        )
    out = {problem.question for problem in problems} - {None}
    left = tuple(record for question, record in records.items() if question not in out)
    if problems and not (layout.skip_invalid and left):
        raise _refusal(problems, skips=bool(left))
    if not left:
        raise DataError("holds no question", file=table.file)
    if problems:
        kinds = Counter(problem.kind for problem in problems)
        layout.notes.append(
            f"left out {len(out):,} of {counted(len(lines), 'question')}: "
            f"{', '.join(f'{count:,} {kind}' for kind, count in kinds.items())}, the first in "
            f"row {problems[0].error.row}: {problems[0].error.message}"
        )
    if "round" not in held and len(lines) < sum(map(len, lines.values())):
        layout.notes.append(
            "the rounds of a question were numbered in the file's order; where a column numbers them: "
            "--columns round=NAME"
        )
    return left


def _first_round(lines: Mapping[str, Sequence[_Line]], layout: Layout) -> int:
    if layout.rounds_from is not None:
        return layout.rounds_from
    zeros = [line for rows in lines.values() for line in rows if line.cells.get("round") == 0]
    begun = len({line.cells["question_id"] for line in zeros})
    reads = ("passages", "query", "retrievals")
    if 2 * begun > len(lines) or any(line.cells.get(name) for line in zeros for name in reads):
        raise zeros[0].error(
            f"a round 0 in {begun:,} of {counted(len(lines), 'question')}; add --rounds-from 0 where the log "
            "counts from 0, or 1 where round 0 is an answer without passages",
            "round",
        )
    return 1


# --- which columns ----------------------------------------------------------------------------------
def _columns(table: FileTable, layout: Layout) -> dict[str, str]:
    command = f"--format columns {table.file}"
    roles = {role: column for role, column in layout.columns.items() if column != "-"}
    for role, column in roles.items():
        if _head(table, column) not in table.names:
            raise no_column(_with_fields(table, table.names), role, column, command)
        if role in _SECONDS and _UNIT.search(column) is None:
            layout.notes.append(
                f"{column} was read as seconds; if it is milliseconds: --columns {role[:-1]}ms={column}"
            )
    free = set(table.names) - set(roles.values())
    named = {*layout.columns, *({"passages"} if {*_PASSAGES} & {*roles} else ())}
    named |= {*_PASSAGES} if "passages" in layout.columns else set()
    named |= {_TIMES.get(role, role) for role in named}
    held = {role: role for role in ROLES if role in free and not {role, _TIMES.get(role)} & named}
    held |= roles
    if missing := [" or ".join(names) for names in _NEEDED if not {*names} & {*held}]:
        raise DataError(
            f"no column is named for {' and '.join(missing)}; it has: "
            f"{', '.join(_with_fields(table, table.names).names)}; say which holds what: --columns {_FORM}",
            file=table.file,
        )
    inner = {role: column for role, column in held.items() if column not in table.names}
    if inner:
        fields = _with_fields(table, [_head(table, column) for column in held.values()])
        for role, column in inner.items():
            inside = column in fields.names or _any_within(column, fields.names)
            if not inside and _any_within(_head(table, column), fields.names):
                raise no_column(fields, role, column, command)  # else null or empty in every row
    heads = {_head(table, column) for column in held.values()}
    if unread := ", ".join(name for name in table.names if name not in heads):
        said = f"not read: {unread:.400}; name what one holds: --columns ROLE=NAME, or signals.OWN=NAME"
        layout.notes.append(f"{said} for a number of your own")
    return held


def _with_fields(table: FileTable, columns: Sequence[str]) -> FileTable:
    fields = (name for row in table.rows(list(columns)) for name in fields_of(row.values))
    return replace(table, names=tuple(dict.fromkeys(fields)))


def _head(table: FileTable, column: str) -> str:
    return column if column in table.names else re.split(r"\[\]|\.", column)[0]


def _any_within(column: str, fields: Sequence[str]) -> bool:
    return any(name.startswith((f"{column}.", f"{column}[]")) for name in fields)


def _lines(
    table: FileTable, held: Mapping[str, str], problems: list[_Problem], layout: Layout
) -> dict[str, list[_Line]]:
    heads = {column: _head(table, column) for column in held.values()}
    lines: dict[str, list[_Line]] = {}
    for whole in table.rows(tuple(dict.fromkeys(heads.values()))):
        question = None
        try:
            values = {name: _at(whole, name, heads[name]) for name in heads}
            row = replace(whole, values=values, separator=layout.separator)
            question = _question_id(row, held)
            lines.setdefault(question, []).append(line := _line(row, held, question))
            if layout.answers_in_every_round:
                line.cells.setdefault("answer_calls", 0)
            if layout.score_range and (score := line.cells.get("score")) is not None:
                line.cells["score"] = scaled(row, score, held["score"], layout.score_range)
        except DataError as error:
            problems.append(_Problem("wrong cells", question, error))
    return lines


def _at(row: Row, column: str, head: str) -> Any:
    value = row.values.get(head)
    if column == head:
        return value
    if row.untyped and isinstance(value, str):
        value = row.json(value, head) if value.strip() else None
    return _within(row, value, re.findall(r"\[\]|[^.\[\]]+", column.removeprefix(head)), column)


def _within(row: Row, value: Any, parts: Sequence[str], column: str) -> Any:
    if value is None or not parts or isinstance(value, DataError):
        return value
    part, *rest = parts
    if not isinstance(value, list) if part == "[]" else not isinstance(value, dict):
        said = "a list" if part == "[]" else f"an object with {part!r}"
        raise row.error(f"needs {said}, found {value!r:.60}", column)
    if part != "[]":
        return _within(row, value.get(part), rest, column)
    items = [_within(row, item, rest, column) for item in value]
    return [one for item in items for one in item or ()] if "[]" in rest else items


# --- a row ------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Line:
    """A row of the file with its cells by column of the schema; ``names``: the file's own columns."""

    row: Row
    cells: dict[str, Any]
    names: Mapping[str, str]

    def error(self, message: str, column: str) -> DataError:
        return self.row.error(message, self.names.get(column, column))


def _question_id(row: Row, held: Mapping[str, str]) -> str:
    role = "question_id" if "question_id" in held else "question"
    value = row.get(held[role])
    text = None if value is None else cell(row, value, held[role], _TYPES[role])
    text = text and (text.strip() if row.untyped or role == "question_id" else text)
    if not text:
        raise row.error("is empty; each question needs one", held[role])
    return str(text) if role == "question_id" else text_id(text)


def _line(row: Row, held: Mapping[str, str], question: str) -> _Line:
    cells: dict[str, Any] = {}
    signals: dict[str, float] = {}
    parts: dict[str, list[Any]] = {}
    for role, column in held.items():
        value = row.get(column)
        if isinstance(value, str) and row.untyped:
            value = value.strip() or None
        if value is None:
            continue
        if role in _PASSAGES:
            listed = row.listed(column)
            listed = listed if isinstance(listed, list) else [listed]
            kind = _PASSAGE.field(_PASSAGES[role]).type
            parts[role] = [None if one is None else cell(row, one, column, kind) for one in listed]
        elif role == "signals":
            signals |= numbers_by_name(row, value, column)
        elif role.startswith(SIGNAL):
            signals[role.removeprefix(SIGNAL)] = number(row, value, column)
        elif (name := _TIMES.get(role, role)) in _SECONDS:
            unit = _UNIT.search(column if name == role else role)
            seconds = cell(row, value, column, _TYPES[name])
            seconds = seconds and seconds / (UNITS[unit[1].lower()] if unit else 1)
            cells.setdefault(name, seconds)
        else:
            cells[role] = cell(row, value, column, _TYPES[role])
    if parts:
        cells["passages"] = _passages(row, parts, held)
    if signals:
        cells["signals"] = list(signals.items())
    at = cells.get("round", None if "round" in held else 1)
    if at is None or not 0 <= at <= MOST_INT16:
        raise row.error(
            f"must be a whole number from 0 or 1 to {MOST_INT16:,}, found {at}", held["round"]
        )
    return _Line(row, cells | {"question_id": question}, held)


def _passages(row: Row, parts: Mapping[str, list[Any]], held: Mapping[str, str]) -> Any:
    counts = {role: len(items) for role, items in parts.items()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count} in {held[role]}" for role, count in counts.items())
        raise row.error(f"each passage needs all its parts, found {told}", held[[*parts][-1]])
    names = [_PASSAGES[role] for role in parts]
    passages = [dict(zip(names, items, strict=True)) for items in zip(*parts.values(), strict=True)]
    known = [passage for passage in passages if any(passage.values())]
    if any(not any(passage.get(name) for name in ("id", "text", "title")) for passage in known):
        raise row.error("a passage needs an id or a text", held["passage_scores"])
    return _items(row, known, held[[*parts][-1]], _PASSAGE)


# --- a question -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Problem:
    kind: Literal["wrong cells", "broken lines", "repeated rounds", "questions with gaps"]
    question: str | None
    error: DataError


def _refusal(problems: Sequence[_Problem], *, skips: bool) -> DataError:
    """Return the first error with the options that help; ``skips``: something can be left out."""
    kinds = {problem.kind for problem in problems}
    ways = []
    if "repeated rounds" in kinds:
        ways.append("--duplicates last (or first) to keep one of each")
    if skips and kinds - {"repeated rounds"}:
        ways.append("--skip-invalid to leave out incomplete or invalid lines and questions")
    error = problems[0].error
    if error.column in {*ROLES} - {"question_id", "round"} and "wrong cells" in kinds:
        ways.append(f"--columns {error.column}=- to leave the column out")
    more = f" ({len(problems) - 1:,} more are wrong)" if len(problems) > 1 else ""
    said = f"{error.message}{more}{'; add ' if ways else ''}{'; '.join(ways)}"
    return DataError(said, file=error.file, row=error.row, column=error.column)


def _by_round(
    rows: Sequence[_Line], first: int, duplicates: str, repeats: list[_Problem]
) -> dict[int, _Line] | None:
    kept: dict[int, _Line] = {}
    for line in rows:
        number = line.cells["round"] + 1 - first
        if (before := kept.get(number)) is not None:
            question = line.cells["question_id"]
            said = f"question {question!r} has this round already, in row {before.row.number}"
            repeats.append(_Problem("repeated rounds", question, line.error(said, "round")))
        if before is None or duplicates == "last":
            kept[number] = line
    return kept if {*kept} - {0} == {*range(1, max(*kept, 1) + 1)} else None


def _record(rows: dict[int, _Line], lines: Sequence[_Line]) -> QuestionRecord:
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
        for line in lines if len(lines) > 1 else ():
            _record({1: line}, [line])  # the wrong one says its row
        at = next(
            (line for line in lines if line.cells.get(error.column or "") is not None), lines[0]
        )
        raise at.error(
            f"question {shared['question_id']!r}: {error.message}", error.column or "question_id"
        ) from error


def _agreed(lines: Sequence[_Line]) -> dict[str, Any]:
    shared: dict[str, Any] = {}
    for line in lines:
        for name in _SHARED:
            if (value := line.cells.get(name)) is None or meant(name, value) is None:
                continue
            if meant(name, shared.setdefault(name, value)) != meant(name, value):
                raise line.error(
                    f"question {line.cells['question_id']!r} has {shared[name]!r:.60} in an earlier row and "
                    f"{value!r:.60} here; it is the same in all rows of a question",
                    name,
                )
    return shared

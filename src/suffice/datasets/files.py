"""Readers of JSON, JSON lines, CSV and Parquet files, plain or gzip, with checked access to fields."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import math
import re
import uuid
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from suffice.contracts import strict_json
from suffice.errors import (
    MOST_BYTES,
    DataError,
    SufficeWarning,
    UsageError,
    at_most,
    counted,
    did_you_mean,
    most_unpacked,
    plain_file,
)
from suffice.trace.rounds.records import Gold, Passage, Question
from suffice.trace.store import free_id
from suffice.trace.values import MOST_INT32

T = TypeVar("T")
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # how many are a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A question, its gold record, and its own passages (in file order; may be none)."""

    question: Question
    gold: Gold
    passages: tuple[Passage, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A question of a file, or an object in it; ``untyped``: all text; ``separator`` parts cells of texts."""

    file: str
    number: int
    values: Mapping[str, Any]
    untyped: bool = False
    place: str = ""
    separator: str = ""

    def error(self, message: str, column: str | None = None) -> DataError:
        named = ".".join(part for part in (self.place, column) if part)
        return DataError(message, file=self.file, row=self.number, column=named or None)

    def get(self, column: str) -> Any:
        """Return a value, or nothing; raise the error of a cell that cannot be read."""
        if isinstance(value := self.values.get(column), DataError):
            raise self.error(value.message, column)
        return value

    def inside(self, column: str, value: Any) -> Row:
        """Return an object inside it; absent: an empty one."""
        if not isinstance(value, dict | None):
            raise self.error(f"must be an object, found {value!r:.60}", column)
        place = f"{self.place}.{column}" if self.place else column
        return Row(self.file, self.number, value or {}, place=place)

    def objects(self, column: str) -> list[dict[str, Any]]:
        """Return a list of objects; absent or null: none."""
        values = self.rows(column, default=[])
        if not all(isinstance(value, dict) for value in values):
            raise self.error(f"must be a list of objects, found {values!r:.60}", column)
        return values

    def amount(self, *columns: str) -> int | None:
        """Return the whole number from 0 in the first of the columns that holds any, or nothing."""
        column = next((name for name in columns if self.values.get(name) is not None), None)
        if column is None:
            return None
        value = self.values[column]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and 0 <= value <= MOST_INT32 and value == int(value)):
            raise self.error(f"must be a whole number from 0, found {value!r:.40}", column)
        return int(value)

    def moment(self, column: str) -> datetime | None:
        """Return a time, or nothing; a time without a zone counts as UTC."""
        stated = self.values.get(column)
        if stated is None:
            return None
        try:
            moment = stated if isinstance(stated, datetime) else datetime.fromisoformat(stated)
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        except (OverflowError, TypeError, ValueError) as error:
            raise self.error(
                f"must be a time as 2026-01-31T12:00:00Z, found {stated!r:.40}", column
            ) from error

    def text(self, column: str, *, default: str | None = None) -> str:
        """Return a string field; absent or null: ``default``, an error without one."""
        return self._of(str, column, default)

    def rows(self, column: str, *, default: list[Any] | None = None) -> list[Any]:
        """Return a list field; absent or null: ``default``, an error without one."""
        return self._of(list, column, default)

    def _of(self, kind: type[T], column: str, default: T | None) -> T:
        value = default if (value := self.get(column)) is None else value
        if not isinstance(value, kind):
            named = "a list" if kind is list else "a string"
            raise self.error(f"must be {named}, found {_shown(value)}", column)
        return value

    def required(self, column: str) -> str:
        value = self.text(column)
        if not value.strip():
            raise self.error("is empty", column)
        return value

    def listed(self, column: str | None) -> Any:
        """Return a value; in text cells, a value that begins as a list is read as JSON, others are parted."""
        value = None if column is None else self.get(column)
        if self.separator and isinstance(value, str) and not value.strip().startswith("["):
            return [part.strip() for part in value.split(self.separator) if part.strip()]
        if not (self.untyped and isinstance(value, str) and value.strip().startswith("[")):
            return value
        return self.json(
            value,
            column,
            'begins as a list but is not JSON; write several as ["a", "b"], and one that begins so as a '
            "list of one",
        )

    def json(self, text: str, column: str | None, wrong: str = "is not JSON") -> Any:
        """Parse the JSON in a cell; ``wrong`` begins the error."""
        try:
            return strict_json(text)
        except (ValueError, RecursionError) as error:
            raise self.error(f"{wrong} ({error}), found {text!r:.60}", column) from error

    def texts(self, value: Any, column: str | None) -> list[str]:
        """Return the texts of a cell: a text, a number, true or false, or a list of them."""
        texts = []
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, str | int | float | None):
                said = f"must be a text, number, true, false or a list of them, found {item!r:.60}"
                raise self.error(said, column)
            if isinstance(item, str):
                texts.append(item)
            elif item is not None and not math.isnan(item):  # as a table writes a missing number
                texts.append(str(item).lower().removesuffix(".0"))
        return texts


def _shown(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {value!r:.60}"


def _unreadable(path: Path, error: Exception) -> DataError:
    missing = isinstance(error, FileNotFoundError)
    said = "does not exist" if missing else f"cannot be read ({error}); mend or replace it"
    return DataError(said, file=str(path))


def content_of(path: Path, head: int = 0) -> str:
    """Return a file's text, unpacked; or what can be read as text of its first ``head`` bytes."""
    try:
        with plain_file(path).open("rb") as stream:
            packed = stream.peek(2)[:2] == b"\x1f\x8b"
            most = most_unpacked(path.stat().st_size) if packed else MOST_BYTES
            opened = gzip.GzipFile(fileobj=stream) if packed else stream
            data = opened.read(head) if head else at_most(opened, path, most)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error
    marked = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        return data.decode("utf-16" if marked else "utf-8-sig", "ignore" if head else "strict")
    except UnicodeDecodeError as error:
        of = "UTF-16" if marked or b"\0" in data[:64] else "LATIN1"
        said = f"not UTF-8 text ({error}); write it anew: iconv -f {of} -t UTF-8 {path} > NEW"
        if data.startswith(b"PAR1"):
            said = "is Parquet; its name must end in .parquet"
        raise DataError(said, file=str(path)) from error


def _row(value: Any, path: Path, number: int, lists: str = "") -> Row:
    if lists and isinstance(value, list):
        value = {lists: value}
    if not isinstance(value, dict):
        said = f"must be an object (a list of them ends in .json), found {_shown(value)}"
        raise DataError(said, file=str(path), row=number)
    return Row(str(path), number, value)


def objects_in_lists(values: Iterable[Any], lists: str) -> list[dict[str, Any]]:
    """Return the objects among values and among the items of one list; other lists become objects."""
    whole = list(values)
    if len(whole) == 1 and isinstance(whole[0], list):
        whole = whole[0]
    named = ({lists: value} if isinstance(value, list) else value for value in whole)
    return [value for value in named if isinstance(value, dict)]


def json_lines(
    path: Path, broken: list[DataError] | None = None, *, lists: str = ""
) -> Iterator[Row]:
    """Yield the rows of a file with one object per line; skip blank lines, collect ``broken`` ones.

    A list counts as an object that holds it under the name ``lists``, if there is one.
    """
    found = re.finditer("[^\r\n]+", content_of(path))  # a large file's lines are not held twice
    lines = (line for one in found if (line := one.group()).strip())
    for number, line in enumerate(lines):
        try:
            row = Row(str(path), number, {})
            wrong = "not JSON on one line; a whole list ends in .json"
            yield _row(row.json(line, None, wrong), path, number, lists)
        except DataError as error:
            if broken is None:
                raise
            broken.append(error)


def json_documents(
    path: Path, broken: list[DataError] | None = None, *, lists: str = ""
) -> Iterator[Row]:
    """Return the rows of a file that holds one object, a list of them, or one per line."""
    try:
        whole = strict_json(content_of(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            yield from json_lines(path, broken, lists=lists)  # a second line begins there
            return
        raise DataError(f"not JSON ({error})", file=str(path)) from error
    for number, value in enumerate(whole if isinstance(whole, list) else [whole]):
        yield _row(value, path, number, lists)


# --- tables -----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class FileTable:
    """A file of rows with named columns; ``rows`` reads some of them."""

    file: str
    names: tuple[str, ...]
    rows: Callable[[Collection[str]], Iterator[Row]]

    @classmethod
    def of(cls, path: Path, rows: Iterable[Row]) -> FileTable:
        held = list(rows)
        names = tuple(dict.fromkeys(name for row in held for name in row.values))
        return cls(str(path), names, lambda _: iter(held))


def plain_suffix(path: Path) -> str:
    """Return a file's ending in lower case, the one before ``.gz``.

    >>> plain_suffix(Path("questions.CSV.gz"))
    '.csv'
    """
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == ".gz" else suffix


def open_table(path: Path, broken: list[DataError] | None = None) -> FileTable:
    """Open the rows and columns of a file by its ending; ``broken`` collects invalid lines of JSON."""
    opener = _OPENERS.get(plain_suffix(path))
    if opener is None:
        raise DataError(
            f"is not a table; its name must end in {', '.join(TABLE_SUFFIXES)}", file=str(path)
        )
    return opener(path, broken)


def _objects(path: Path, broken: list[DataError] | None) -> FileTable:
    read = json_documents if plain_suffix(path) == ".json" else json_lines
    table = FileTable.of(path, read(path, broken))
    if not table.names:
        if broken:
            raise broken[0]
        raise DataError("holds no question", file=str(path))
    return table


def _separated(path: Path, _broken: list[DataError] | None) -> FileTable:
    """Read separated values; every cell is text, so ``007`` stays an id."""
    text = content_of(path)
    if stated := re.match(r'"?sep=([^\r\n"])"?\1*[\r\n]+', text, re.IGNORECASE):  # Excel's own line
        text = text[stated.end() :]
    header = re.split("[\r\n]", text, maxsplit=1)[0]
    usual = "\t" if plain_suffix(path) == ".tsv" else ","
    # spreadsheets of many countries write semicolons
    between = stated[1] if stated else max((usual, *",;\t|"), key=header.count)
    csv.field_size_limit(MOST_BYTES)
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=between, strict=True))
    except csv.Error as error:
        raise DataError(f"not CSV ({error})", file=str(path)) from error
    header, *cells = [line for line in lines if line] or [[]]
    names = [name.strip() for name in header]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if not names or repeated:
        found = f"found {repeated[0]!r} twice" if repeated else "found nothing"
        raise DataError(f"its first line must name each column once; {found}", file=str(path))

    def rows(_: Collection[str]) -> Iterator[Row]:
        for number, line in enumerate(cells):
            if len(line) != len(names):
                raise DataError(
                    f"{counted(len(line), 'cell')} under {counted(len(names), 'column')} "
                    f"({', '.join(names)}); put quotes around text that holds a {between!r}",
                    file=str(path),
                    row=number,
                )
            yield Row(str(path), number, dict(zip(names, line, strict=True)), untyped=True)

    return FileTable(str(path), tuple(names), rows)


def _parquet(path: Path, _broken: list[DataError] | None) -> FileTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(
            plain_file(path),
            page_checksum_verification=True,
            coerce_int96_timestamp_unit="us",  # in ns the year 1 would become another
        )
        names = tuple(file.schema_arrow.names)
    except (OSError, UnicodeError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    if doubled := [name for name, times in Counter(names).items() if times > 1]:
        raise DataError("stands twice; name each column once", file=str(path), column=doubled[0])

    def rows(columns: Collection[str]) -> Iterator[Row]:
        numbers = count()
        try:
            for batch in file.iter_batches(1024, columns=list(columns)):
                for cells in zip(*map(_cells, batch.columns), strict=True):
                    values = dict(zip(batch.schema.names, cells, strict=True))
                    yield Row(str(path), next(numbers), values)
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(path, error) from error

    return FileTable(str(path), names, rows)


_PLAIN = re.compile(r"u?int\d+|float|double|bool|(?:large_)?string")


def _cells(column: Any) -> Iterable[Any]:
    """Return the values of a column; in place of one that cannot be read stands its error."""
    if _PLAIN.fullmatch(str(column.type)):
        with suppress(ValueError):  # the cell is found below
            return column.to_pylist()  # type: ignore[no-any-return]
    return _checked(column)


def _checked(column: Any) -> Iterator[Any]:
    for scalar in column:
        try:
            yield _value(scalar)
        except (OverflowError, ValueError) as error:
            allowed = "a year from 1 to 9999" if isinstance(error, OverflowError) else "UTF-8 text"
            yield DataError(f"must be {allowed}, found {scalar.type} ({error})")


def _value(scalar: Any) -> Any:
    """Return an Arrow value as one of JSON or a time to the microsecond; a part of a whole as text."""
    import pyarrow as pa

    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.DictionaryScalar):
        return _value(scalar.value)
    if isinstance(scalar, pa.StructScalar):
        fields = {name: _value(inner) for name, inner in scalar.items()}
        if len(fields) < len(scalar):
            raise ValueError("name each of its fields once")
        return fields
    if isinstance(scalar, pa.ListScalar):
        items = [_value(item) for item in scalar.values]
        return [(*pair.values(),) for pair in items] if isinstance(scalar, pa.MapScalar) else items
    if unit := UNITS.get(getattr(scalar.type, "unit", "")):
        since = timedelta(microseconds=scalar.value * 10**6 // unit)
        if isinstance(scalar, pa.TimestampScalar):
            return datetime(1970, 1, 1, tzinfo=UTC if scalar.type.tz else None) + since
        return re.sub(r"^(?=\d:)", "0", str(since))
    value = scalar.as_py()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else f"{value:f}".rstrip("0")
    if isinstance(value, bytes):  # as old writers keep texts
        if b"\0" in value:
            raise ValueError("it holds bytes")
        return value.decode()
    return str(value) if isinstance(value, date | uuid.UUID) else value


_OPENERS: Mapping[str, Callable[[Path, list[DataError] | None], FileTable]] = {
    ".jsonl": _objects,
    ".ndjson": _objects,
    ".json": _objects,
    ".csv": _separated,
    ".tsv": _separated,
    ".parquet": _parquet,
}
TABLE_SUFFIXES: tuple[str, ...] = tuple(_OPENERS)
"""Endings of the files that :func:`open_table` reads; but ``.parquet`` also with ``.gz`` behind."""


# --- column maps ------------------------------------------------------------------------------------
def parse_column_map(
    text: str, allowed: Sequence[str], *, free: str | None = None
) -> dict[str, str]:
    """Parse columns by role; roles that begin with ``free`` may have any name.

    >>> parse_column_map("question=q, signals.gap=hits[].gap", ["question"], free="signals.")
    {'question': 'q', 'signals.gap': 'hits[].gap'}
    """
    named: dict[str, str] = {}
    for part in text.split(","):
        role, _, column = (piece.strip() for piece in part.partition("="))
        if not column or role in named:
            wrong = "is named twice" if column else "names no column"
            raise UsageError(f"{role} {wrong} in {text!r}; type ROLE=NAME,...")
        named[role] = column
    check_roles(named, allowed, free=free)
    return named


def check_roles(roles: Iterable[str], allowed: Sequence[str], *, free: str | None = None) -> None:
    for role in roles:
        if role not in allowed and not (free and role.startswith(free) and role != free):
            known = ", ".join(allowed) + (f", {free}NAME" if free else "")
            raise UsageError(
                f"no column can be {role!r}; known: {known}; type ROLE=NAME,..."
                f"{did_you_mean(role, allowed)}"
            )


def no_column(table: FileTable, role: str, wanted: str, command: str) -> DataError:
    """Return the error for a missing column; ``command`` says what to type before the map."""
    listed = ", ".join(repr(name) for name in table.names) or "none"
    return DataError(
        f"has no column {wanted!r} for the {role}; it has: {listed}; name the right one: "
        f"{command} --columns {role}=NAME{did_you_mean(wanted, table.names)}",
        file=table.file,
    )


def text_id(text: str) -> str:
    """Return an id for a text: the start of its SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


# --- examples ---------------------------------------------------------------------------------------
def unique_ids(names: Iterable[str]) -> list[str]:
    """Return the names with ``#2``, ``#3``, ... at repeats.

    >>> unique_ids(["Ardel", "Caldra", "Ardel"])
    ['Ardel', 'Caldra', 'Ardel#2']
    """
    taken: dict[str, None] = {}
    for name in names:
        taken[free_id(name, taken.__contains__)] = None
    return [*taken]


def drop_empty(answers: Iterable[str], row: Row) -> tuple[str, ...]:
    """Return gold answers without repeats and blanks; a blank one gives a warning."""
    all_answers = list(answers)
    kept = tuple(dict.fromkeys(answer for answer in all_answers if answer.strip()))
    if any(not answer.strip() for answer in all_answers):
        warnings.warn(
            f"{row.file}, row {row.number}: an empty gold answer was dropped, {len(kept)} left",
            SufficeWarning,
            stacklevel=2,
        )
    return kept


def read_rows(
    rows: Iterable[Row],
    build: Callable[[Row], Example | None],
    path: Path,
    limit: int | None,
    *,
    id_column: str = "id",
) -> tuple[Example, ...]:
    """Build examples up to ``limit``; ``build`` returns ``None`` to skip a row."""
    examples: list[Example] = []
    seen: dict[str, int] = {}
    passed_over = 0
    for row in rows:
        if limit is not None and len(examples) >= limit:
            break
        example = build(row)
        if example is None:
            passed_over += 1
            continue
        own = example.question.id
        if own in seen:
            raise row.error(
                f"the question id {own!r} was already used in row {seen[own]}; every question needs its own",
                id_column,
            )
        seen[own] = row.number
        examples.append(example)
    if passed_over:
        warnings.warn(
            f"{path}: {passed_over} unanswerable questions were left out, {len(examples)} kept",
            SufficeWarning,
            stacklevel=3,
        )
    if not examples:
        raise DataError("holds no question", file=str(path))
    return tuple(examples)

"""Reading data files: plain or gzip, JSON or JSON lines, and checked access to fields."""

from __future__ import annotations

import gzip
import json
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.datasets.example import Example
from suffice.errors import DataError, SufficeWarning


@dataclass(frozen=True, slots=True)
class Row:
    """One question of a file, with where it stands."""

    file: str
    number: int
    values: Mapping[str, Any]

    def error(self, message: str, column: str | None = None) -> DataError:
        """An error that names file, row and column."""
        return DataError(message, file=self.file, row=self.number, column=column)

    def text(self, column: str, *, default: str | None = None) -> str:
        """A string field; absent or null: ``default``, an error without one."""
        value = self.values.get(column)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.error(f"must be a string, found {_shown(value)}", column)
        return value

    def rows(self, column: str, *, default: list[Any] | None = None) -> list[Any]:
        """A list field; absent or null: ``default``, an error without one."""
        value = self.values.get(column)
        if value is None and default is not None:
            return default
        if not isinstance(value, list):
            raise self.error(f"must be a list, found {_shown(value)}", column)
        return value

    def required(self, column: str) -> str:
        """A string field that is not blank."""
        value = self.text(column)
        if not value.strip():
            raise self.error("is empty", column)
        return value


def _shown(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {value!r:.60}"


def _content(path: Path) -> str:
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except FileNotFoundError as error:
        raise DataError("does not exist", file=str(path)) from error
    except IsADirectoryError as error:
        raise DataError("is a folder; give the data file", file=str(path)) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"a damaged or truncated gzip file ({error})", file=str(path)) from error
    except OSError as error:
        raise DataError(f"cannot be read ({error})", file=str(path)) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 text ({error})", file=str(path)) from error


def _parse(text: str, path: Path, row: int | None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON ({error})", file=str(path), row=row) from error


def _row(value: Any, path: Path, number: int) -> Row:
    if not isinstance(value, dict):
        raise DataError(f"must be an object, found {_shown(value)}", file=str(path), row=number)
    return Row(str(path), number, value)


def json_rows(path: Path) -> Iterator[Row]:
    """Rows of a JSON file that holds one list of objects."""
    text = _content(path)
    if not text.strip():
        raise DataError("the file is empty", file=str(path))
    values = _parse(text, path, None)
    if not isinstance(values, list):
        raise DataError(f"must hold one list of questions, found {_shown(values)}", file=str(path))
    for number, value in enumerate(values):
        yield _row(value, path, number)


def json_lines(path: Path) -> Iterator[Row]:
    """Rows of a file with one object a line; blank lines are passed over."""
    lines = _content(path).split("\n")
    number = 0
    for line in lines:
        if line.strip():
            yield _row(_parse(line, path, number), path, number)
            number += 1


def unique_ids(names: Iterable[str]) -> list[str]:
    """The names with ``#2``, ``#3``, ... at repeats.

    >>> unique_ids(["Ardel", "Caldra", "Ardel"])
    ['Ardel', 'Caldra', 'Ardel#2']
    """
    taken: set[str] = set()
    ids = []
    for name in names:
        own, count = name, 1
        while own in taken:
            count += 1
            own = f"{name}#{count}"
        taken.add(own)
        ids.append(own)
    return ids


def drop_empty(answers: Iterable[str], row: Row) -> tuple[str, ...]:
    """Gold answers without repeats and blanks; a blank one is dropped with a warning."""
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
    rows: Iterable[Row], build: Callable[[Row], Example | None], path: Path, limit: int | None
) -> tuple[Example, ...]:
    """Build examples until ``limit``; ``build`` returns ``None`` for a row to pass over.

    Raises
    ------
    DataError
        When an id occurs twice or nothing is left.
    """
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
            raise row.error(f"the question id {own!r} was already used in row {seen[own]}", "id")
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

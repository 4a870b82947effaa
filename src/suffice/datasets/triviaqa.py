"""TriviaQA without its evidence: the authors' JSON, or rows as the Hub has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from suffice.datasets.example import Example
from suffice.datasets.files import Row, drop_empty, json_rows, open_table, plain_suffix, read_rows
from suffice.trace.rounds.records import Gold, Question

_PARTS = ("question", "questionid", "answer")
_ANSWERS = ("value", "aliases", "humananswers")


def _folded(name: str) -> str:
    """``QuestionId`` of the authors' files and ``question_id`` of the Hub's are one name."""
    return name.lower().replace("_", "")


def _rows(path: Path) -> Iterator[Row]:
    if plain_suffix(path) == ".json":
        return json_rows(path, under="Data")
    table = open_table(path)
    return table.rows([name for name in table.names if _folded(name) in _PARTS])


def _build(row: Row) -> Example:
    row = Row(row.file, row.number, {_folded(name): value for name, value in row.values.items()})
    return Example(
        question=Question(id=row.required("questionid"), text=row.required("question")),
        gold=Gold(answers=drop_empty(_answers(row, row.values.get("answer")), row)),
        passages=(),
    )


def _answers(row: Row, answer: Any) -> list[str]:
    """Value, aliases and human answers; none in the test files."""
    if not isinstance(answer, dict):
        return row.texts(answer, "answer")
    parts = {_folded(name): value for name, value in answer.items()}
    return [text for name in _ANSWERS for text in row.texts(parts.get(name), f"answer.{name}")]


def read_triviaqa(path: str | Path, *, limit: int | None = None) -> tuple[Example, ...]:
    """Questions of a TriviaQA file, in file order; the first ``limit``. They bring no passages.

    The file is the authors' ``.json`` (``{"Data": [...]}``: ``unfiltered-web-dev.json``,
    ``wikipedia-train.json``, ...) or the Hub's ``.parquet`` or ``.jsonl`` (``unfiltered.nocontext``, ...).
    Gold answers are the value, its aliases and the human answers, where there are any; the test files
    have none.

    Raises
    ------
    DataError
        When the file is not what it must be, naming file, row and column.
    """
    path = Path(path)
    return read_rows(_rows(path), _build, path, limit)

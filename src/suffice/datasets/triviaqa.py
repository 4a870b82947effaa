"""TriviaQA with the evidence that comes with it: the authors' JSON, or rows as the Hub has them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from suffice.datasets.example import Example
from suffice.datasets.files import (
    Row,
    drop_empty,
    json_rows,
    open_table,
    plain_suffix,
    read_rows,
    unique_ids,
)
from suffice.scoring import normalize_answer
from suffice.trace.rounds.records import Gold, Passage, Question

_EVIDENCE = {"entitypages": "wikipedia", "searchresults": "web"}  # and the authors' folder of each
_PARTS = ("question", "questionid", "answer", *_EVIDENCE)
_ANSWERS = ("value", "aliases", "humananswers")
_WORDS = 100  # a passage


def _folded(values: dict[str, Any]) -> dict[str, Any]:
    """``QuestionId`` of the authors' files and ``question_id`` of the Hub's are one name."""
    return {name.lower().replace("_", ""): value for name, value in values.items()}


def _rows(path: Path) -> Iterator[Row]:
    if plain_suffix(path) == ".json":
        return json_rows(path, under="Data")
    table = open_table(path)
    return table.rows([name for name in table.names if set(_folded({name: 0})) & set(_PARTS)])


def _build(row: Row) -> Example:
    row = Row(row.file, row.number, _folded(dict(row.values)))
    answers = drop_empty(_answers(row, row.values.get("answer")), row)
    passages = tuple(_passages(row))
    wanted = [f" {form} " for answer in answers if (form := normalize_answer(answer))]
    gold = [
        passage.id
        for passage in passages
        if any(form in f" {normalize_answer(passage.text or '')} " for form in wanted)
    ]
    return Example(
        question=Question(id=row.required("questionid"), text=row.required("question")),
        gold=Gold(answers=answers, passage_ids=tuple(gold)),
        passages=passages,
    )


def _answers(row: Row, answer: Any) -> list[str]:
    """Value, aliases and human answers; none in the test files."""
    if not isinstance(answer, dict):
        return row.texts(answer, "answer")
    parts = _folded(answer)
    return [text for name in _ANSWERS for text in row.texts(parts.get(name), f"answer.{name}")]


def _passages(row: Row) -> Iterator[Passage]:
    pieces = [
        (title, " ".join(words[start : start + _WORDS]))
        for title, words in _documents(row)
        for start in range(0, len(words), _WORDS)
    ]
    ids = unique_ids(title for title, _ in pieces)
    for own, (title, text) in zip(ids, pieces, strict=True):
        yield Passage(id=own, title=title, text=text)


def _documents(row: Row) -> Iterator[tuple[str, list[str]]]:
    """Title and words of each; the Hub has a list of every property, the authors an object of each."""
    for name, kind in _EVIDENCE.items():
        found = row.values.get(name) or []
        if isinstance(found, dict):
            lists = {key: value for key, value in found.items() if isinstance(value, list)}
            found = [
                dict(zip(lists, values, strict=True)) for values in zip_longest(*lists.values())
            ]
        for one in found if isinstance(found, list) else [found]:
            if not isinstance(one, dict):
                raise row.error(f"must hold an object a document, found {one!r:.60}", name)
            told = _folded(one)
            texts = {
                key: " ".join(row.texts(told.get(key), f"{name}.{key}"))
                for key in ("title", "filename", "wikicontext", "searchcontext", "description")
            }
            text = texts["wikicontext"] or texts["searchcontext"]
            text = text or _file_text(row, kind, texts["filename"]) or texts["description"]
            yield texts["title"] or "untitled", text.split()


def _file_text(row: Row, kind: str, name: str) -> str:
    """The document, where the authors' folder ``evidence`` stands beside the file or its folder."""
    here = Path(row.file).resolve().parent
    for place in (folder / "evidence" / kind for folder in (here, here.parent)):
        file = (place / name).resolve()
        if name and file.is_relative_to(place) and file.is_file():
            return file.read_text(encoding="utf-8", errors="replace")
    return ""


def read_triviaqa(path: str | Path, *, limit: int | None = None) -> tuple[Example, ...]:
    """Questions of a TriviaQA file, in file order; the first ``limit``.

    The file is the authors' ``.json`` (``{"Data": [...]}``: ``unfiltered-web-dev.json``,
    ``wikipedia-train.json``, ...) or the Hub's ``.parquet`` or ``.jsonl`` (``rc``, ``unfiltered``, ...).
    Gold answers are the value, its aliases and the human answers, where there are any; the test files
    have none.

    Passages are 100 words each of the documents found for the question: as the rows hold them, as the
    authors' folder ``evidence`` has them beside the file, or else a search result's description. No one
    has judged them: gold are those that hold a gold answer word for word.
    """
    path = Path(path)
    return read_rows(_rows(path), _build, path, limit)

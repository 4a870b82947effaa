"""MuSiQue in its official JSON lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from suffice.datasets.example import Example
from suffice.datasets.files import Row, drop_empty, json_lines, read_rows
from suffice.trace.rounds.records import Gold, Passage, Question

_HOPS = re.compile(r"(\d)hop")


def _paragraph(row: Row, value: Any) -> tuple[Passage, bool]:
    match value:
        case {"idx": int() as number, "title": str() as title, "paragraph_text": str() as text}:
            supporting = value.get("is_supporting", False)
            if isinstance(supporting, bool):
                return Passage(id=f"{number}:{title}", title=title, text=text), supporting
    raise row.error(
        "a paragraph must hold idx (integer), title, paragraph_text (strings) and is_supporting "
        f"(true or false), found {value!r:.80}",
        "paragraphs",
    )


def _question_type(row: Row, question_id: str) -> str | None:
    hops = len(row.rows("question_decomposition", default=[]))
    if hops:
        return f"{hops}hop"
    named = _HOPS.match(question_id)
    return f"{named[1]}hop" if named else None


def _build(row: Row) -> Example | None:
    if row.values.get("answerable") is False:
        return None
    paragraphs = [_paragraph(row, value) for value in row.rows("paragraphs", default=[])]
    ids = [passage.id for passage, _ in paragraphs]
    if len(set(ids)) < len(ids):
        raise row.error("two paragraphs share an idx and a title", "paragraphs")
    answers = [row.text("answer"), *row.rows("answer_aliases", default=[])]
    answers = answers if "answer" in row.values else []
    for answer in answers:
        if not isinstance(answer, str):
            raise row.error(f"must hold strings, found {answer!r:.60}", "answer_aliases")
    own = row.required("id")
    return Example(
        question=Question(id=own, text=row.required("question"), type=_question_type(row, own)),
        gold=Gold(
            answers=drop_empty(answers, row),
            passage_ids=tuple(passage.id for passage, supporting in paragraphs if supporting),
        ),
        passages=tuple(passage for passage, _ in paragraphs),
    )


def read_musique(path: str | Path, *, limit: int | None = None) -> tuple[Example, ...]:
    """Questions of a MuSiQue file, plain or ``.gz``, in file order; the first ``limit``.

    A passage's id is ``idx:title``, since titles repeat. The type is the number of hops, e.g. ``2hop``.
    Unanswerable questions are left out and counted in a warning.
    """
    path = Path(path)
    return read_rows(json_lines(path), _build, path, limit)

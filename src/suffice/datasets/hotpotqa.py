"""HotpotQA in its official JSON (distractor setting), and 2WikiMultiHopQA, which shares the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suffice.datasets.example import Example
from suffice.datasets.files import Row, drop_empty, json_rows, read_rows, unique_ids
from suffice.trace.rounds.records import Gold, Passage, Question


def _paragraph(row: Row, value: Any) -> tuple[str, str]:
    match value:
        case [str() as title, list() as sentences] if all(isinstance(s, str) for s in sentences):
            return title, " ".join(sentence.strip() for sentence in sentences).strip()
    raise row.error(f"a paragraph must be [title, [sentence, ...]], found {value!r:.80}", "context")


def _supporting_title(row: Row, value: Any) -> str:
    match value:
        case [str() as title, *_]:
            return title
    raise row.error(f"must hold [title, sentence], found {value!r:.80}", "supporting_facts")


def _build(row: Row) -> Example:
    """One question. A passage's id is its title, ``title#2`` for the second of that title."""
    paragraphs = [_paragraph(row, value) for value in row.rows("context", default=[])]
    titles = [title for title, _ in paragraphs]
    ids = unique_ids(titles)
    facts = row.rows("supporting_facts", default=[])
    supporting = list(dict.fromkeys(_supporting_title(row, fact) for fact in facts))
    gold = [
        own
        for wanted in supporting
        for own, title in zip(ids, titles, strict=True)
        if title == wanted
    ]
    answer = row.text("answer", default="")
    answers = [answer, *_aliases(row)] if "answer" in row.values else []
    return Example(
        question=Question(
            id=row.required("_id"),
            text=row.required("question"),
            type=row.text("type", default="") or None,
        ),
        gold=Gold(answers=drop_empty(answers, row), passage_ids=tuple(gold)),
        passages=tuple(
            Passage(id=own, title=title, text=text)
            for own, (title, text) in zip(ids, paragraphs, strict=True)
        ),
    )


def _aliases(row: Row) -> list[str]:
    aliases = row.rows("answer_aliases", default=[])
    for alias in aliases:
        if not isinstance(alias, str):
            raise row.error(f"must hold strings, found {alias!r:.60}", "answer_aliases")
    return aliases


def read_hotpotqa(path: str | Path, *, limit: int | None = None) -> tuple[Example, ...]:
    """Questions of a HotpotQA or 2WikiMultiHopQA file, plain or ``.gz``, in file order; the first ``limit``.

    Question types are ``bridge`` and ``comparison``, of the second ``compositional``, ``inference`` and
    ``bridge_comparison`` as well. A question without paragraphs is read.
    """
    path = Path(path)
    return read_rows(json_rows(path), _build, path, limit)

"""Public data sets: HotpotQA and 2WikiMultiHopQA, MuSiQue, and TriviaQA with its evidence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from suffice.datasets.example import Example
from suffice.datasets.files import (
    Row,
    drop_empty,
    json_lines,
    json_rows,
    open_table,
    plain_suffix,
    read_rows,
    unique_ids,
)
from suffice.scoring import normalize_answer
from suffice.trace.rounds.records import Gold, Passage, Question

_HOPS = re.compile(r"(\d)hop")
_EVIDENCE = {"entitypages": "wikipedia", "searchresults": "web"}  # and the authors' folder of each
_WORDS = 100  # a passage


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where a data set's files hold what; ``passages`` gives them and the ids of the gold ones."""

    rows: Callable[[Path], Iterator[Row]]
    id: str
    answers: Callable[[Row], list[str]]
    passages: Callable[[Row, Sequence[str]], tuple[list[Passage], list[str]]]
    type: Callable[[Row], str | None] = lambda _: None

    def read(self, path: str | Path, *, limit: int | None = None) -> tuple[Example, ...]:
        """Questions of a file, plain or ``.gz``, in file order; the first ``limit``.

        Unanswerable questions are left out and counted in a warning.
        """
        path = Path(path)
        return read_rows(self.rows(path), self._build, path, limit)

    def _build(self, row: Row) -> Example | None:
        if row.values.get("answerable") is False:
            return None
        answers = drop_empty(self.answers(row), row)
        passages, gold = self.passages(row, answers)
        return Example(
            question=Question(
                id=row.required(self.id), text=row.required("question"), type=self.type(row)
            ),
            gold=Gold(answers=answers, passage_ids=tuple(gold)),
            passages=tuple(passages),
        )


def _answer_and_aliases(row: Row) -> list[str]:
    answer = row.text("answer", default="")
    aliases = row.texts(row.rows("answer_aliases", default=[]), "answer_aliases")
    return [answer, *aliases] if "answer" in row.values else []


# --- HotpotQA, 2WikiMultiHopQA ----------------------------------------------------------------------
def _titled_paragraphs(row: Row, _: Sequence[str]) -> tuple[list[Passage], list[str]]:
    """Paragraphs with ids ``title``, ``title#2`` for the second of that title."""
    paragraphs = []
    for value in row.rows("context", default=[]):
        match value:
            case [str() as title, list() as parts] if all(isinstance(s, str) for s in parts):
                paragraphs.append((title, " ".join(part.strip() for part in parts).strip()))
            case _:
                raise row.error(
                    f"a paragraph must be [title, [sentence, ...]], found {value!r:.80}", "context"
                )
    wanted = []
    for fact in row.rows("supporting_facts", default=[]):
        if not isinstance(fact, list) or not fact or not isinstance(fact[0], str):
            raise row.error(f"must hold [title, sentence], found {fact!r:.80}", "supporting_facts")
        wanted.append(fact[0])
    ids = unique_ids(title for title, _ in paragraphs)
    passages = [
        Passage(id=own, title=title, text=text)
        for own, (title, text) in zip(ids, paragraphs, strict=True)
    ]
    return passages, [p.id for title in dict.fromkeys(wanted) for p in passages if p.title == title]


# --- MuSiQue ----------------------------------------------------------------------------------------
def _numbered_paragraphs(row: Row, _: Sequence[str]) -> tuple[list[Passage], list[str]]:
    """Paragraphs with ids ``idx:title``, since titles repeat."""
    passages, gold = {}, []
    for value in row.rows("paragraphs", default=[]):
        match value:
            case {
                "idx": int() as number,
                "title": str() as title,
                "paragraph_text": str() as text,
            } if isinstance(supporting := value.get("is_supporting", False), bool):
                own = f"{number}:{title}"
            case _:
                raise row.error(
                    "a paragraph must hold idx (integer), title, paragraph_text (strings) and "
                    f"is_supporting (true or false), found {value!r:.80}",
                    "paragraphs",
                )
        if own in passages:
            raise row.error("two paragraphs share an idx and a title", "paragraphs")
        passages[own] = Passage(id=own, title=title, text=text)
        gold += [own] if supporting else []
    return [*passages.values()], gold


def _hops(row: Row) -> str | None:
    """The number of hops, as ``2hop``, by the decomposition or else by the id."""
    hops = len(row.rows("question_decomposition", default=[]))
    named = _HOPS.match(row.required("id"))
    return f"{hops}hop" if hops else named and f"{named[1]}hop"


# --- TriviaQA ---------------------------------------------------------------------------------------
def _folded(values: Mapping[str, Any]) -> dict[str, Any]:
    """``QuestionId`` of the authors' files and ``question_id`` of the Hub's are one name."""
    return {name.lower().replace("_", ""): value for name, value in values.items()}


def _trivia_rows(path: Path) -> Iterator[Row]:
    if plain_suffix(path) == ".json":
        rows = json_rows(path, under="Data")
    else:
        table = open_table(path)
        parts = {"question", "questionid", "answer", *_EVIDENCE}
        rows = table.rows([name for name in table.names if _folded({name: 0}).keys() & parts])
    return (Row(row.file, row.number, _folded(row.values)) for row in rows)


def _trivia_answers(row: Row) -> list[str]:
    """Value, aliases and human answers; the test files have none."""
    answer = row.values.get("answer")
    if not isinstance(answer, dict):
        return row.texts(answer, "answer")
    parts = _folded(answer)
    names = ("value", "aliases", "humananswers")
    return [text for name in names for text in row.texts(parts.get(name), f"answer.{name}")]


def _evidence(row: Row, answers: Sequence[str]) -> tuple[list[Passage], list[str]]:
    """The documents found for a question, 100 words each; gold are those that hold an answer."""
    pieces = [
        (title, " ".join(words[start : start + _WORDS]))
        for title, words in _documents(row)
        for start in range(0, len(words), _WORDS)
    ]
    ids = unique_ids(title for title, _ in pieces)
    passages = [
        Passage(id=own, title=title, text=text)
        for own, (title, text) in zip(ids, pieces, strict=True)
    ]
    wanted = [f" {form} " for answer in answers if (form := normalize_answer(answer))]
    texts = {passage.id: f" {normalize_answer(passage.text or '')} " for passage in passages}
    return passages, [own for own, text in texts.items() if any(form in text for form in wanted)]


def _documents(row: Row) -> Iterator[tuple[str, list[str]]]:
    """Title and words of each; the Hub has a list of every property, the authors an object of each."""
    for name, kind in _EVIDENCE.items():
        found = row.values.get(name) or []
        if isinstance(found, dict):
            lists = {key: value for key, value in found.items() if isinstance(value, list)}
            found = [
                dict(zip(lists, values, strict=True)) for values in zip_longest(*lists.values())
            ]
        for document in found if isinstance(found, list) else [found]:
            if not isinstance(document, dict):
                raise row.error(f"must hold an object a document, found {document!r:.60}", name)
            told = _folded(document)
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


_HOTPOTQA = Layout(
    rows=json_rows,
    id="_id",
    answers=_answer_and_aliases,
    passages=_titled_paragraphs,
    type=lambda row: row.text("type", default="") or None,
)
PUBLIC: Mapping[str, Layout] = {
    "hotpotqa": _HOTPOTQA,
    "2wikimultihopqa": _HOTPOTQA,
    "musique": Layout(
        rows=json_lines,
        id="id",
        answers=_answer_and_aliases,
        passages=_numbered_paragraphs,
        type=_hops,
    ),
    "triviaqa": Layout(
        rows=_trivia_rows, id="questionid", answers=_trivia_answers, passages=_evidence
    ),
}
"""Data sets whose questions bring passages; of triviaqa not every file has some."""

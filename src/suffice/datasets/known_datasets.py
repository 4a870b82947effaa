"""Data sets by name: public, generated, and the user's own files of questions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from suffice.datasets.files import (
    TABLE_SUFFIXES,
    Example,
    FileTable,
    Row,
    drop_empty,
    json_documents,
    json_lines,
    no_column,
    open_table,
    plain_suffix,
    read_rows,
    text_id,
    unique_ids,
)
from suffice.datasets.generated import generate
from suffice.errors import UsageError, did_you_mean
from suffice.trace.rounds.records import Gold, Passage, Question

_HOPS = re.compile(r"(\d)hop")
_Found = tuple[list[Passage], list[str]]  # passages, and the ids of the gold ones


def _example(
    row: Row, own: str, answers: Sequence[str], found: _Found, kind: str | None = None
) -> Example:
    passages, gold = found
    return Example(
        question=Question(id=row.required(own), text=row.required("question"), type=kind),
        gold=Gold(answers=tuple(answers), passage_ids=tuple(gold)),
        passages=tuple(passages),
    )


def _titled(pieces: Sequence[tuple[str, str]]) -> list[Passage]:
    ids = unique_ids(title for title, _ in pieces)
    return [
        Passage(id=own, title=title, text=text)
        for own, (title, text) in zip(ids, pieces, strict=True)
    ]


def _answer_and_aliases(row: Row) -> tuple[str, ...]:
    answer = row.text("answer", default="")
    aliases = row.texts(row.rows("answer_aliases", default=[]), "answer_aliases")
    return drop_empty([answer, *aliases] if "answer" in row.values else [], row)


# --- HotpotQA, 2WikiMultiHopQA ----------------------------------------------------------------------
def _hotpotqa(row: Row) -> Example:
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
    passages = _titled(paragraphs)
    gold = [p.id for title in dict.fromkeys(wanted) for p in passages if p.title == title]
    kind = row.text("type", default="") or None
    return _example(row, "_id", _answer_and_aliases(row), (passages, gold), kind)


# --- MuSiQue ----------------------------------------------------------------------------------------
def _musique(row: Row) -> Example | None:
    if row.values.get("answerable") is False:
        return None
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
    hops = len(row.rows("question_decomposition", default=[]))
    named = _HOPS.match(row.required("id"))
    kind = f"{hops}hop" if hops else named and f"{named[1]}hop"
    return _example(row, "id", _answer_and_aliases(row), ([*passages.values()], gold), kind)


_PUBLIC: Mapping[str, tuple[Callable[[Path], Iterator[Row]], Callable[[Row], Example | None]]] = {
    "hotpotqa": (json_documents, _hotpotqa),
    "2wikimultihopqa": (json_documents, _hotpotqa),
    "musique": (json_lines, _musique),
}


# --- questions of the user's own: a row is a question, which brings no passages ----------
QUESTION_ROLES: Mapping[str, tuple[str, ...]] = {
    "question": ("question",),
    "answers": ("answers", "answer", "gold_answers", "golden_answers"),
    "id": ("id", "_id", "question_id"),
    "type": ("type", "question_type"),
}
"""What a column of a file of questions may hold, with the usual names of such columns."""


def columns_of(path: str | Path, columns: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Return the columns of a file by role, as :func:`read_questions` reads them."""
    return _within(open_table(Path(path)), columns or {})


def _within(table: FileTable, named: Mapping[str, str]) -> Mapping[str, str]:
    held: dict[str, str] = {}
    for role, usual in QUESTION_ROLES.items():
        column = named.get(role) or next((name for name in usual if name in table.names), None)
        if column not in (None, *table.names) or (role == "question" and column is None):
            raise no_column(table, role, column or usual[0], f"--dataset {table.file}")
        if column is not None:
            held[role] = column
    return held


def read_questions(
    path: str | Path, columns: Mapping[str, str] | None = None, *, limit: int | None = None
) -> tuple[Example, ...]:
    """Read the first ``limit`` questions of a file, in file order, without passages.

    ``columns`` maps ``question``, ``answers``, ``id`` and ``type`` to the file's columns. All but the
    question may be missing; a role without an entry takes the first of its usual names.

    Answers are a text, a number, or a list of them; in CSV a list is JSON, ``["a", "b"]``. No answers, or
    blank ones: unlabeled. Without a column, ids come from the questions' texts, so they stay the same when
    rows are added.
    """
    path = Path(path)
    table = open_table(path)
    held = _within(table, columns or {})
    rows = list(table.rows(tuple(held.values())))[:limit]
    texts = [row.required(held["question"]) for row in rows]
    made = [] if "id" in held else unique_ids(text_id(text) for text in texts)

    def build(row: Row) -> Example:
        return Example(
            question=Question(
                id=made[row.number] if made else _id(row, held["id"]),
                text=texts[row.number],
                type=_cell_text(row, held.get("type")) or None,
            ),
            gold=Gold(answers=_answers(row, held.get("answers"))),
            passages=(),
        )

    return read_rows(rows, build, path, limit, id_column=held.get("id", "id"))


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
    value = None if column is None else row.get(column)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is not None and not isinstance(value, str):
        raise row.error(f"must be a text or a whole number, found {value!r:.60}", column)
    return (value or "").strip()


def _answers(row: Row, column: str | None) -> tuple[str, ...]:
    value = row.listed(column)
    if value is None or (isinstance(value, str) and not value.strip()):
        return ()
    return drop_empty(row.texts(value, column), row)


# --- by name ------------------------------------------------------------------------------------------
_GENERATED_SIZE = 200

DATASETS: tuple[str, ...] = ("generated", *_PUBLIC)
"""Every name :func:`load` knows; their questions bring paragraphs, the gold ones among them."""


def is_question_file(name: str) -> bool:
    """Whether a name is that of a question file, and no data set's."""
    path = Path(name)
    return name not in DATASETS and (plain_suffix(path) in TABLE_SUFFIXES or path.exists())


def dataset_name(name: str) -> str:
    """Return a data set's name, or a question file as typed."""
    if name in DATASETS or is_question_file(name):
        return name
    raise UsageError(
        f"no data set {name!r}; allowed: {', '.join(DATASETS)}, or a file of questions that ends in "
        f"{', '.join(TABLE_SUFFIXES)}{did_you_mean(name, DATASETS)}"
    )


def load(
    name: str,
    path: str | Path | None = None,
    *,
    limit: int | None = None,
    seed: int = 42,
    columns: Mapping[str, str] | None = None,
) -> tuple[Example, ...]:
    dataset_name(name)
    if limit is not None and limit < 1:
        raise UsageError(f"limit must be at least 1, found {limit}")
    if is_question_file(name):
        if path is not None:
            raise UsageError(
                f"the questions come from {name}; drop --data {path}, which goes with the name of a data "
                f"set ({', '.join(DATASETS[1:])})"
            )
        return read_questions(name, columns, limit=limit)
    if columns is not None:
        raise UsageError(
            f"the columns of {name} are known; --columns goes with a file of your own: --dataset FILE"
        )
    if name == "generated":
        if path is not None:
            raise UsageError(f"the data set 'generated' is made from a seed; drop the path {path}")
        return tuple(generate(_GENERATED_SIZE if limit is None else limit, seed=seed))
    if path is None:
        raise UsageError(f"the data set {name!r} needs the path of its file: --data PATH")
    rows, build = _PUBLIC[name]
    return read_rows(rows(Path(path)), build, Path(path), limit)

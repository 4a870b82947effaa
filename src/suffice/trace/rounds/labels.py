"""Labels added to a record later: gold answers, types, groups and scores."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.contracts import strict_json
from suffice.errors import DataError, counted, read_plain
from suffice.trace.recording import live_store
from suffice.trace.rounds.records import SCORE
from suffice.trace.rounds.schema import SCHEMA
from suffice.trace.rounds.trace_set import TraceSet, with_column
from suffice.trace.values import Check, Checked, items, not_empty

LABELS_FILE = "labels.jsonl"
LABEL_COLUMNS = ("gold_answers", "question_type", "group", "score")
"""The columns of the schema that a label may fill."""


def labelled(traces: TraceSet) -> NDArray[np.bool_]:
    """Return the questions with a gold answer in round 1, (n_questions,); an empty one does not count."""
    return _holds_any(traces.first_rounds("gold_answers"), characters=1)


def names_passages(traces: TraceSet) -> NDArray[np.bool_]:
    """Return the questions with a gold passage in round 1, (n_questions,)."""
    return _holds_any(traces.first_rounds("gold_passage_ids"), characters=0)


def _holds_any(lists: pa.ChunkedArray, *, characters: int) -> NDArray[np.bool_]:
    whole = lists.combine_chunks()
    texts = pc.greater_equal(pc.binary_length(pc.list_flatten(whole)), characters)
    holds = np.zeros(len(whole), bool)
    holds[pc.list_parent_indices(whole).filter(texts).to_numpy()] = True
    return holds


def _answers(given: Any, column: str) -> tuple[str, ...]:
    texts = items(str, (given,) if isinstance(given, str) else given or (), column)
    return tuple(dict.fromkeys(one for one in texts if one.strip()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Label(Checked):
    """A label of the question ``question_id`` that arrives after the recording.

    Fields left out stay as they are. ``gold_answers`` are the accepted answers. ``question_type`` is the
    question's type, ``group`` its conversation, document or user. ``score``, in [0, 1], is that of the answer
    in ``round``; ``None``: the last recorded one. ``place`` is the label's source, for messages.
    """

    _checks: ClassVar[Mapping[str, Check]] = {
        "question_id": not_empty,
        "gold_answers": _answers,
        "score": SCORE,
    }
    question_id: str
    gold_answers: tuple[str, ...] = ()
    question_type: str | None = None
    group: str | None = None
    score: float | None = None
    round: int | None = None
    place: str = "the labels given"

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        if self.round is not None and self.score is None:
            raise DataError(
                "needs a score; all other labels belong to the whole question", column="round"
            )

    def parts(self) -> Iterator[tuple[_Cell, _Entry]]:
        for name in LABEL_COLUMNS:
            value = getattr(self, name)
            if value not in (None, "", ()):
                number = self.round if name == "score" else None
                yield _Cell(name, self.question_id, number), _Entry(value, self.place)


_IN_A_LINE = tuple(part.name for part in fields(Label) if part.name != "place")


class _Cell(NamedTuple):
    column: str
    question: str
    round: int | None


@dataclass(frozen=True, slots=True)
class _Entry:
    value: Any
    place: str

    def agrees(self, value: Any) -> bool:
        """Whether two labels agree; answers agree in any order."""
        return set(self.value) == set(value) if isinstance(value, tuple) else self.value == value


@dataclass(frozen=True, slots=True)
class Labels:
    """Consistent labels, each of a recorded question and round once :meth:`fitted_to` a table."""

    entries: Mapping[_Cell, _Entry] = field(default_factory=dict)

    @classmethod
    def of(cls, labels: Iterable[Label]) -> Labels:
        return cls(_merged(pair for label in labels for pair in label.parts()))

    def __bool__(self) -> bool:
        return bool(self.entries)

    @property
    def questions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.question for cell in self.entries))

    def columns(self) -> tuple[str, ...]:
        return tuple(name for name in LABEL_COLUMNS if any(c.column == name for c in self.entries))

    def only(self, questions: Collection[str]) -> Labels:
        return Labels({c: entry for c, entry in self.entries.items() if c.question in questions})

    def unknown(self, questions: Collection[str]) -> tuple[str, ...]:
        return tuple(name for name in self.questions if name not in questions)

    def fitted_to(self, table: pa.Table) -> Labels:
        """Return the labels of a table's questions; scores without a round go to the last one."""
        ids = pa.array(self.questions, pa.string())
        rows = table.select(["question_id", "round"])
        rows = rows.filter(pc.is_in(rows.column("question_id"), value_set=ids))
        ends = rows.group_by("question_id").aggregate([("round", "min"), ("round", "max")])
        rounds = {
            row["question_id"]: (row["round_min"], row["round_max"]) for row in ends.to_pylist()
        }

        def at(cell: _Cell, entry: _Entry) -> _Cell:
            first, last = rounds[cell.question]
            if cell.column != "score" or cell.round is None:
                return cell._replace(round=last if cell.column == "score" else None)
            if not first <= cell.round <= last:
                raise DataError(
                    f"{entry.place}: a score of round {cell.round} of question {cell.question!r}, which has "
                    f"rounds 1 to {last}; leave the round out to score the last one",
                    column="round",
                )
            return cell

        known = self.only(rounds).entries.items()
        return Labels(_merged((at(cell, entry), entry) for cell, entry in known))

    def conflicts(
        self, table: pa.Table, source: str, instead: str = "let the labels hold with --replace"
    ) -> Iterator[tuple[str, DataError]]:
        """Return questions with a contradicting label in ``table``'s columns, and the remedy."""
        for name in self.columns():
            if name not in table.column_names:
                continue
            last = {cell: row for row, cell in enumerate(self._taken(table, name)) if cell}
            there = table.column(name).take(pa.array(last.values(), pa.int64())).to_pylist()
            stated = dict(zip(last, there, strict=True))
            for cell in filter(stated.__contains__, self.entries):
                value = stated[cell]
                own = tuple(a for a in value or () if a) if name == "gold_answers" else value
                if own in (None, "", ()) or self.entries[cell].agrees(own):
                    continue
                entry = self.entries[cell]
                of = f", round {cell.round}" if cell.round is not None else ""
                yield (
                    cell.question,
                    DataError(
                        f"{_of(cell)}{of} is {_shown(own)} in {source} and {_shown(entry.value)} in "
                        f"{entry.place}; correct one of them, or {instead}",
                        column=name,
                    ),
                )

    def _taken(self, table: pa.Table, name: str) -> list[_Cell | None]:
        ids = table.column("question_id").to_pylist()
        rounds = table.column("round").to_pylist() if name == "score" else [None] * len(ids)
        cells = map(partial(_Cell, name), ids, rounds)
        return [cell if cell in self.entries else None for cell in cells]

    def onto(self, table: pa.Table) -> pa.Table:
        for name in self.columns():
            kind = SCHEMA.field(name).type
            taken = self._taken(table, name)
            values = [cell and self.entries[cell].value for cell in taken]
            new = pa.chunked_array([pa.array(values, kind)])
            if name in table.column_names:
                new = pc.coalesce(new, table.column(name))
            table = with_column(table, name, new)
        return table


def _merged(
    pairs: Iterable[tuple[_Cell, _Entry]], entries: dict[_Cell, _Entry] | None = None
) -> dict[_Cell, _Entry]:
    entries = {} if entries is None else entries
    for cell, entry in pairs:
        first = entries.setdefault(cell, entry)
        if not first.agrees(entry.value):
            raise DataError(
                f"{_of(cell)} is {_shown(first.value)} in {first.place} and {_shown(entry.value)} in "
                f"{entry.place}; a question has one label, keep the right one",
                column=cell.column,
            )
    return entries


def _of(cell: _Cell) -> str:
    return f"{cell.column} of question {cell.question!r}"


def _shown(value: Any) -> str:
    return repr(list(value) if isinstance(value, tuple) else value)[:80]


# --- beside a record ------------------------------------------------------------------------------
def line_of(label: Label) -> str:
    """Return a label as JSON for :func:`read_label`."""
    said = {name: getattr(label, name) for name in _IN_A_LINE}
    return json.dumps({name: value for name, value in said.items() if value not in (None, ())})


def labels_beside(
    root: Path, table: pa.Table, errors: list[DataError], remarks: list[str]
) -> Labels:
    """Return the labels of a store or folder for its questions; contradictions are errors."""
    store = live_store(root)
    labels = _read(root, errors, remarks) if store is None else Labels.of(store.labels()[0])
    if not labels:
        return labels
    ids = frozenset(table.column("question_id").unique().to_pylist())
    if unknown := labels.unknown(ids):
        remarks.append(
            f"{LABELS_FILE}: {counted(len(unknown), 'label')} of questions that are not recorded, the first "
            f"{unknown[0]!r}"
        )
    try:
        labels = labels.only(ids).fitted_to(table)
    except DataError as error:
        errors.append(DataError(error.message, file=str(root / LABELS_FILE), column=error.column))
        return Labels()
    instead = (
        f"move {LABELS_FILE} elsewhere and let its labels hold: suffice traces label {root} {LABELS_FILE} "
        "--replace --out NEW"
    )
    conflicts = dict(labels.conflicts(table, str(root), instead))
    errors += conflicts.values()
    return labels.only(ids - conflicts.keys())


def _read(root: Path, errors: list[DataError], remarks: list[str]) -> Labels:
    entries: dict[_Cell, _Entry] = {}
    for number, label in read_labels(root / LABELS_FILE) if root.is_dir() else ():
        try:
            if isinstance(label, DataError):
                raise label
            if label is None:
                remarks.append(f"{LABELS_FILE}: its last line is cut off and was left out")
            else:
                _merged(label.parts(), entries)
        except DataError as error:
            file = str(root / LABELS_FILE)
            errors.append(DataError(error.message, file=file, row=number, column=error.column))
    return Labels(entries)


def read_labels(file: Path) -> Iterator[tuple[int | None, Label | DataError | None]]:
    """Yield the rows of a file of labels, if it exists; ``None``: the last row is cut off."""
    try:
        lines = read_plain(file).split(b"\n") if file.exists() else []
    except OSError as error:
        yield None, DataError(f"cannot be read ({error})", file=str(file))
        return
    except DataError as error:
        yield None, error
        return
    for number, line in enumerate(lines):
        try:
            if line.strip():
                yield number, read_label(strict_json(line), f"{file}, row {number}")
        except DataError as error:
            column = error.column
            yield number, DataError(error.message, file=str(file), row=number, column=column)
        except (ValueError, RecursionError) as error:
            said = DataError(f"not JSON ({error})", file=str(file), row=number)
            yield number, None if number == len(lines) - 1 else said


def read_label(document: Any, place: str) -> Label:
    """Read one line of labels; ``place`` names the line."""
    if not isinstance(document, dict) or document.get("question_id") is None:
        raise DataError(
            'a label is {"question_id": "q1", "gold_answers": ["Oslo"]}, also with question_type, group, or '
            f"score and round; found {document!r:.60}"
        )
    held = {
        name: value for name, value in document.items() if name in _IN_A_LINE and value is not None
    }
    if not isinstance(held.get("gold_answers", ""), str | list):
        raise DataError(
            f"must be a list of texts, found {held['gold_answers']!r:.60}", column="gold_answers"
        )
    return Label(**held, place=place)

"""Questions filtered, sorted and paged: masks and orders over columns, texts of the rows shown alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from suffice.errors import UsageError
from suffice.measures.shards import usable_cores
from suffice.replay.run.replay import at_stop
from suffice.results.markup import shorten, visible
from suffice.view.data import NotReadyError, PolicyColumns, RecordView

_KEPT = 8
_PART = 100_000  # texts
_LONGEST_TEXT = 600
Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]


class Selection(BaseModel):
    """Which questions, in which order, as a query string asks for them."""

    model_config = ConfigDict(frozen=True)

    split: str = ""
    type: str = ""
    text: str = Field(default="", max_length=200, description="words that are searched for")
    policy: str = Field(default="", description="by whose stops questions are told")
    rule: str = Field(default="", description="of the policy what-if")
    outcome: Literal["", "right", "wrong", "unknown", "early", "late", "gained", "lost"] = ""
    stop: int = Field(default=0, ge=0, description="the round it stops in")
    differs: str = Field(default="", description="a policy that stops elsewhere")
    signal: str = ""
    low: float | None = Field(default=None, allow_inf_nan=False)
    high: float | None = Field(default=None, allow_inf_nan=False)
    sort: str = Field(default="id", pattern="^(id|question|stop|score|cost|signal:.+)$")
    order: Literal["", "asc", "desc"] = ""


class PageWanted(Selection):
    """A page of a selection: after the row at the cursor, or before it."""

    cursor: int | None = Field(default=None, ge=0, lt=10**12)
    page: Literal["", "next", "back"] = ""
    limit: int = Field(default=50, ge=1, le=200)

    @property
    def selection(self) -> Selection:
        """What it is a page of."""
        return Selection(**self.model_dump(include={*Selection.model_fields}))


class Selector:
    """Selections of one record; the last ones are kept."""

    def __init__(self, view: RecordView) -> None:
        self._view = view
        self._ordered = lru_cache(_KEPT)(self._sorted)
        self._found = lru_cache(_KEPT)(self._chosen)

    def rows(self, chosen: Selection) -> Rows:
        """The rows of a selection, in its order."""
        if self._view.progress.ready:
            self.told_by(chosen)  # a name that nobody has is told
        return self._found(chosen, len(self._view.columns.policies))

    def _chosen(self, chosen: Selection, n_policies: int) -> Rows:
        del n_policies  # of the key: a policy that came since may be meant
        mask, order = self.mask(chosen), self._order(chosen)
        return order if mask is None else order[mask[order]]

    def page(self, wanted: PageWanted) -> tuple[Rows, int, int]:
        """The questions after the one at the cursor, or before it: how many in all, and before these."""
        rows = self.rows(wanted.selection)
        first = 0
        if wanted.cursor is not None:
            places = np.flatnonzero(rows == wanted.cursor)
            at = int(places[0]) if len(places) else -1
            first = max(0, at - wanted.limit) if wanted.page == "back" else at + 1
        return rows[first : first + wanted.limit], len(rows), first

    # --- orders ------------------------------------------------------------------------------------
    def _order(self, chosen: Selection) -> Rows:
        key = Selection(sort=chosen.sort, order=chosen.order)
        if chosen.sort not in ("id", "question"):
            key = key.model_copy(update={"policy": chosen.policy, "rule": chosen.rule})
        return self._ordered(key)

    def _sorted(self, chosen: Selection) -> Rows:
        """Equal ones, and at the end those without a value, stay in the order of the record."""
        n_questions = self._view.n_questions
        if chosen.sort == "id":
            order = np.arange(n_questions)
            return order[::-1] if chosen.order == "desc" else order
        if chosen.sort == "question":
            questions = self._view.columns.questions
            if questions is None:
                raise NotReadyError("questions are being read")
            ranks = pc.rank(questions.distinct, tiebreaker="dense").to_numpy()
            values = questions.through(ranks.astype(np.float64), np.nan)
        else:
            values = self._values(chosen)
        values = -values if chosen.order == "desc" else values
        return np.argsort(values, kind="stable")  # NaN last

    def _values(self, chosen: Selection) -> NDArray[np.float64]:
        policy = self.told_by(chosen)
        if chosen.sort == "stop":
            return policy.stops.astype(np.float64)
        if chosen.sort == "score":
            return policy.score
        if chosen.sort == "cost":
            return np.zeros(self._view.n_questions) if policy.cost is None else policy.cost
        return self._at_stop(chosen.sort.partition(":")[2], policy)

    def _at_stop(self, signal: str, policy: PolicyColumns) -> NDArray[np.float64]:
        return at_stop(self._view.signal(signal), np.maximum(policy.stops, np.int16(1)))

    def told_by(self, chosen: Selection) -> PolicyColumns:
        """The policy by whose stops questions are told."""
        return self._view.policy(chosen.policy, chosen.rule) if chosen.policy else self._view.full

    def _other(self, chosen: Selection) -> PolicyColumns:
        if not chosen.differs:
            raise UsageError(
                f"outcome {chosen.outcome} is told beside another policy; give differs too"
            )
        return self._view.policy(chosen.differs, chosen.rule)

    # --- filters -----------------------------------------------------------------------------------
    def mask(self, chosen: Selection) -> Mask | None:
        """Which questions are asked for, (n_questions,); ``None``: all."""
        view, masks = self._view, list[Mask]()
        if chosen.split:
            masks.append(view.in_split(chosen.split))
        if chosen.type:
            types = view.columns.types
            if types is None:
                raise NotReadyError("questions are being read")
            masks.append(types.codes == types.code_of(chosen.type))
        if chosen.stop:
            masks.append(self.told_by(chosen).stops == chosen.stop)
        if chosen.outcome:
            masks.append(self._went(chosen))
        if chosen.differs:
            other = self._other(chosen)
            masks.append(self.told_by(chosen).stops != other.stops)
        if chosen.signal:
            values = self._at_stop(chosen.signal, self.told_by(chosen))
            low = -np.inf if chosen.low is None else chosen.low
            high = np.inf if chosen.high is None else chosen.high
            masks.append((values >= low) & (values <= high))
        masks += [self._holding(word) for word in chosen.text.split()]
        if not masks:
            return None
        return np.logical_and.reduce(masks) if len(masks) > 1 else masks[0]

    def _went(self, chosen: Selection) -> Mask:
        policy = self.told_by(chosen)
        if chosen.outcome == "right":
            return np.asarray(policy.em == 1.0)
        if chosen.outcome == "wrong":
            return np.asarray(policy.em == 0.0)
        if chosen.outcome == "unknown":
            return np.isnan(policy.em)
        if chosen.outcome in ("gained", "lost"):
            right, wrong = policy.em, self._other(chosen).em
            if chosen.outcome == "lost":
                right, wrong = wrong, right
            return np.asarray((right == 1.0) & (wrong == 0.0))
        right = self._view.measures.scores().em == 1.0
        rounds = np.arange(right.shape[1])[None, :]
        elsewhere = rounds >= policy.stops[:, None]
        if chosen.outcome == "late":
            elsewhere = rounds < policy.stops[:, None] - 1
        return np.asarray((policy.em == 0.0) & (right & elsewhere).any(axis=1))

    def _holding(self, word: str) -> Mask:
        """Questions that hold a word, in their text, their id or an answer."""
        view, searched = self._view, self._view.columns.searched
        if searched is None:
            raise NotReadyError("the texts that are searched are being read")
        word = word.lower()
        found = _contains(searched.ids, word)
        found |= searched.questions.through(_contains(searched.questions.distinct, word), False)
        in_answers = _contains(searched.answers.distinct, word)
        if in_answers.any():
            by_row = searched.answers.through(in_answers, False)
            found |= np.logical_or.reduceat(by_row, view.traces.starts[:-1])
        return found


def _contains(texts: pa.Array, word: str) -> Mask:
    """Which texts without nulls hold a word; many are searched by several threads."""
    parts = [texts.slice(start, _PART) for start in range(0, len(texts), _PART)]
    if not parts:
        return np.zeros(0, bool)
    with ThreadPoolExecutor(min(len(parts), usable_cores())) as pool:
        found = pool.map(lambda part: pc.match_substring(part, word), parts)
    return np.concatenate([np.asarray(part, bool) for part in found])


def rows_shown(view: RecordView, rows: Rows, policies: Sequence[PolicyColumns]) -> list[Any]:
    """What a table says of questions: their texts and where each policy stops.

    A stop is [round, right (1, 0, ``None``), score].
    """
    traces = view.traces
    places = traces.starts[:-1][rows]
    texts = _texts(view, "question", rows, places)
    types = _texts(view, "question_type", rows, places)
    ids = view.question_ids.take(pa.array(rows)).to_pylist()
    split_names = [*view.splits.distinct.to_pylist(), None]
    em = view.measures.scores().em[rows] if policies else None
    shown = []
    for number, (row, name, text, kind) in enumerate(
        zip(rows.tolist(), ids, texts, types, strict=True)
    ):
        shown.append(
            {
                "row": row,
                "id": name,
                "question": shorten(visible(text or ""), _LONGEST_TEXT),
                "type": kind and visible(kind),
                "split": split_names[view.splits.codes[row]],
                "rounds": int(traces.last_rounds[row]),
                "right": None
                if em is None
                else [_flag(v) for v in em[number][: traces.last_rounds[row]]],
                "stops": [
                    [
                        int(one.stops[row]),
                        _flag(one.em[row]),
                        one.score[row],
                        None if one.cost is None else one.cost[row],
                    ]
                    for one in policies
                ],
            }
        )
    return shown


def _texts(view: RecordView, name: str, rows: Rows, places: Rows) -> list[str | None]:
    held = {"question": view.columns.questions, "question_type": view.columns.types}[name]
    if held is not None:
        codes = held.codes[rows]
        shown: list[str | None] = held.distinct.take(pa.array(codes, mask=codes < 0)).to_pylist()
        return shown
    table = view.traces.table
    if name not in table.column_names:
        return [None] * len(rows)
    at = getattr(table, "at", None)
    cells = table.column(name).take(pa.array(places)) if at is None else at(name, places)
    read: list[str | None] = cells.to_pylist()
    return read


def _flag(value: float) -> int | None:
    return None if np.isnan(value) else int(value)

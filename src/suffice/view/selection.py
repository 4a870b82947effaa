"""Questions filtered, sorted and paged: masks and orders over columns, texts of the rows shown alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
from suffice.signals.columns.arrays import Texts
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


def rows_of(view: RecordView, chosen: Selection) -> Rows:
    """The rows of a selection, in its order; those asked for lately are kept."""
    key = chosen, len(view.columns.policies)  # a policy that came since may be meant
    rows = view.orders.pop(key, None)
    if rows is None:
        if view.progress.ready:
            _told_by(view, chosen)  # a name that nobody has is told
        mask, rows = _mask(view, chosen), _sorted(view, chosen)
        rows = rows if mask is None else rows[mask[rows]]
    view.orders[key] = rows
    while len(view.orders) > _KEPT:
        view.orders.popitem(last=False)
    return rows


def page_of(view: RecordView, wanted: PageWanted) -> tuple[Rows, int, int]:
    """The questions after the one at the cursor, or before it: how many in all, and before these."""
    rows = rows_of(view, wanted.selection)
    first = 0
    if wanted.cursor is not None:
        places = np.flatnonzero(rows == wanted.cursor)
        at = int(places[0]) if len(places) else -1
        first = max(0, at - wanted.limit) if wanted.page == "back" else at + 1
    return rows[first : first + wanted.limit], len(rows), first


def _sorted(view: RecordView, chosen: Selection) -> Rows:
    """Equal ones, and at the end those without a value, stay in the order of the record."""
    if chosen.sort == "id":
        order = np.arange(view.n_questions)
        return order[::-1] if chosen.order == "desc" else order
    if chosen.sort == "question":
        ranks = pc.rank(view.questions.distinct, tiebreaker="dense").to_numpy()
        values = view.questions.through(ranks.astype(np.float64), np.nan)
    else:
        policy = _told_by(view, chosen)
        if chosen.sort == "stop":
            values = policy.stops.astype(np.float64)
        elif chosen.sort == "score":
            values = policy.score
        elif chosen.sort == "cost":
            values = np.zeros(view.n_questions) if policy.cost is None else policy.cost
        else:
            values = _at_stop(view, chosen.sort.partition(":")[2], policy)
    values = -values if chosen.order == "desc" else values
    return np.argsort(values, kind="stable")  # NaN last


def _at_stop(view: RecordView, signal: str, policy: PolicyColumns) -> NDArray[np.float64]:
    return at_stop(view.signal(signal), np.maximum(policy.stops, np.int16(1)))


def _told_by(view: RecordView, chosen: Selection) -> PolicyColumns:
    """The policy by whose stops questions are told."""
    return view.policy(chosen.policy, chosen.rule) if chosen.policy else view.full


def _other(view: RecordView, chosen: Selection) -> PolicyColumns:
    if not chosen.differs:
        raise UsageError(
            f"outcome {chosen.outcome} is told beside another policy; give differs too"
        )
    return view.policy(chosen.differs, chosen.rule)


# --- filters -------------------------------------------------------------------------------------
def _mask(view: RecordView, chosen: Selection) -> Mask | None:
    """Which questions are asked for, (n_questions,); ``None``: all."""
    masks = list[Mask]()
    if chosen.split:
        masks.append(view.in_split(chosen.split))
    if chosen.type:
        masks.append(view.types.codes == view.types.code_of(chosen.type))
    if chosen.stop:
        masks.append(_told_by(view, chosen).stops == chosen.stop)
    if chosen.outcome:
        masks.append(_went(view, chosen))
    if chosen.differs:
        masks.append(_told_by(view, chosen).stops != _other(view, chosen).stops)
    if chosen.signal:
        values = _at_stop(view, chosen.signal, _told_by(view, chosen))
        low = -np.inf if chosen.low is None else chosen.low
        high = np.inf if chosen.high is None else chosen.high
        masks.append((values >= low) & (values <= high))
    masks += [_holding(view, word) for word in chosen.text.lower().split()]
    return np.asarray(np.logical_and.reduce(masks)) if masks else None


def _went(view: RecordView, chosen: Selection) -> Mask:
    policy = _told_by(view, chosen)
    right, wrong = policy.em == 1.0, policy.em == 0.0
    if chosen.outcome in ("gained", "lost"):
        other = _other(view, chosen).em
        gained = chosen.outcome == "gained"
        return np.asarray(right & (other == 0.0) if gained else wrong & (other == 1.0))
    if chosen.outcome in ("early", "late"):
        ever = view.measures.scores().em == 1.0
        rounds = np.arange(ever.shape[1])[None, :]
        late = chosen.outcome == "late"
        stops = policy.stops[:, None]
        elsewhere = rounds < stops - 1 if late else rounds >= stops
        return np.asarray(wrong & (ever & elsewhere).any(axis=1))
    went = {"right": right, "wrong": wrong, "unknown": np.isnan(policy.em)}
    return np.asarray(went[chosen.outcome])


def _holding(view: RecordView, word: str) -> Mask:
    """Questions that hold a word, in their text, their id or an answer."""
    searched = view.columns.searched
    if searched is None:
        raise NotReadyError("the texts that are searched are being read")
    questions, ids, answers = searched
    found = _contains(ids, word)
    found |= questions.through(_contains(questions.distinct, word), False)
    in_answers = _contains(answers.distinct, word)
    if in_answers.any():
        by_row = answers.through(in_answers, False)
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
    texts, types = _texts(view.questions, rows), _texts(view.types, rows)
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


def _texts(held: Texts, rows: Rows) -> list[str | None]:
    codes = held.codes[rows]
    shown: list[str | None] = held.distinct.take(pa.array(codes, mask=codes < 0)).to_pylist()
    return shown


def _flag(value: float) -> int | None:
    return None if np.isnan(value) else int(value)

"""The viewer's JSON replies: a question, a rule, two policies, promises."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite, isnan
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from suffice.errors import DataError, UsageError
from suffice.evaluation.diagnose.report_data import guarantee_of, stop_reason
from suffice.evaluation.replay.named_policies import NamedPolicy
from suffice.evaluation.replay.runner import at_stop
from suffice.policies.rules.language import parse
from suffice.report.charts import Point, Scatter, scatter
from suffice.report.promises import promise_in_words, terms_in_words
from suffice.report.svg import Family
from suffice.results.formats import amount, percent
from suffice.results.markup import Html, shorten, visible
from suffice.signals.columns.arrays import Texts
from suffice.trace.rounds.records import QuestionRecord
from suffice.view.data import MOST_WATCHED, NotReadyError, PolicyColumns, RecordView

_KEPT = 8
_LONGEST_TEXT = 600
Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]


class Selection(BaseModel):
    """Filters and order of questions, from a query string."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

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
        return Selection(**self.model_dump(include={*Selection.model_fields}))


def rows_of(view: RecordView, chosen: Selection) -> Rows:
    """Return the rows of a selection in its order; the latest selections are kept."""
    key = chosen, len(view.policies)  # a newer policy may be meant
    rows = view.orders.pop(key, None)
    if rows is None:
        if view.progress.ready:
            _stopping(view, chosen)  # refuses an unknown name
        mask, rows = _mask(view, chosen), _sorted(view, chosen)
        rows = rows if mask is None else rows[mask[rows]]
    view.orders[key] = rows
    while len(view.orders) > _KEPT:
        view.orders.pop(next(iter(view.orders)), None)
    return rows


def _sorted(view: RecordView, chosen: Selection) -> Rows:
    if chosen.sort == "id":
        order = np.arange(view.n_questions)
        return order[::-1] if chosen.order == "desc" else order
    if chosen.sort == "question":
        ranks = pc.rank(view.questions.distinct, tiebreaker="dense").to_numpy()
        values = view.questions.through(ranks.astype(np.float64), np.nan)
    else:
        policy = _stopping(view, chosen)
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


def _stopping(view: RecordView, chosen: Selection) -> PolicyColumns:
    return view.policy(chosen.policy, chosen.rule) if chosen.policy else view.full


def _other(view: RecordView, chosen: Selection) -> PolicyColumns:
    if not chosen.differs:
        raise UsageError(f"outcome {chosen.outcome} compares with another policy; give differs too")
    return view.policy(chosen.differs, chosen.rule)


# --- filters -------------------------------------------------------------------------------------
def _mask(view: RecordView, chosen: Selection) -> Mask | None:
    masks = list[Mask]()
    if chosen.split:
        masks.append(view.in_split(chosen.split))
    if chosen.type:
        masks.append(view.types.codes == view.types.code_of(chosen.type))
    if chosen.stop:
        masks.append(_stopping(view, chosen).stops == chosen.stop)
    if chosen.outcome:
        masks.append(_went(view, chosen))
    if chosen.differs:
        masks.append(_stopping(view, chosen).stops != _other(view, chosen).stops)
    if chosen.signal:
        values = _at_stop(view, chosen.signal, _stopping(view, chosen))
        low = -np.inf if chosen.low is None else chosen.low
        high = np.inf if chosen.high is None else chosen.high
        masks.append((values >= low) & (values <= high))
    masks += [_holding(view, word) for word in chosen.text.lower().split()]
    return np.asarray(np.logical_and.reduce(masks)) if masks else None


def _went(view: RecordView, chosen: Selection) -> Mask:
    own = _stopping(view, chosen)
    if chosen.outcome in ("gained", "lost"):
        one, other = own.judged, _other(view, chosen).judged
        return np.asarray(one > other if chosen.outcome == "gained" else one < other)
    if chosen.outcome in ("early", "late"):
        judged = view.measures.scores().judged
        rounds, stops = np.arange(judged.shape[1])[None, :], own.stops[:, None]
        elsewhere = rounds < stops - 1 if chosen.outcome == "late" else rounds >= stops
        return np.asarray((elsewhere & (judged > own.judged[:, None])).any(axis=1))
    went = {"right": own.judged == 1.0, "wrong": own.judged < 1.0, "unknown": np.isnan(own.judged)}
    return np.asarray(went[chosen.outcome])


def _holding(view: RecordView, word: str) -> Mask:
    searched = view.searched
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
    return np.asarray(pc.match_substring(texts, word), bool)


def rows_shown(view: RecordView, rows: Rows, policies: Sequence[PolicyColumns]) -> list[Any]:
    traces = view.traces
    texts, types = _texts(view.questions, rows), _texts(view.types, rows)
    ids = view.question_ids.take(pa.array(rows)).to_pylist()
    split_names = [*view.splits.distinct.to_pylist(), None]
    judged = view.measures.scores().judged[rows] if policies else None
    columns = zip(rows.tolist(), ids, texts, types, strict=True)
    return [
        {
            "row": row,
            "id": name,
            "question": shorten(visible(text or ""), _LONGEST_TEXT),
            "type": kind and visible(kind),
            "split": split_names[view.splits.codes[row]],
            "rounds": int(traces.last_rounds[row]),
            "judged": None if judged is None else judged[number][: traces.last_rounds[row]],
            "stops": [
                [
                    int(one.stops[row]),
                    one.judged[row],
                    one.score[row],
                    None if one.cost is None else one.cost[row],
                ]
                for one in policies
            ],
        }
        for number, (row, name, text, kind) in enumerate(columns)
    ]


def _texts(held: Texts, rows: Rows) -> list[str | None]:
    codes = held.codes[rows]
    shown: list[str | None] = held.distinct.take(pa.array(codes, mask=codes < 0)).to_pylist()
    return shown


_LONGEST = 100_000  # characters of a text that is shown
_CHANGED = 20
_PLACE = re.compile(r"at character (\d+)")


def figures(view: RecordView, split: str) -> dict[str, Any]:
    split = view.split_of(split)
    policies = [view.figures_of(policy, split) for policy in list(view.policies)]
    return {**view.facts(), "split": split, "policies": policies}


def question_page(view: RecordView, wanted: PageWanted) -> dict[str, Any]:
    selected, before = rows_of(view, wanted.selection), 0
    if wanted.cursor is not None:
        found = np.flatnonzero(selected == wanted.cursor)
        at = int(found[0]) if len(found) else -1
        before = max(0, at - wanted.limit) if wanted.page == "back" else at + 1
    places, total = selected[before : before + wanted.limit], len(selected)
    policies = list(view.policies)
    names = [policy.candidate.name for policy in policies]
    if wanted.policy == "what-if":
        policies.append(view.policy("what-if", wanted.rule))
        names.append("what-if")
    rows = rows_shown(view, places, policies)
    return {
        "total": total,
        "first": before + 1 if rows else 0,
        "policies": names,
        "rows": rows,
        "next": rows[-1]["row"] if rows and before + len(rows) < total else None,
        "previous": rows[0]["row"] if rows and before else None,
    }


# --- one question --------------------------------------------------------------------------------
def one_question(
    view: RecordView, name: str, rule: str = "", chosen: Selection | None = None
) -> dict[str, Any]:
    place = pc.index(view.question_ids, name).as_py()
    if place < 0:
        raise DataError(
            f"no question {shorten(visible(name), 80)!r} in {view.traces.origin.source}"
        )
    one = np.arange(view.n_questions) == place
    record = next(iter(view.traces.take(one).records()))
    policies = list(view.policies)
    if rule:
        policies.append(view.rule(rule))
    signals = {
        signal: np.where(np.isfinite(values[place]), values[place], np.nan)[: len(record.rounds)]
        for signal, values in sorted(view.signals.items())
        if np.isfinite(values[place]).any()
    }
    scored = view.measures.scores() if policies else None
    rounds = [
        {
            "number": number + 1,
            "query": _text(recorded.query),
            "answer": _text(recorded.answer),
            "response": _text(recorded.response),
            "judged": None if scored is None else scored.judged[place, number],
            "score": None if scored is None else scored.compared[place, number],
            "parse_failure": _text(recorded.parse_failure),
            "passages": [
                {
                    "title": shorten(visible(passage.title or passage.id), 300),
                    "text": _text(passage.text),
                    "score": passage.score if isfinite(passage.score or 0.0) else None,
                }
                for passage in recorded.passages or ()
            ],
            "samples": [_text(sample) for sample in (recorded.samples or ())[:20]],
            "usage": {
                kind: getattr(recorded.usage, kind)
                for kind in ("llm_calls", "prompt_tokens", "completion_tokens", "latency_s")
                if getattr(recorded.usage, kind) is not None
            },
        }
        for number, recorded in enumerate(record.rounds)
    ]
    return {
        "id": name,
        "question": _text(record.question.text),
        "type": _text(record.question.type),
        "split": record.question.split,
        "gold": [_text(answer) for answer in record.gold.answers]
        if view.measures.metric.gold
        else [],
        "rounds": rounds,
        "signals": signals,
        "stops": [_stop(view, policy, place, record) for policy in policies],
        "near": None if chosen is None else _near(view, chosen, place),
    }


def _near(view: RecordView, chosen: Selection, place: int) -> dict[str, Any] | None:
    try:
        rows = rows_of(view, chosen)
    except NotReadyError:
        return None
    places = np.flatnonzero(rows == place)
    at = int(places[0]) if len(places) else -1

    def named(where: int, *, there: bool) -> str | None:
        return view.question_ids[int(rows[where])].as_py() if there else None

    return {
        "total": len(rows),
        "place": at + 1,
        "previous": named(at - 1, there=at > 0),
        "next": named(at + 1, there=0 <= at < len(rows) - 1),
    }


def _stop(
    view: RecordView, policy: PolicyColumns, place: int, record: QuestionRecord
) -> dict[str, Any]:
    candidate, stop = policy.candidate, int(policy.stops[place])
    reason = candidate.kind
    if candidate.policy is not None:
        table = view.measures.signals(candidate.policy.specs)
        read = {
            name: table.signal(name)[place, :stop].tolist() for name in candidate.policy.signals
        }
        reason = stop_reason(candidate.policy, stop, read, record)
    returned = int(policy.answers[place])
    if returned != stop:
        reason = f"{reason}; the answer of round {returned} is returned"
    return {
        "policy": candidate.name,
        "label": candidate.label,
        "adaptive": candidate.adaptive,
        "round": stop,
        "answer_round": returned,
        "judged": policy.judged[place],
        "score": policy.score[place],
        "cost": None if policy.cost is None else policy.cost[place],
        "reason": visible(shorten(reason, 1000)),
    }


def _text(text: str | None) -> str | None:
    """Spell out hidden characters, and cut a text that is too long for a page."""
    if text is None:
        return None
    if len(text) > _LONGEST:
        return (
            f"{visible(text[:_LONGEST])}… [{len(text) - _LONGEST:,} more characters are not shown]"
        )
    return visible(text)


# --- a tried rule --------------------------------------------------------------------------------
def what_if(view: RecordView, rule: str, against: str, split: str) -> dict[str, Any]:
    split = view.split_of(split)
    try:
        parse(rule)
        tried = view.rule(rule)
    except UsageError as error:
        message = str(error)
        place = _PLACE.search(message)
        at = len(rule.rstrip()) if place is None and " the end" in message else None
        return {
            "rule": rule,
            "error": visible(message),
            "place": int(place.group(1)) - 1 if place else at,
        }
    rows = view.in_split(split)
    full = view.full
    other = view.policy(against) if against else full
    changed = rows & (tried.stops != other.stops)
    return {
        "rule": rule,
        "split": split,
        "questions": int(rows.sum()),
        "figures": view.figures_of(tried, split),
        "full": view.differences(split, tried, full),
        "against": other.candidate.name,
        "other": view.differences(split, tried, other),
        "other_figures": view.figures_of(other, split),
        **_changes(tried, other, rows),
        "changed_rows": rows_shown(view, np.flatnonzero(changed)[:_CHANGED], [other, tried]),
    }


def _changes(one: PolicyColumns, other: PolicyColumns, rows: NDArray[np.bool_]) -> dict[str, int]:
    changed = rows & (one.stops != other.stops)
    return {
        "changed": int(changed.sum()),
        "earlier": int((rows & (one.stops < other.stops)).sum()),
        "gained": int((rows & (one.judged > other.judged)).sum()),
        "lost": int((rows & (one.judged < other.judged)).sum()),
    }


# --- two policies --------------------------------------------------------------------------------
def compared(view: RecordView, one: str, other: str, rule: str, split: str) -> dict[str, Any]:
    split = view.split_of(split)
    rows = view.in_split(split)
    first, second = view.policy(one, rule), view.policy(other, rule)
    (runner, at), (_, to) = view.replayed(first, split), view.replayed(second, split)
    counts = np.zeros((view.traces.n_rounds + 1, view.traces.n_rounds + 1))
    np.add.at(counts, (at.stops, to.stops), np.nan_to_num(runner.weights(at, to)))
    same = first.judged[rows] == second.judged[rows]
    full = first.judged[rows] == 1.0
    return {
        "split": split,
        "questions": int(rows.sum()),
        "a": view.figures_of(first, split),
        "b": view.figures_of(second, split),
        "difference": view.differences(split, first, second),
        **_changes(first, second, rows),
        "both_right": int((same & full).sum()),
        "both_less": int((same & ~full).sum()),
        "stops": counts.round(9).tolist(),
    }


# --- promises ------------------------------------------------------------------------------------
def promises(view: RecordView) -> dict[str, Any]:
    """Return every policy's promise, its evidence, and counts of cut questions."""
    made = []
    for policy in list(view.policies):
        deployed = policy.candidate.policy
        if deployed is None:
            continue
        facts = deployed.facts
        watched = _watched(view, policy.candidate) if policy.candidate.hash in view.ran else None
        if not (watched or facts.promise or facts.guarantee or facts.coverage):
            continue
        stated = guarantee_of(policy.candidate.name, facts, view.traces.origin.source)
        held = bool(facts.guarantee)
        made.append(
            {
                "name": policy.candidate.name,
                "label": policy.candidate.label,
                "promise": promise_in_words(stated) if held else visible(facts.promise),
                "terms": [*terms_in_words(stated)] if held else [],
                "fitted_on": facts.fitted_on,
                "notes": facts.notes,
                "figures": view.figures_of(policy, view.scored_split),
                "watched": watched,
            }
        )
    seen = view.measures.seen if view.policies else None
    cut = None
    if seen is not None:
        cut = {
            "questions": view.n_questions,
            "cut": seen.n_cut,
            "explored": int(seen.explored.sum()),
            "stood_for": int(seen.stood_for.sum()),
            "unseen": int(seen.unseen.sum()),
        }
    return {"promises": made, "cut": cut, "ready": view.progress.ready}


def _watched(view: RecordView, candidate: NamedPolicy) -> dict[str, Any]:
    produced = view.watched.get(candidate.hash)
    if produced is None:
        trouble = [said for said in view.progress.trouble if said.startswith("watching")]
        note = " ".join(trouble) or "It ran in this record, which is being watched."
        if not view.watches:
            note = (
                f"It ran in this record, which has more than {MOST_WATCHED:,} questions. To see its watch: "
                "suffice monitor TRACES --policy POLICY"
            )
        return {"note": visible(note), "decision": "", "headline": "", "alarms": [], "tables": []}
    alarms, (decision, headline) = produced.alarm_notes, produced.decided
    return {
        "note": "",
        "decision": decision,
        "headline": visible(headline),
        "alarms": [visible(alarm) for alarm in alarms],
        "tables": [
            {
                "name": table.name,
                "title": visible(" ".join(table.title.split())),
                "names": table.names,
                "heads": [visible(column.heading) for column in table.columns],
                "rows": [[visible(cell) for cell in row] for row in table.shown()],
                "notes": [visible(note) for note in table.notes if note not in alarms],
            }
            for table in produced.tables()[1:]
        ],
    }


# --- a picture -----------------------------------------------------------------------------------
def chart(view: RecordView, split: str, rule: str = "") -> Html:
    """Draw scores against cost: fixed budgets as a line, policies and the tried rule as points."""
    split = view.split_of(split)
    axis = view.axis
    shown = [*view.policies, *([view.rule(rule)] if rule else [])]
    points = [
        point for number, one in enumerate(shown) if (point := _point(view, one, split, number))
    ]
    frontier = sorted((point.x, point.y) for point in points if point.family == "fixed")
    label = "rounds per question" if axis is None else axis.per_question
    metric = view.measures.metric.label
    names = ", ".join(f"{point.name}: {point.said}" for point in points)
    return scatter(
        Scatter(
            title=f"{metric} against {label}",
            description=f"Dashed: fixed budgets. {names}",
            x_name=label,
            y_name=f"{metric} %",
            points=points,
            frontier=frontier,
        )
    )


def _point(view: RecordView, one: PolicyColumns, split: str, number: int) -> Point | None:
    told = view.figures_of(one, split)
    score, cost = told["score"], told["cost"] or told["rounds"]
    if score is None or cost is None or isnan(score.estimate + cost.estimate):
        return None
    name, fixed = one.candidate.name, one.candidate.name.startswith("fixed-")
    family: Family = "oracle" if one.candidate.policy is None else "fixed" if fixed else "adaptive"
    return Point(
        mark=name.removeprefix("fixed-")[:3] if fixed else chr(ord("A") + number % 26),
        family=family,
        name=visible(one.candidate.label),
        said=f"{percent(score.estimate)}% at {amount(cost.estimate)}",
        x=cost.estimate,
        y=score.estimate,
        interval=(score.low, score.high),
    )

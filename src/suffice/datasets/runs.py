"""Agent runs as rounds.

A run is a list of model calls and searches, in the order of their start. A search opens a round; parallel
searches share one. A call that requests a search counts for the round that it opens. Any other call counts
for the round of the search before it. The run's answer belongs to the last round; earlier rounds have none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from suffice.contracts import loaded
from suffice.datasets.files import text_id
from suffice.trace.rounds.records import Passage, Round, Token, Usage, known_sum

ANSWERING = frozenset({"submit", "submit_answer", "final_answer", "final_result", "finish"})
"""Tools by which agents hand in their answer: no searches."""
_TEXT_NAMES = ("text", "content", "contents", "page_content", "snippet", "document", "body")
_ID_NAMES = ("id", "source_doc_id", "doc_id", "document_id", "docid", "url", "source")
_TITLE_NAMES = ("title", "name")
_SCORE_NAMES = ("score", "retrieval_score", "relevance_score")
_QUERY_NAMES = ("query", "q", "search_query", "question", "input", "text", "keywords", "search")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A model call; ``searches``: it requested a search or another tool."""

    text: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    usd: float | None = None
    tokens: tuple[Token, ...] | None = None
    searches: bool = False
    calls: int = 1
    ended: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A search, or another tool use; ``joined``: requested together with the one before."""

    query: str | None = None
    action: str | None = None
    passages: tuple[Passage, ...] = ()
    joined: bool = False
    ended: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A score in [0, 1] of the open round's answer, if any, and that answer."""

    score: float | None
    answer: str | None = None


@dataclass(slots=True)
class _Open:
    calls: list[Call] = field(default_factory=list)
    searches: list[Search] = field(default_factory=list)
    noted: list[Noted] = field(default_factory=list)


Step = Call | Search | Noted


def read_run(
    steps: Iterable[Step], answer: str | None, *, began: datetime | None = None
) -> tuple[tuple[Round, ...], dict[int, float]]:
    """Return the rounds of a run, and scores by round; a run without any search is a single round."""
    opened: list[_Open] = []
    early: list[Noted] = []
    asking: list[Call] = []  # calls that asked for what follows
    joinable = False
    for step in steps:
        if isinstance(step, Search):
            if not (step.joined and joinable):
                opened.append(_Open())
            opened[-1].calls += asking
            opened[-1].searches.append(step)
            asking, joinable = [], True
        elif isinstance(step, Noted):
            (opened[-1].noted if opened else early).append(step)
        else:
            (opened[-1].calls if opened and not step.searches else asking).append(step)
            joinable = False
    if not opened:
        opened.append(_Open())
    opened[-1].calls += asking
    opened[0].noted[:0] = early
    seen: set[str] = set()
    rounds: list[Round] = []
    for part in opened:
        last = part is opened[-1]
        rounds.append(_round(part, seen, answer if last else None, began))
        began = rounds[-1].time or began
    scores = {
        number: noted.score
        for number, part in enumerate(opened, start=1)
        for noted in part.noted
        if noted.score is not None
    }
    return tuple(rounds), scores


def _round(part: _Open, seen: set[str], answer: str | None, began: datetime | None) -> Round:
    found = {p.id: p for search in reversed(part.searches) for p in reversed(search.passages)}
    found = dict(reversed(found.items()))
    new = tuple(passage for passage in found.values() if passage.id not in seen)
    again = tuple(
        Passage(id=passage.id, score=passage.score)
        for passage in found.values()
        if passage.id in seen
    )
    seen.update(found)
    every = [passage.score for search in part.searches for passage in search.passages]
    scores = tuple(score for score in every if score is not None)
    final = part.calls[-1] if part.calls and answer is not None else None
    answering = None if final is None or final.searches else final
    scored = [noted.answer for noted in part.noted if noted.answer is not None]
    steps: list[Call | Search] = [*part.calls, *part.searches]
    ends = [step.ended for step in steps if step.ended is not None]
    ended = max(ends, default=None)
    return Round(
        answer=answer if answer is not None or not scored else scored[-1],
        response=next((call.text for call in reversed(part.calls) if call.text), None),
        query="\n".join(dict.fromkeys(s.query for s in part.searches if s.query)) or None,
        action="\n".join(s.action for s in part.searches if s.action) or None,
        passages=new,
        refound=again or None,
        candidate_scores=scores if scores and len(scores) == len(every) else None,
        tokens=None if answering is None else answering.tokens,
        usage=_usage(part, answering, began, ended),
        time=ended,
    )


def _usage(
    part: _Open, answering: Call | None, began: datetime | None, ended: datetime | None
) -> Usage:
    seconds = (ended - began).total_seconds() if began is not None and ended is not None else None
    names = ("prompt_tokens", "cached_tokens", "completion_tokens", "usd")
    return Usage(
        llm_calls=sum(call.calls for call in part.calls),
        answer_calls=0 if answering is None else min(answering.calls, 1),
        retrievals=len(part.searches),
        latency_s=None if seconds is None or seconds < 0 else seconds,
        **{name: _summed(part.calls, name) for name in names},
        **{f"answer_{name}": getattr(answering, name, None) for name in names},
    )


def _summed(calls: Sequence[Call], name: str) -> Any:
    """Return the sum over calls, unknown if one does not tell; an answer from a cache may tell nothing."""
    told = [(getattr(call, name), call.calls) for call in calls]
    parts = [amount for amount, made in told if made or amount is not None]
    return known_sum(parts) if parts else None


# --- what tools take and give -----------------------------------------------------------------------
def child(held: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object under a name; absent: an empty one."""
    value = held.get(name)
    return value if isinstance(value, dict) else {}


def objects_in(values: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; another value gives none."""
    return [item for item in values if isinstance(item, dict)] if isinstance(values, list) else []


def children(held: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects of the list under a name; absent: none."""
    return objects_in(held.get(name))


def query_of(arguments: Any) -> str | None:
    """Return the query in a tool's arguments: an object, or its JSON text."""
    if isinstance(arguments, str):
        arguments = loaded(arguments)
    if isinstance(arguments, str):  # broken JSON tells no query
        return None if arguments.lstrip()[:1] == "{" else arguments.strip() or None
    if not isinstance(arguments, dict):
        return None
    texts = {name: value for name, value in arguments.items() if isinstance(value, str) and value}
    for name in _QUERY_NAMES:
        if name in texts:
            return texts[name]
    return next(iter(texts.values())) if len(texts) == 1 else None


def action_of(tool: Any, arguments: Any) -> str | None:
    """Return a tool call as text, as ``search {"query": "Oslo"}``."""
    if not isinstance(tool, str):
        return None
    told = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{tool} {told}" if arguments else tool


def text_of(content: Any) -> str:
    """Return a text, or the texts of a list of parts: its reasoning is not said."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [
            part.get("text", part.get("content")) if isinstance(part, dict) else part
            for part in content
            if not isinstance(part, dict) or str(part.get("type", "text")).endswith("text")
        ]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def passages_of(content: Any, **known: Any) -> tuple[Passage, ...]:
    """Return a tool's documents: objects with a text or an id, their JSON text, or one text.

    ``known`` gives the ``id``, ``score`` or ``title`` of the one text.
    """
    value = loaded(content) if isinstance(content, str) else content
    if isinstance(value, dict):
        nested = [inner for inner in value.values() if _documents(inner)]
        value = nested[0] if len(nested) == 1 else [value]
    if _documents(value):
        return tuple(passage_of(document) for document in value)
    text = content if isinstance(content, str) else text_of(content)
    if not text.strip():
        return ()
    return (passage_of({"text": text, **known}),)


def _documents(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(document, dict)
            and any(document.get(name) is not None for name in (*_TEXT_NAMES, *_ID_NAMES))
            and document.get("type") not in ("text", "image", "audio")
            for document in value
        )
    )


def passage_of(document: Mapping[str, Any]) -> Passage:
    """Return a document as a passage; without an id, title and text identify it."""
    text, title = _first(document, _TEXT_NAMES), _first(document, _TITLE_NAMES)
    metadata = document.get("metadata")
    metadata = loaded(metadata) if isinstance(metadata, str) else metadata
    if title is None and isinstance(metadata, dict):
        title = _first(metadata, _TITLE_NAMES)
    own = _first(document, _ID_NAMES)
    score = next((document[name] for name in _SCORE_NAMES if name in document), None)
    numeric = isinstance(score, int | float) and not isinstance(score, bool) and abs(score) < 1e38
    return Passage(
        id=own or text_id(f"{title or ''}\n{text or ''}"),
        title=title or "",
        text=text,
        score=float(score) if numeric and score is not None else None,
    )


def _first(document: Mapping[str, Any], names: Sequence[str]) -> str | None:
    for name in names:
        value = document.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str) and value:
            return value
    return None

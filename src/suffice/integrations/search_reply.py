"""Replies of a ``_search``: passages of them, or what they say went wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from suffice.errors import BackendError, SufficeError, UsageError
from suffice.trace.rounds.records import Passage

# refusals of one query, not of the way the index is searched
_ABOUT_THE_QUERY = ("maxclausecount", "max_clause_count", "too_many_clauses", "too_many_nested")


def passages_of(
    content: bytes, k: int, fields: tuple[str, str | None, str | None], *, place: str
) -> tuple[Passage, ...]:
    """The hits of a reply as passages, in the server's order.

    Parameters
    ----------
    content
        The body of a reply with status 200.
    k
        How many were asked for.
    fields
        Names of the fields with text, title and id.
    place
        What was searched, for messages.

    Raises
    ------
    BackendError
        When it is no complete ranking.
    UsageError
        When no document has the text field, or one lacks the id field.
    """
    reply = _parsed(content, place)
    if reply.get("timed_out"):
        raise BackendError(
            f"{place} ran out of time and ranked only part; raise ElasticsearchSettings(timeout_s=...)"
        )
    _check_shards(reply.get("_shards"), place)
    outer = reply.get("hits")
    hits = outer.get("hits") if isinstance(outer, dict) else None
    if not isinstance(hits, list) or len(hits) > k:
        raise _malformed(place, "hits", outer)
    found = [_passage(hit, fields, place) for hit in hits]
    for before, after in pairwise(found):
        if after.score is not None and before.score is not None and after.score > before.score:
            raise _malformed(place, "a later score above an earlier one", after.score)
    if found and all(passage.text is None for passage in found):
        raise UsageError(
            f"no document of {place} has text under {fields[0]!r}; name the field: "
            "ElasticsearchSettings(text_field=...). It must be kept in _source"
        )
    return _each_once(found)


def refusal(status: int, content: bytes, *, place: str) -> SufficeError:
    """What to raise for a reply with another status than 200."""
    said = f"{place} answered {status}: {_reason(content)}"
    if status in (401, 403):
        return UsageError(
            f"{said}. Give credentials that may read it: ElasticsearchSettings(api_key=...) or "
            "(username=..., password=...)"
        )
    if status == 404:
        return UsageError(
            f"{said}. Check the index's name and that the URL is the server's base URL"
        )
    if status == 400 and any(each in said.lower() for each in _ABOUT_THE_QUERY):
        return BackendError(f"{said}. The query has too many words; shorten it")
    if status in (400, 405, 406):
        return UsageError(f"{said}. The server does not accept such a search; check fields and k")
    if 300 <= status < 400:
        return UsageError(f"{said}. The server points elsewhere; give the URL it points to")
    retried = " (after the allowed retries)" if status == 429 or status >= 500 else ""
    return BackendError(f"{said}{retried}")


def _passage(hit: object, fields: tuple[str, str | None, str | None], place: str) -> Passage:
    source = hit.get("_source", {}) if isinstance(hit, dict) else None
    if not isinstance(hit, dict) or not isinstance(source, dict):
        raise _malformed(place, "_source", hit)
    text_field, title_field, id_field = fields
    return Passage(
        id=_id(hit, source, id_field, place),
        text=_text(_value(source, text_field)),
        title=(None if title_field is None else _text(_value(source, title_field))) or "",
        score=_score(hit, place),
    )


def _parsed(content: bytes, place: str) -> dict[str, Any]:
    try:
        reply = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BackendError(
            f"{place} sent a reply that is not JSON ({error}): {content[:100]!r}. Is the URL that of "
            "Elasticsearch or OpenSearch?"
        ) from error
    if not isinstance(reply, dict):
        raise _malformed(place, "the reply", reply)
    return reply


def _malformed(place: str, what: str, found: object) -> BackendError:
    return BackendError(
        f"{place} sent a reply that is no ranking: {what} is {found!r:.100}. Is the URL that of "
        "Elasticsearch or OpenSearch?"
    )


def _check_shards(shards: object, place: str) -> None:
    if not isinstance(shards, dict) or not isinstance(shards.get("failed"), int):
        raise _malformed(place, "_shards", shards)
    if shards["failed"]:
        failures = shards.get("failures")
        first = failures[0] if isinstance(failures, list) and failures else None
        reason = first.get("reason") if isinstance(first, dict) else None
        raise BackendError(
            f"{place} ranked only part: {shards['failed']} of {shards.get('total', '?')} shards failed"
            f" ({_told(reason) or 'no reason given'})"
        )


def _value(source: Mapping[str, Any], name: str) -> object:
    """A field's value; dots lead into objects unless the whole name is a key."""
    if name in source:
        return source[name]
    head, dot, rest = name.partition(".")
    inner = source.get(head)
    return _value(inner, rest) if dot and isinstance(inner, dict) else None


def _text(value: object) -> str | None:
    if isinstance(value, list):
        parts = [each for each in value if isinstance(each, str)]
        return " ".join(parts) if parts else None
    return value if isinstance(value, str) else None


def _id(hit: Mapping[str, Any], source: Mapping[str, Any], field: str | None, place: str) -> str:
    value = hit.get("_id") if field is None else _value(source, field)
    if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
        return str(value)
    if field is None:
        raise _malformed(place, "_id", value)
    raise UsageError(
        f"document {hit.get('_id')!r} of {place} has no id under {field!r}; name another field or "
        "leave id_field out"
    )


def _score(hit: Mapping[str, Any], place: str) -> float:
    score = hit.get("_score")
    try:
        number = float(score) if type(score) in (int, float) else math.nan  # type: ignore[arg-type]
    except OverflowError:  # a whole number of hundreds of digits
        number = math.nan
    if not math.isfinite(number):
        raise _malformed(place, "_score", score)
    return number


def _each_once(found: Sequence[Passage]) -> tuple[Passage, ...]:
    """Without repeated ids, which an alias over several indexes, or ``id_field``, can give."""
    unique: dict[str, Passage] = {}
    for passage in found:
        unique.setdefault(passage.id, passage)
    return tuple(unique.values())


def _reason(content: bytes) -> str:
    """What the server says went wrong, in one line of at most 300 letters."""
    try:
        reply = json.loads(content)
    except (ValueError, RecursionError):
        reply = None
    error = reply.get("error") if isinstance(reply, dict) else None
    told = _told(error) or content[:300].decode("utf-8", "replace")
    return " ".join(told.split())[:300] or "(nothing)"


def _told(error: object) -> str:
    """Type and reason of an error object, with the innermost cause where there is one."""
    if not isinstance(error, dict):
        return error if isinstance(error, str) else ""
    roots = error.get("failed_shards") or error.get("root_cause")
    inner = roots[0] if isinstance(roots, list) and roots else None
    if isinstance(inner, dict) and isinstance(inner.get("reason"), dict):
        inner = inner["reason"]
    named = {f"{each.get('type')}: {each.get('reason')}": None for each in (error, inner) if each}
    return "; ".join(named)

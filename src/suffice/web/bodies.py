"""Bodies of requests as JSON, read no further than the limits go."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from starlette.requests import ClientDisconnect, Request

from suffice.protocols import strict_json, whole_text
from suffice.web.replies import Refusal

# one left open goes to the end, or each of its quotes would be looked for again
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z|\\\Z)', re.DOTALL)
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # of a surrogate pair, maybe
_STEP = np.zeros(256, np.int8)
_STEP[[*b"[{"]] = 1
_STEP[[*b"]}"]] = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """How much of a body is read: bytes, and how deep its lists and objects are nested."""

    bytes: int = 1 << 20
    depth: int = 32


async def read_json(request: Request, limits: BodyLimits) -> dict[str, Any]:
    """The JSON object of a request; refused: too many bytes (413), no object, NaN or too deep (400)."""
    content = await _content(request, limits.bytes)
    if _deeper(content, limits.depth):
        raise Refusal(400, f"lists and objects may be nested {limits.depth} deep", code="too_deep")
    try:
        document = strict_json(content.decode(), finite=True)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is no JSON in UTF-8: {error}", code="no_json") from error
    if not isinstance(document, dict):
        raise Refusal(400, f"the body must be one JSON object, found a {type(document).__name__}")
    return _whole(document) if _HALF.search(content) else document


async def _content(request: Request, most: int) -> bytes:
    refusal = Refusal(413, f"a body may have {most:,} bytes", code="too_large")
    stated = request.headers.get("content-length", "")
    if stated.isascii() and stated.isdigit() and int(stated) > most:
        raise refusal
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise refusal
            parts.append(part)
    except ClientDisconnect as error:
        raise Refusal(400, "the client hung up before its body was whole") from error
    return b"".join(parts)


def _deeper(content: bytes, limit: int) -> bool:
    """Whether more brackets than that are open somewhere, those in strings left out."""
    if content.count(b"[") + content.count(b"{") <= limit:
        return False
    steps = _STEP[np.frombuffer(_STRING.sub(b"", content), np.uint8)]
    return int(np.cumsum(steps, dtype=np.int64).max(initial=0)) > limit


def _whole(value: Any) -> Any:
    """The same with texts that any file can hold."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {whole_text(name): _whole(item) for name, item in value.items()}
    return value

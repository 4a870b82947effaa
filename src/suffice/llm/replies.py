"""One reader of replies: whole ones and those that come as server-sent events."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from suffice.contracts import MAX_REPLY_LETTERS, Completion, whole_text
from suffice.llm.wire import BrokenReply, NullReply, excerpt, tokens_of

_BOM = b"\xef\xbb\xbf"
_FIELD = re.compile(rb"(?:\A|[\r\n])(?:\xef\xbb\xbf)?(?:data|event|id|retry|):")
_SPENT = ("length", "content_filter")  # why a model may end without a word
_FAILED = re.compile(r"error|fail|abort|cancel|interrupt|insufficient|malformed", re.IGNORECASE)
_THOUGHT = re.compile(r"think|reason|thought", re.IGNORECASE)
_TEXTS = ("text", "output_text", "refusal", None)
_CALLS = ("tool_calls", "function_call")


class UntrustedEvents(BrokenReply):
    """Report events that may hold the whole text, in a way that cannot be told; plainly asked, it can."""


def parse_completions(
    payload: object, *, top_logprobs: int, source: str, null_is_empty: bool = True
) -> tuple[Completion, ...]:
    """Return the texts of a reply, with their tokens if the reply has them.

    What is not understood makes the reply broken, never shorter. It reads ``logprobs.content[]`` (chat, and
    completions of llama.cpp) and the older ``tokens / token_logprobs / top_logprobs``. A token without a
    log-probability makes the tokens of its text unknown.
    """
    held = payload if isinstance(payload, Mapping) else {}
    choices = held.get("choices")
    _refuse(held.get("error"), source)
    if not isinstance(choices, list) or not all(isinstance(c, Mapping) for c in choices):
        raise BrokenReply(
            f"{source} sent a reply without a list of choices: {excerpt(payload)}. "
            "Check that the URL is that of an OpenAI-compatible interface (it often ends in /v1)"
        )
    return tuple(
        _completion(choice, top_logprobs, source, null_is_empty=null_is_empty)
        for _, choice in sorted(enumerate(choices), key=lambda placed: _index(*placed))
    )


def _refuse(error: object, source: str) -> None:
    if error:
        raise BrokenReply(f"{source} reported an error in its reply: {excerpt(error)}")


def _completion(
    choice: Mapping[str, Any], top_logprobs: int, source: str, *, null_is_empty: bool
) -> Completion:
    text, reason, body = _text(choice, source), choice.get("finish_reason"), _body(choice)
    failed = isinstance(reason, str) and _FAILED.search(reason)
    _refuse(choice.get("error") or body.get("error") or (choice if failed else None), source)
    if not text and (reason in _CALLS or any(body.get(name) for name in _CALLS)):
        raise BrokenReply(
            f"{source} called a tool in place of a text, though none was offered: {excerpt(choice)}"
        )
    if text is None and not null_is_empty and reason not in _SPENT:
        raise NullReply(f"{source} sent null instead of a text: {excerpt(choice)}")
    return Completion(
        text=text or "",
        tokens=tokens_of(choice.get("logprobs"), top_logprobs, source),
        finish_reason=reason if isinstance(reason, str) and reason else None,
    )


def _body(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in ("delta", "message"):
        body = choice.get(name)
        if isinstance(body, Mapping) and (body or name == "message"):
            return body
    return {}


def _text(choice: Mapping[str, Any], source: str) -> str | None:
    """Return the text of a choice or of a piece; ``None``: it has none."""
    body = _body(choice)
    content = body.get("content", choice.get("text") if not body else None)
    content = content or body.get("refusal") or content
    if content is None or isinstance(content, str):
        return content
    parts = [_part(part) for part in (content if isinstance(content, list) else [content])]
    if any(part is None for part in parts):
        raise BrokenReply(f"{source} sent a choice whose text is no string: {excerpt(choice)}")
    return "".join(part or "" for part in parts)


def _part(part: object) -> str | None:
    """Return the text of one part of a content; ``None``: it is no text."""
    if not isinstance(part, Mapping):
        return part if isinstance(part, str) else None
    kind = part.get("type")
    if part.get("thought") is True or _THOUGHT.search(str(kind)):
        return ""
    text = part.get("refusal" if kind == "refusal" else "text") if kind in _TEXTS else None
    return text if isinstance(text, str) else None


def _index(place: int, choice: Mapping[str, Any]) -> int:
    index = str(choice.get("index"))  # some write it as text
    return int(index) if index.isdecimal() else place


# --- replies that come as events -----------------------------------------------------------------
class _Decoder:
    """Decode server-sent events as the HTML standard says (9.2.6), with the one that the end cuts off."""

    def __init__(self) -> None:
        self._left, self._name, self._data = b"", b"", list[bytes]()

    def feed(self, chunk: bytes, *, end: bool = False) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield the name and the data lines of each event that is complete."""
        held = self._left + chunk
        # at the end of a chunk, a carriage return may be half of a line's end
        whole = len(held) if end else 1 + max(held.rfind(b"\n"), held.rfind(b"\r", 0, -1))
        self._left = held[whole:]
        for line in [*held[:whole].splitlines(), *([b""] if end else [])]:
            if not line:
                if self._data:
                    yield self._name, self._data
                self._name, self._data = b"", []
                continue
            field, _, value = line.removeprefix(_BOM).partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            elif field == b"event":
                self._name = value.strip()
            elif field.startswith(b"{"):  # some tell of an error without a field
                self._data.append(line)


def are_events(content: bytes) -> bool:
    """Say whether a body is server-sent events and no JSON."""
    return not content.lstrip(_BOM + b" \t\r\n").startswith((b"{", b"[", b"<")) and bool(
        _FIELD.search(content)
    )


class _Assembly:
    """Put the events of one reply together."""

    def __init__(self, source: str) -> None:
        self._source, self._decoder = source, _Decoder()
        self._choices: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, list[str]] = {}
        self._further: dict[str, Any] = {}
        self._done = False

    def feed(self, chunk: bytes, *, end: bool = False) -> Iterator[tuple[int, str]]:
        """Yield the index and text of each new piece."""
        for name, lines in self._decoder.feed(chunk, end=end):
            for event in () if self._done else self._documents(lines):
                _refuse(event if name == b"error" else event.get("error"), self._source)
                self._further |= {k: v for k, v in event.items() if v and k != "choices"}
                choices = event.get("choices") or []
                for place, choice in enumerate(choices if isinstance(choices, list) else [choices]):
                    yield self._add(place, choice)

    def _documents(self, lines: list[bytes]) -> Sequence[Mapping[str, Any]]:
        """Return the JSON objects of an event; some servers put no blank line between events."""
        for texts in ([b"\n".join(lines)], lines):
            said = [text for text in map(bytes.strip, texts) if text]
            end = said.index(b"[DONE]") if b"[DONE]" in said else None
            try:
                found = [json.loads(text) for text in said[:end]]
            except (ValueError, RecursionError):
                continue
            if all(isinstance(document, Mapping) for document in found):
                self._done = end is not None
                return found
        raise BrokenReply(f"{self._source} sent an event that is no JSON object: {excerpt(lines)}")

    def _add(self, place: int, choice: object) -> tuple[int, str]:
        if not isinstance(choice, Mapping):
            raise BrokenReply(f"{self._source} sent a choice that is no object: {excerpt(choice)}")
        index, body = _index(place, choice), _body(choice)
        text = _text(choice, self._source)
        made = self._choices.setdefault(index, {"index": index, "message": {}, "logprobs": {}})
        pieces = self._pieces.setdefault(index, [])
        if text and body is choice.get("message"):  # whole, perhaps behind its pieces
            before = "".join(pieces)
            if not text.startswith(before):
                raise UntrustedEvents(f"{self._source} sent two texts: {excerpt([before, text])}")
            text = text.removeprefix(before)
        if text is not None:
            pieces.append(text)
        made["message"] |= {name: body[name] for name in (*_CALLS, "error") if body.get(name)}
        made |= {name: choice[name] for name in ("finish_reason", "error") if choice.get(name)}
        held = choice.get("logprobs")
        for name, values in held.items() if isinstance(held, Mapping) else ():
            if isinstance(values, list):
                made["logprobs"].setdefault(name, []).extend(values)
        return index, text or ""

    def whole(self) -> dict[str, Any]:
        """Return the reply as one that did not come as events."""
        for index, choice in self._choices.items():
            text = "".join(self._pieces[index])
            choice["message"]["content"] = text if self._pieces[index] else None
            if not choice.get("finish_reason") and not self._done:
                raise UntrustedEvents(
                    f"{self._source} broke off its reply after {len(text)} letters"
                )
            tokens = choice["logprobs"].get("content", [])
            # of a stop llama.cpp tells the token, without its text; a reply in one piece leaves it out
            while tokens and isinstance(tokens[-1], Mapping) and tokens[-1].get("token") == "":
                tokens.pop()
        if not self._choices:
            raise UntrustedEvents(f"{self._source} sent events without a choice")
        return {**self._further, "choices": list(self._choices.values())}


def joined_events(content: bytes, source: str) -> dict[str, Any]:
    """Return the reply that events hold as one that did not come as events."""
    assembly = _Assembly(source)
    for _ in assembly.feed(content, end=True):
        pass
    return assembly.whole()


class EventReply:
    """Tell the pieces of a reply while its events arrive."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell, self._left, self._began = tell, MAX_REPLY_LETTERS, False
        self._silent, self._half = False, ""
        self._assembly = _Assembly("")

    def begin(self) -> None:
        """Begin a request; after a retry, the pieces passed on stay and no more follow."""
        self._assembly, self._half, self._silent = _Assembly(""), "", self._began

    def feed(self, chunk: bytes, *, end: bool = False) -> None:
        """Tell what a chunk adds; a broken event ends it, and :func:`joined_events` says why."""
        if self._silent:
            return
        try:
            for index, piece in self._assembly.feed(chunk, end=end):
                if not index:
                    self._say(self._half + piece)
        except BrokenReply:
            self._silent = True

    def _say(self, piece: str) -> None:
        # the other half of a surrogate pair may come with the next piece
        self._half = piece[-1:] if "\ud800" <= piece[-1:] <= "\udbff" else ""
        piece = whole_text(piece.removesuffix(self._half))[: self._left]
        if piece:
            self._began = True
            self._left -= len(piece)
            self._tell(piece)

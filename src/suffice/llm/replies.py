"""One reader of replies: whole ones and those that come as server-sent events."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from suffice.contracts import MAX_REPLY_LETTERS, Completion, whole_text
from suffice.llm.wire import BrokenReply, NullReply, excerpt, tokens_of

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\r|\n")
_FIELD = re.compile(rb"(?:\A|[\r\n])(?:\xef\xbb\xbf)?(?:data|event|id|retry|):", re.MULTILINE)
_SPENT = ("length", "content_filter")  # why a model may end without a word
_FAILED = re.compile(r"error|fail|abort|cancel|interrupt|insufficient|malformed", re.IGNORECASE)
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_content", "reasoning_text")
_TEXTS = ("text", "output_text", None)
_CALLS = ("tool_calls", "function_call")
# where other interfaces put a text; an event with one of these and without choices is a part of a reply
_ELSEWHERE = (
    "text",
    "content",
    "delta",
    "message",
    "response",
    "output",
    "completion",
    "candidates",
)


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
    if held.get("error"):
        raise BrokenReply(f"{source} reported an error in its reply: {excerpt(held['error'])}")
    if not isinstance(choices, list) or not all(isinstance(c, Mapping) for c in choices):
        raise BrokenReply(
            f"{source} sent a reply without a list of choices: {excerpt(payload)}. "
            "Check that the URL is that of an OpenAI-compatible interface (it often ends in /v1)"
        )
    return tuple(
        _completion(choice, top_logprobs, source, null_is_empty=null_is_empty)
        for choice in sorted(choices, key=_index)
    )


def _completion(
    choice: Mapping[str, Any], top_logprobs: int, source: str, *, null_is_empty: bool
) -> Completion:
    text, reason, body = _text(choice, source), choice.get("finish_reason"), _body(choice)
    for error in (choice.get("error"), body.get("error")):
        if error:
            raise BrokenReply(f"{source} reported an error in its reply: {excerpt(error)}")
    if isinstance(reason, str) and _FAILED.search(reason):
        raise BrokenReply(
            f"{source} ended its reply with finish_reason {reason!r}: {excerpt(choice)}"
        )
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
    if not content and body.get("refusal"):
        content = body["refusal"]
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list | Mapping):
        parts = [_part(part) for part in ([content] if isinstance(content, Mapping) else content)]
        if all(part is not None for part in parts):
            return "".join(part or "" for part in parts)
    raise BrokenReply(f"{source} sent a choice whose text is no string: {excerpt(choice)}")


def _part(part: object) -> str | None:
    """Return the text of one part of a content; ``None``: it is no text."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return None
    kind = part.get("type")
    if kind in _THOUGHTS or part.get("thought") is True:
        return ""
    text = (
        part.get("refusal" if kind == "refusal" else "text")
        if kind in (*_TEXTS, "refusal")
        else None
    )
    return text if isinstance(text, str) else None


def _index(choice: Mapping[str, Any]) -> int:
    index = choice.get("index")
    return index if isinstance(index, int) else 0


# --- replies that come as events -----------------------------------------------------------------
class _Decoder:
    """Decode server-sent events as the HTML standard says (9.2.6), with the one that the end cuts off."""

    def __init__(self) -> None:
        self._left, self._begun, self._after_cr = b"", False, False
        self._name, self._data = b"", list[bytes]()

    def feed(self, chunk: bytes, *, end: bool = False) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield the name and the data lines of each event that is complete."""
        if self._after_cr:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = not chunk and not end
        held = self._left + chunk
        if not self._begun and len(held) < len(_BOM) and _BOM.startswith(held) and not end:
            self._left = held
            return
        self._after_cr = self._after_cr or held.endswith(b"\r")
        *lines, self._left = _LINE_END.split(held if self._begun else held.removeprefix(_BOM))
        self._begun = True
        if end:
            lines, self._left = [*lines, self._left, b""], b""
        for line in lines:
            if not line:
                if self._data:
                    yield self._name, self._data
                self._name, self._data = b"", []
                continue
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                self._data.append(value)
            elif field == b"event":
                self._name = value.strip()


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
        self._further: dict[str, Any] = {}
        self._done = False

    def feed(self, chunk: bytes, *, end: bool = False) -> Iterator[tuple[int, str]]:
        """Yield the index and text of each new piece."""
        for name, lines in self._decoder.feed(chunk, end=end):
            for event in self._documents(lines):
                error = event.get("error") or (event if name == b"error" else None)
                if error:
                    raise BrokenReply(f"{self._source} broke off its reply: {excerpt(error)}")
                choices = event.get("choices")
                if choices is None and any(event.get(key) for key in _ELSEWHERE):
                    raise UntrustedEvents(
                        f"{self._source} sent an event without choices: {excerpt(event)}"
                    )
                self._further |= {k: v for k, v in event.items() if v and k != "choices"}
                for choice in choices or ():
                    yield self._add(choice)

    def _documents(self, lines: list[bytes]) -> Iterator[Mapping[str, Any]]:
        """Yield the JSON objects of an event; some servers put no blank line between events."""
        for texts in ([b"\n".join(lines)], lines):
            try:
                found = [
                    None if text.strip() in (b"[DONE]", b"") else json.loads(text) for text in texts
                ]
            except (ValueError, RecursionError):
                continue
            if any(
                document is not None and not isinstance(document, Mapping) for document in found
            ):
                break
            self._done = self._done or b"[DONE]" in map(bytes.strip, texts)
            yield from (document for document in found if document is not None)
            return
        raise BrokenReply(f"{self._source} sent an event that is no JSON object: {excerpt(lines)}")

    def _add(self, choice: object) -> tuple[int, str]:
        if not isinstance(choice, Mapping):
            raise BrokenReply(f"{self._source} sent a choice that is no object: {excerpt(choice)}")
        index, text, body = _index(choice), _text(choice, self._source), _body(choice)
        made = self._choices.setdefault(
            index, {"index": index, "message": {"content": None}, "logprobs": {}}
        )
        message = made["message"]
        before = message["content"] or ""
        if text and body is choice.get("message") and before:  # whole, behind its pieces
            if not text.startswith(before):
                raise UntrustedEvents(f"{self._source} sent two texts: {excerpt([before, text])}")
            text = text.removeprefix(before)
        if text is not None:
            message["content"] = before + text
        message |= {name: body[name] for name in (*_CALLS, "error") if body.get(name)}
        for name, value in choice.items():
            if value and name not in ("delta", "message", "text", "logprobs", "index"):
                made[name] = value
        held = choice.get("logprobs")
        for name, values in held.items() if isinstance(held, Mapping) else ():
            if isinstance(values, list):
                made["logprobs"].setdefault(name, []).extend(values)
        return index, text or ""

    def whole(self) -> dict[str, Any]:
        """Return the reply as one that did not come as events."""
        for choice in self._choices.values():
            if not choice.get("finish_reason") and not self._done:
                letters = len(choice["message"]["content"] or "")
                raise UntrustedEvents(f"{self._source} broke off its reply after {letters} letters")
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

"""Conversion of the loop's own documents, log-probabilities and usage to records."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import Any

from suffice.errors import BackendError, DataError, SufficeWarning, UsageError
from suffice.llm.wire import MAX_TOP_LOGPROBS, tokens_of
from suffice.loops.calls import usage_sum
from suffice.trace.rounds.records import Draft, Passage, Round, Token, Usage, answer_part
from suffice.trace.usage import as_mapping, names_usage, read_counts

_TEXTS = ("text", "page_content", "content", "contents")
_IDS = ("id", "_id", "node_id", "doc_id", "source_doc_id")
_METADATA = ("metadata", "meta")


# --- passages ------------------------------------------------------------------------------------
def reported_passages(documents: Iterable[Any], what: str = "passages") -> tuple[Passage, ...]:
    """Return documents of any framework as passages, in their order; of equal ids the first.

    It reads texts, :class:`Passage`, mappings and objects with ``text``, ``page_content`` or ``content``
    (LangChain, Haystack), LlamaIndex' nodes with scores, and pairs of a document and its score. The id is the
    document's own, else a hash of its text.
    """
    if isinstance(documents, str | bytes | Mapping) or not isinstance(documents, Iterable):
        raise DataError(
            f"must be a list of documents, found {type(documents).__name__}; write [document]",
            column=what,
        )
    read: dict[str, Passage] = {}
    for position, document in enumerate(documents):
        passage = _passage(document)
        if passage is None:
            raise DataError(
                f"number {position} is {document!r:.60}; allowed are texts, suffice.Passage, mappings with "
                "'text', and the documents of LangChain, LlamaIndex and Haystack",
                column=what,
            )
        read.setdefault(passage.id, passage)
    return tuple(read.values())


def _passage(document: Any) -> Passage | None:
    if isinstance(document, Passage):
        return document
    if isinstance(document, str):
        return Passage(id=_hash(document), text=document)
    if isinstance(document, tuple) and len(document) == 2:
        own, score = _passage(document[0]), _score(document[1])
        return None if own is None else replace(own, score=score)
    part = _reader(document)
    score = _score(part("score"))
    node = part("node")
    if node is not None:
        part = _reader(node)
    text = next((held for name in _TEXTS if isinstance(held := part(name), str)), None)
    name = next((held for key in _IDS if (held := part(key)) not in (None, "")), None)
    if text is None and name is None:
        return None
    title = part("title")
    if title is None:
        metadata = next((held for key in _METADATA if isinstance(held := part(key), Mapping)), {})
        title = metadata.get("title")
    return Passage(
        id=_hash(text or "") if name is None else str(name),
        text=text,
        title=title if isinstance(title, str) else "",
        score=score,
    )


def _reader(value: Any) -> Callable[[str], Any]:
    if isinstance(value, Mapping):
        return value.get
    return lambda name: getattr(value, name, None)


def _score(value: Any) -> float | None:
    if value is None or isinstance(value, bool | str):
        return None
    with suppress(TypeError, ValueError, OverflowError):
        score = float(value)
        return score if math.isfinite(score) else None
    return None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# --- log-probabilities ---------------------------------------------------------------------------
def reported_tokens(reported: Any) -> tuple[Token, ...] | None:
    """Return tokens with log-probabilities from any known form; ``None``: there are none.

    It reads OpenAI's ``logprobs`` (of chats and of completions, as vLLM and llama-cpp-python give too),
    the list inside, llama.cpp's ``completion_probabilities``, LangChain's ``response_metadata``, and whole
    replies that hold one of them; as dictionaries or as the clients' objects.
    """
    if reported is None:
        return None
    if isinstance(reported, Sequence) and not isinstance(reported, str | bytes):
        if all(isinstance(token, Token) for token in reported):
            return tuple(reported)
        entries = [as_mapping(entry) for entry in reported]
        content = [  # of which the alternatives may be the client's objects
            {**entry, "top_logprobs": [as_mapping(top) for top in entry.get("top_logprobs") or ()]}
            for entry in entries
        ]
        return _tokens({"content": content}, reported)
    if isinstance(reported, str | bytes | int | float):
        raise _unreadable(reported)
    document = as_mapping(reported)
    for within in ("response_metadata", "logprobs", "completion_probabilities"):
        if within in document:
            return reported_tokens(document[within])
    choices = document.get("choices")
    if isinstance(choices, Sequence) and choices:
        return reported_tokens(as_mapping(choices[0]).get("logprobs"))
    if "content" in document and document["content"] is None:
        return None
    if isinstance(document.get("content"), Sequence) and "tokens" not in document:
        return reported_tokens(document["content"])
    if not document and isinstance(reported, Mapping):
        return None
    return _tokens(document, reported)


def _tokens(document: Mapping[str, Any], reported: Any) -> tuple[Token, ...] | None:
    try:
        tokens = tokens_of(document, MAX_TOP_LOGPROBS, "the loop")
    except BackendError as error:
        raise _unreadable(reported) from error
    known = document.get("content", document.get("tokens"))
    if tokens is None and not isinstance(known, list):
        raise _unreadable(reported)
    return tokens


def _unreadable(reported: Any) -> DataError:
    return DataError(
        f"log-probabilities in an unknown form: {reported!r:.80}; allowed are suffice.Token, OpenAI's "
        "choice.logprobs, LangChain's response_metadata and llama.cpp's completion_probabilities",
        column="logprobs",
    )


# --- usage ---------------------------------------------------------------------------------------
def reported_usage(reported: Any, *, depth: int = 0) -> Usage:
    """Return the usage of calls as reported; a list of replies or usages is added up.

    It reads :class:`Usage`, the usage of every provider and framework that :func:`read_counts` knows, and
    whole replies that hold one; each is a call. What it cannot read is unknown, with one warning.
    """
    if reported is None:
        return Usage()
    with suppress(Exception):  # a stranger's object, inside a user's loop
        if isinstance(reported, Usage):
            return reported
        named = names_usage(reported)
        if isinstance(reported, Sequence) and not (named or isinstance(reported, str | bytes)):
            parts = [reported_usage(one, depth=depth + 1) for one in reported if depth < 4]
            return reduce(usage_sum, parts) if parts else Usage()
        if named or reported == {}:
            read = read_counts(reported)
            return Usage(
                llm_calls=1,
                prompt_tokens=read.prompt,
                cached_tokens=read.cached,
                completion_tokens=read.completion,
            )
    if not _said:
        _warn_of(reported)
    return Usage(llm_calls=1)


_said: list[bool] = []


def _warn_of(reported: Any) -> None:
    _said.append(True)
    found = type(reported).__name__
    with suppress(Exception):
        found = f"{reported!r:.80}"
    warnings.warn(
        f"a usage in an unknown form: {found}; its tokens are unknown. Allowed are suffice.Usage, and "
        "what servers and frameworks report, as prompt_tokens or input_tokens (said once)",
        SufficeWarning,
        stacklevel=3,
    )


# --- rounds of what a loop has -------------------------------------------------------------------
_PLAIN = ("query", "action", "intermediate_answer", "candidate_scores", "signals")
_ANSWERED = ("response", "answer_starts", "samples", "sample_clusters", "verbalized_confidence")
OF_ANSWER = frozenset({*_ANSWERED, "logprobs", "tokens", "usage"})
_NO_PART = Usage(llm_calls=0, prompt_tokens=0, cached_tokens=0, completion_tokens=0, latency_s=0.0)
PARTS = frozenset({*_PLAIN, *OF_ANSWER, "passages", "answer", "answer_usage"})
"""What ``observe`` takes of a round."""


def round_of(held: Mapping[str, Any], earlier: Collection[str]) -> Round:
    """Make a round from named parts, as ``observe`` takes them; ``earlier``: ids of passages before."""
    unknown = held.keys() - PARTS
    if unknown:
        raise UsageError(f"observe() takes {', '.join(sorted(PARTS))}; found {named(unknown)}")
    if not any(value is not None for value in held.values()):
        raise DataError("the observed round is empty; give at least passages= or answer=")
    passages = refound = None
    if held.get("passages") is not None:  # those of earlier rounds are kept without their texts
        documents = reported_passages(held["passages"])
        passages = tuple(passage for passage in documents if passage.id not in earlier)
        again = (passage for passage in documents if passage.id in earlier)
        refound = tuple(Passage(id=passage.id, score=passage.score) for passage in again)
    usage = reported_usage(held.get("usage"))
    parts = {name: held[name] for name in _PLAIN if held.get(name) is not None}
    if held.get("answer") is not None:
        parts |= _answered(held)
        part = held.get("answer_usage")
        # where nothing is said of it, the loop pays for the answer in every round, as it did here
        if part is not None or usage.answer_calls is None:
            of_answer = answer_part(_NO_PART if part is None else reported_usage(part))
            usage = replace(usage, **of_answer)  # type: ignore[arg-type]
    return Round(
        answer=held.get("answer"), passages=passages, refound=refound, usage=usage, **parts
    )


def draft_of(answer: Any, held: Mapping[str, Any]) -> Draft:
    """Make an answer from its parts; its usage is that of all its calls."""
    if not isinstance(answer, str):
        raise DataError(
            f"must be text, found {answer!r:.60}; write an empty string where the model gave none",
            column="answer",
        )
    return Draft(answer, usage=reported_usage(held.get("usage")), **_answered(held))


def _answered(held: Mapping[str, Any]) -> dict[str, Any]:
    reported = held.get("tokens") if held.get("logprobs") is None else held.get("logprobs")
    parts = {name: held[name] for name in _ANSWERED if held.get(name) is not None}
    return {**parts, "tokens": reported_tokens(reported)}


def named(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names)))

"""The one reader of reported usage: of servers, clients, frameworks, spans and logs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from typing import Any

_MOST = 10**9  # tokens that a reply can be believed to have cost
_WITHIN = (  # what holds a usage, in the order of trust; its names count as if they stood outside
    *("usage", "usage_metadata", "token_usage", "usage_details", "tokens", "billed_units", "meta"),
    *("response_metadata", "x_groq", "message", "response", "llm_output", "result"),
    "amazon-bedrock-invocation_metrics",
)
_APART = ("input_tokens", "input")  # Anthropic, Bedrock, inspect_ai, Langfuse: less what caches did
_READ = re.compile("cache_read_input_tokens|input_(tokens_cache_read|cached_tokens|cache_read)")
_WRITTEN = (
    *("cache_creation_input_tokens", "cache_write_input_tokens"),
    *("input_tokens_cache_write", "input_cache_creation"),
)
_PROMPT = (
    *("prompt_tokens", "prompt_token_count", "tokens_evaluated", "prompt_eval_count"),
    *("native_tokens_prompt", "input_token_count", "prompt", *_APART),
)
# llama.cpp's tokens_cached is missing on purpose: it counts the slot's content, new tokens included
_CACHED = re.compile(
    r".*details\.(\w+_)?(cached_tokens|cache_read(_input)?(_tokens)?)|cache_read\.input_tokens|"
    r"(num_)?cached_tokens|cached_(content_token_count|input_tokens|prompt_text_tokens)|"
    r"cache_read_tokens|prompt_cache_hit_tokens|native_tokens_cached|timings\.cache_n"
)
_COMPLETION = (
    *("completion_tokens", "output_tokens", "candidates_token_count", "response_token_count"),
    *("tokens_predicted", "eval_count", "native_tokens_completion", "output_token_count"),
    *("generated_token_count", "timings.predicted_n", "completion", "output"),
)
_REASONING = re.compile(
    r".*details\.(\w+_)?(reasoning|thinking|thoughts)(_tokens)?|reasoning[._]output_tokens|"
    "(output_)?reasoning_tokens|output_reasoning|native_tokens_reasoning"
)
_HELD = ("thoughts_token_count", "cached_content_token_count", "cache_read_input_tokens")
_DETAILS = [f"{of}_tokens_details" for of in ("prompt", "input", "completion", "output")]
_ASKED = (*_WITHIN, *_PROMPT, *_COMPLETION, *_WRITTEN, *_HELD, *_DETAILS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Token counts of a model call; ``None``: unknown.

    ``prompt`` counts all tokens of the prompt, ``cached`` those of them read from a cache, ``completion`` all
    generated tokens, and ``reasoning`` those of them that reasoned.
    """

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None
    reasoning: int | None = None


def read_counts(reported: object, *, whole: bool = False) -> Counts:
    """Return the counts in a usage, or in a whole reply that holds one; it never raises.

    It takes mappings and objects of clients, with the names of any known provider in any case. ``whole``:
    the prompt holds what caches gave and took, as in spans, where the names alone do not say so. A count that
    is no whole number in [0, 10^9], or contradicts the others, is unknown. So is a prompt of 0, with a
    completion of 0: clients fill them in where a server says nothing.
    """
    told: dict[str, int] = {}
    with suppress(Exception):  # a stranger's object, inside a user's loop
        _gather(as_mapping(reported), told, 0)
    named = next((name for name in _PROMPT if name in told), None)
    prompt = told.get(named or "")
    known, read = (
        [told[name] for name in told if kind.fullmatch(name)] for kind in (_CACHED, _READ)
    )
    for rest in ("prompt_cache_miss_tokens", "timings.prompt_n"):  # DeepSeek, llama.cpp
        if prompt is None and known and rest in told:
            prompt = max(known) + told[rest]
    # LiteLLM tells Anthropic's names beside a prompt that holds them, old Haystack beside one that does not
    less = named in _APART or max(read, default=0) > (prompt or 0)
    if prompt is not None and less and not known and not whole:
        aged = sum(told[name] for name in told if name.startswith("cache_creation.ephemeral_"))
        prompt += max(read, default=0) + (_first(told, _WRITTEN) or aged)
    if prompt is not None and named == "prompt_token_count":
        prompt += told.get("tool_use_prompt_token_count", 0)
    prompt = prompt or None  # no call sends nothing
    # a name that its server does not fill stays at 0, so that the largest is the one that tells
    cached = max((*known, *read), default=None)
    completion, reasoning = _generated(told, prompt)
    if prompt is None and not completion:
        cached = completion = reasoning = None
    if cached is not None and prompt is not None and cached > prompt:
        cached = None
    return Counts(
        prompt=_believed(prompt),
        cached=cached,
        completion=_believed(completion),
        reasoning=reasoning,
    )


def _generated(told: Mapping[str, int], prompt: int | None) -> tuple[int | None, int | None]:
    completion, thoughts = _first(told, _COMPLETION), told.get("thoughts_token_count")
    reasoning = max((told[name] for name in told if _REASONING.fullmatch(name)), default=thoughts)
    if thoughts is not None:
        return (completion or 0) + thoughts, thoughts
    if completion is not None and reasoning:
        total = _first(told, ("total_tokens", "total_token_count"))
        # xAI counts reasoning apart, OpenAI under the same names does not: the total tells them apart.
        # Langfuse's "output" leaves it out always
        apart = _first(told, _COMPLETION[:-1]) is None or reasoning > completion
        if apart or (prompt is not None and total == prompt + completion + reasoning):
            completion += reasoning
    return completion, reasoning


def names_usage(reported: object) -> bool:
    """Return whether anything in it has the name of a usage or of a count, whatever its value."""
    names = {_snake(str(name)) for name in as_mapping(reported)}
    return not names.isdisjoint((*_ASKED, "timings"))


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return the fields of a mapping or of a client's object; of anything else none."""
    with suppress(Exception):
        if isinstance(value, Mapping):
            return value
        for name in ("model_dump", "_asdict"):
            dump = getattr(value, name, None)
            if callable(dump) and isinstance(held := dump(), Mapping):
                return held
    with suppress(Exception):  # slots, properties and protocol buffers show only what is asked for
        names = (*_ASKED, *getattr(type(value), "__slots__", ()))
        asked = {name: held for name in names if (held := getattr(value, name, None)) is not None}
        return asked | getattr(value, "__dict__", {})
    return {}


def _gather(document: Mapping[str, Any], told: dict[str, int], depth: int) -> None:
    """Add the counts of a document and of what it holds; a name that is told already stays."""
    plain = {_snake(str(name)): value for name, value in document.items()}
    for name, value in [*plain.items()]:
        nested = name.endswith("details") and name not in _WITHIN
        if nested or name in ("timings", "cache_read", "cache_creation"):
            held = as_mapping(value).items()
            plain |= {f"{name}.{_snake(str(inner))}": count for inner, count in held}
    for name, value in plain.items():
        if (count := _count(value)) is not None:
            told.setdefault(name, count)
    for name in _WITHIN if depth < 4 else ():
        if name in plain and not isinstance(plain[name], str):
            _gather(as_mapping(plain[name]), told, depth + 1)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:80]).lower().lstrip("_")


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    with suppress(ValueError, OverflowError):  # no number, infinite
        return _believed(int(value)) if value == int(value) else None  # type: ignore[call-overload]
    return None


def _believed(count: int | None) -> int | None:
    return count if count is not None and 0 <= count <= _MOST else None


def _first(told: Mapping[str, int], names: tuple[str, ...]) -> int | None:
    return next((told[name] for name in names if name in told), None)

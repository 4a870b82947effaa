"""The one reader of reported usage: of servers, clients, frameworks, spans and logs."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

_MOST = 10**9  # tokens that a reply can be believed to have cost
_WITHIN = (  # what holds a usage, in the order of trust; its names count as if they stood outside
    *("usage", "usage_metadata", "token_usage", "usage_details", "tokens", "billed_units"),
    *("response_metadata", "meta", "x_groq", "message", "response"),
)
_APART = ("input_tokens", "input")  # Anthropic, Bedrock, inspect_ai, Langfuse: less what caches did
_READ = ("cache_read_input_tokens", "input_tokens_cache_read", "input_cached_tokens")
_WRITTEN = ("cache_creation_input_tokens", "cache_write_input_tokens", "input_tokens_cache_write")
_BY_AGE = tuple(f"cache_creation.ephemeral_{age}_input_tokens" for age in ("5m", "1h"))
_PROMPT = (
    *("prompt_tokens", "prompt_token_count", "tokens_evaluated", "prompt_eval_count"),
    *("native_tokens_prompt", "input_token_count", "prompt", *_APART),
)
# llama.cpp's tokens_cached is missing on purpose: it counts the slot's content, new tokens included
_CACHED = (
    *("prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens"),
    *("input_token_details.cache_read", "input_token_details.cache_read_tokens"),
    *("prompt_details.cache_read", "cache_read.input_tokens", "cached_content_token_count"),
    *("cached_tokens", "num_cached_tokens", "cached_input_tokens", "cache_read_tokens"),
    *("prompt_cache_hit_tokens", "native_tokens_cached", "timings.cache_n"),
)
_COMPLETION = (
    *("completion_tokens", "output_tokens", "candidates_token_count", "tokens_predicted"),
    *("eval_count", "native_tokens_completion", "output_token_count", "generated_token_count"),
    *("timings.predicted_n", "completion", "output"),
)
_REASONING = (
    *("completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens"),
    *("output_token_details.reasoning", "output_token_details.reasoning_tokens"),
    *("completion_details.reasoning", "reasoning.output_tokens", "reasoning_output_tokens"),
    *("reasoning_tokens", "native_tokens_reasoning"),
)
_THOUGHTS = ("thoughts_token_count", "output_reasoning_tokens")  # always apart from the rest


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
    is no whole number in [0, 10^9], or contradicts the others, is unknown. So are prompt and completion if
    both are 0: clients fill them in where a server says nothing.
    """
    told: dict[str, int] = {}
    _gather(as_mapping(reported), told, 0)
    named = next((name for name in _PROMPT if name in told), None)
    prompt, apart = told.get(named or ""), [told[name] for name in _READ if name in told]
    known = [told[name] for name in _CACHED if name in told]
    hit, missed = told.get("prompt_cache_hit_tokens"), told.get("prompt_cache_miss_tokens")
    if prompt is None and hit is not None and missed is not None:
        prompt = hit + missed
    if prompt is None and {"timings.cache_n", "timings.prompt_n"} <= told.keys():
        prompt = told["timings.cache_n"] + told["timings.prompt_n"]
    # LiteLLM tells Anthropic's names beside a prompt that holds them: the prompt's own name decides
    if prompt is not None and named in _APART and not known and not whole:
        written = _first(told, _WRITTEN)
        made = sum(told.get(name, 0) for name in _BY_AGE) if written is None else written
        prompt += max(apart, default=0) + made
    if prompt is not None and named == "prompt_token_count":
        prompt += told.get("tool_use_prompt_token_count", 0)
    # a name that its server does not fill stays at 0, so that the largest is the one that tells
    cached = max((*known, *apart), default=None)
    completion, reasoning = _generated(told, prompt)
    if not prompt and not completion:
        prompt = cached = completion = reasoning = None
    if cached is not None and prompt is not None and cached > prompt:
        cached = None
    return Counts(
        prompt=_believed(prompt),
        cached=cached,
        completion=_believed(completion),
        reasoning=reasoning,
    )


def _generated(told: Mapping[str, int], prompt: int | None) -> tuple[int | None, int | None]:
    completion, thoughts = _first(told, _COMPLETION), _first(told, _THOUGHTS)
    if thoughts is not None:
        return (completion or 0) + thoughts, thoughts
    reasoning = max((told[name] for name in _REASONING if name in told), default=None)
    if completion is not None and reasoning:
        total = _first(told, ("total_tokens", "total_token_count"))
        # xAI counts reasoning apart, OpenAI under the same names does not: the total tells them apart
        apart = total is not None and total == (prompt or 0) + completion + reasoning
        completion += reasoning if apart or reasoning > completion else 0
    return completion, reasoning


def names_usage(reported: object) -> bool:
    """Return whether anything in it has the name of a usage or of a count, whatever its value."""
    names = {_snake(str(name)) for name in as_mapping(reported)}
    return not names.isdisjoint((*_WITHIN, *_PROMPT, *_COMPLETION, "timings"))


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return the fields of a mapping or of a client's object; of anything else none."""
    if isinstance(value, Mapping):
        return value
    with suppress(Exception):  # a stranger's object, inside a user's loop
        dump = getattr(value, "model_dump", None)
        if callable(dump) and isinstance(held := dump(), Mapping):
            return held
        if is_dataclass(value) and not isinstance(value, type):
            return {part.name: getattr(value, part.name) for part in fields(value)}
        return vars(value) if hasattr(value, "__dict__") else {}
    return {}


def _gather(document: Mapping[str, Any], told: dict[str, int], depth: int) -> None:
    """Add the counts of a document and of what it holds; a name that is told already stays."""
    plain = {_snake(str(name)): value for name, value in document.items()}
    for name, value in plain.items():
        if (count := _count(value)) is not None:
            told.setdefault(name, count)
    for name in plain if depth < 4 else ():
        if name.endswith("details") or name in ("timings", "cache_read", "cache_creation"):
            for inner, value in as_mapping(plain[name]).items():
                if (count := _count(value)) is not None:
                    told.setdefault(f"{name}.{_snake(str(inner))}", count)
    for name in _WITHIN if depth < 4 else ():
        if name in plain and not isinstance(plain[name], str):
            _gather(as_mapping(plain[name]), told, depth + 1)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:80]).lower()


def _count(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or isinstance(value, bool):
        return None
    with suppress(Exception):
        return _believed(operator.index(value))  # type: ignore[arg-type]
    return None


def _believed(count: int | None) -> int | None:
    return count if count is not None and 0 <= count <= _MOST else None


def _first(told: Mapping[str, int], names: tuple[str, ...]) -> int | None:
    return next((told[name] for name in names if name in told), None)

"""An OpenAI-compatible server that plays an agent's model: it searches a few times, then answers.

Tool calls are scripted, because no model that fits the tests calls tools by itself; answers are written by
a function.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from tests.server import Answer, Body, Server

from suffice.loops.prompts import ANSWER_NOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a request shows of the turn under way: ``rounds`` are messages that called tools."""

    question: str
    rounds: int
    passages: tuple[str, ...]


Writer = Callable[[Seen], str]
"""Writes the answer, of which every word is a token with the log-probability -0.1."""


def in_order(*answers: str) -> Writer:
    """Answers by the number of rounds seen, from none; the last one for ever."""
    return lambda seen: answers[min(seen.rounds, len(answers) - 1)]


def newest_passage(seen: Seen) -> str:
    return seen.passages[-1] if seen.passages else "I do not know"


@contextmanager
def agent_server(
    answer: Writer = newest_passage,
    *,
    searches: int = 3,
    tool: str = "search",
    at_once: int = 1,
    final_tool: str | None = None,
    stubborn: bool = False,
) -> Iterator[AgentServer]:
    """A server that is closed again.

    In ``searches`` rounds ``tool`` (a request's first, where it has no such one) is called ``at_once`` times
    with new queries. Then ``answer`` writes, into ``final_tool`` where a request has it. ``stubborn``: tools
    are called that a request does not offer, as a model may that saw them before.
    """
    server = AgentServer(answer, searches, tool, at_once, final_tool)
    server.stubborn = stubborn
    try:
        yield server
    finally:
        server.close()


class AgentServer(Server):
    """See :func:`agent_server`; ``url`` is the base URL, ``bodies`` what was asked."""

    def __init__(
        self, answer: Writer, searches: int, tool: str, at_once: int, final_tool: str | None
    ) -> None:
        self.write, self.searches, self.tool = answer, searches, tool
        self.at_once, self.final_tool = at_once, final_tool
        super().__init__(self._answer)

    stubborn = False
    one_id: str | None = None
    """Of all calls; ``None``: each has its own."""
    named = ""
    """The tool in all calls, also one that nobody has; empty: as asked."""
    arguments: str | None = None
    """Of all calls, where they are not made from the question."""
    shape: Callable[[Body], Body] = staticmethod(lambda body: body)
    """What another server makes of a reply, or of a piece of it."""
    beside = ""
    """What is written beside the calls."""
    last_tool = ""
    """Called where none is offered; empty: the tool."""

    @property
    def with_tools(self) -> list[bool]:
        """Of each request so far, whether it offered tools."""
        return [bool(_tools(body)) for body in self.bodies]

    def _answer(self, body: Body) -> Answer:
        message, logprobs = self._message(body)
        finish = "tool_calls" if "tool_calls" in message else "stop"
        sent = _words(body["messages"])
        usage = _usage(sent, len(json.dumps(message).split()), self._cached(body))
        reply: Body = {"id": "r", "created": 1, "model": body.get("model", "scripted")}
        if not body.get("stream"):
            choice = {
                "index": 0, "message": message, "finish_reason": finish,
                "logprobs": logprobs if body.get("logprobs") else None,
            }  # fmt: skip
            whole = {**reply, "object": "chat.completion", "choices": [choice], "usage": usage}
            return 200, {}, self.shape(whole)
        chunks = [
            {**reply, "object": "chat.completion.chunk", "choices": [choice]}
            for choice in _pieces(message, finish, logprobs if body.get("logprobs") else None)
        ]
        if (body.get("stream_options") or {}).get("include_usage"):
            chunks.append(
                {**reply, "object": "chat.completion.chunk", "choices": [], "usage": usage}
            )
        pieces = (json.dumps(self.shape(chunk)) for chunk in chunks)
        lines = "".join(f"data: {piece}\n\n" for piece in pieces) + "data: [DONE]\n\n"
        return 200, {"content-type": "text/event-stream"}, lines.encode()

    def _cached(self, body: Body) -> int:
        """The words of the longest beginning that an earlier request with the same tools had."""
        known = [0]
        for earlier in self.bodies:
            if earlier is not body and earlier.get("tools") == body.get("tools"):
                pairs = zip(earlier["messages"], body["messages"], strict=False)
                same = takewhile(lambda pair: pair[0] == pair[1], pairs)
                known.append(_words([pair[0] for pair in same]))
        return max(known)

    def _message(self, body: Body) -> tuple[Body, Body | None]:
        """The assistant's message and its log-probabilities."""
        seen, tools = _seen(body["messages"]), _tools(body)
        if self.stubborn and _text(body["messages"][-1]) != ANSWER_NOW:
            tools = tools or {self.last_tool or self.tool: {}}
        choice = body.get("tool_choice")
        named = choice.get("function") if isinstance(choice, Mapping) else None
        forced = named["name"] if named else None
        wanted = forced or (self.tool if self.tool in tools else next(iter(tools), None))
        if (
            wanted is not None
            and wanted != self.final_tool
            and (forced or seen.rounds < self.searches)
        ):
            first = seen.rounds * self.at_once
            queries = [f"{seen.question} ({first + n})" for n in range(1, self.at_once + 1)]
            calls = [
                _call(f"call_{first + n}", wanted, {_argument(tools[wanted]): query})
                for n, query in enumerate(queries, start=1)
            ]
            for call in calls:
                call["id"] = call["id"] if self.one_id is None else self.one_id
                call["function"]["name"] = self.named or wanted
                call["function"]["arguments"] = self.arguments or call["function"]["arguments"]
            text = self.beside or None
            return {"role": "assistant", "content": text, "tool_calls": calls}, None
        text = self.write(seen)
        if self.final_tool in tools:
            calls = [
                _call("call_final", self.final_tool, {_argument(tools[self.final_tool]): text})
            ]
            return {"role": "assistant", "content": None, "tool_calls": calls}, None
        return {"role": "assistant", "content": text}, _logprobs(text)


def as_vllm(body: Body) -> Body:
    """With reasoning apart, a reason to stop of its own, and null for all that it has not."""
    usage = body.get("usage") and {**body["usage"], "prompt_tokens_details": None}
    absent = ("refusal", "annotations", "audio", "function_call")
    choices = [
        {**_in_message(choice, **dict.fromkeys(absent), reasoning="Let me see.",
                       reasoning_content="Let me see."), "stop_reason": None, "token_ids": None}
        for choice in body["choices"]
    ]  # fmt: skip
    more = dict.fromkeys(("service_tier", "system_fingerprint", "prompt_logprobs"))
    return {**body, **more, "choices": choices, "usage": usage}


def as_ollama(body: Body) -> Body:
    """With text beside all, calls whose index stands in whole replies too, and the plainest usage."""
    choices = [_in_message(choice, reasoning="Let me see.") for choice in body["choices"]]
    for choice in choices:
        message = choice.get("message") or choice["delta"]
        message["content"] = message.get("content") or ""
        for place, call in enumerate(message.get("tool_calls") or ()):
            call.setdefault("index", place)
        choice.pop("logprobs", None)
    made = {**body, "system_fingerprint": "fp_ollama", "choices": choices}
    if body.get("usage"):
        made["usage"] = {**body["usage"]}
        del made["usage"]["prompt_tokens_details"]
    return made


def as_llama_cpp(body: Body) -> Body:
    """With the server's own counts beside the usage, and a reply that only calls tools without text."""
    choices = [_in_message(choice, reasoning_content="Let me see.") for choice in body["choices"]]
    timings = {"cache_n": 5, "prompt_n": 7, "predicted_n": 4, "predicted_ms": 1.5}
    return {**body, "system_fingerprint": "b11549", "timings": timings, "choices": choices}


def as_silent(body: Body) -> Body:
    """Without any count."""
    return {**body, "usage": None}


def _in_message(choice: Body, **more: Any) -> Body:
    name = "message" if "message" in choice else "delta"
    if "role" not in choice[name]:  # a later piece
        return choice
    return {**choice, name: {**choice[name], **more}}


def _tools(body: Body) -> dict[str, Body]:
    if body.get("tool_choice") == "none":
        return {}
    return {tool["function"]["name"]: tool["function"] for tool in body.get("tools") or ()}


def _argument(tool: Body) -> str:
    parameters = tool.get("parameters") or {}
    names = parameters.get("required") or list(parameters.get("properties") or ()) or ["query"]
    return "query" if "query" in names else str(names[0])


def _call(name: str, tool: str, arguments: Body) -> Body:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"id": name, "type": "function", "function": function}


def _words(messages: Sequence[Body]) -> int:
    return sum(len(_text(held).split()) for held in messages)


def _text(message: Body) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def _seen(messages: Sequence[Body]) -> Seen:
    """The turn that follows the last answer; some frameworks send calls and results as plain texts."""
    question, rounds = "", 0
    passages: list[str] = []
    for message in messages:
        text = _text(message)
        if message["role"] == "assistant":
            if message.get("tool_calls") or text.lstrip().startswith("Calling tools:"):
                rounds += 1
            elif text:
                question, rounds, passages = "", 0, []
        elif message["role"] == "tool" or text.startswith("Observation"):
            passages.append(text)
        elif message["role"] == "user":
            question = question or text
    return Seen(question=question, rounds=rounds, passages=tuple(passages))


def _logprobs(text: str) -> Body:
    words = text.split(" ")
    tokens = [word if place == 0 else f" {word}" for place, word in enumerate(words)]
    none: Body = {"bytes": None, "top_logprobs": []}
    return {"content": [{"token": token, "logprob": -0.1, **none} for token in tokens]}


def _usage(prompt: int, completion: int, cached: int) -> Body:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _pieces(message: Body, finish: str, logprobs: Body | None) -> Iterator[Body]:
    """The choices of a stream: the role, words or halves of arguments, the end."""

    def piece(delta: Body, reason: str | None = None, tokens: Any = None) -> Body:
        held = None if tokens is None else {"content": tokens}
        return {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": held}

    yield piece({"role": "assistant", "content": ""})
    words = (message.get("content") or "").split(" ")
    entries = None if logprobs is None else logprobs["content"]
    for place, word in enumerate(words if message.get("content") else ()):
        last = place == len(words) - 1
        tokens = (
            None if entries is None else entries[place:] if last else entries[place : place + 1]
        )
        yield piece({"content": word if place == 0 else f" {word}"}, tokens=tokens)
    for index, call in enumerate(message.get("tool_calls") or ()):
        arguments = call["function"]["arguments"]
        half = len(arguments) // 2
        opening = {**call["function"], "arguments": arguments[:half]}
        yield piece({"tool_calls": [{**call, "index": index, "function": opening}]})
        rest = {"index": index, "function": {"arguments": arguments[half:]}}
        yield piece({"tool_calls": [rest]})
    yield piece({}, finish)

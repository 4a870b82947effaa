"""A chat model behind any server that speaks the OpenAI protocol."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from suffice.concurrency import CallTally, as_here
from suffice.contracts import Completion, Generation, GenerationRequest, Message
from suffice.errors import UsageError
from suffice.llm.endpoint import Endpoint, OpenAISettings, Send
from suffice.llm.replies import EventReply, UntrustedEvents, parse_completions
from suffice.llm.wire import (
    BrokenReply,
    Closable,
    NullReply,
    check_request,
    request_body,
    schema_text,
)
from suffice.trace.rounds.records import known_sum
from suffice.trace.usage import Counts, read_counts

_NOT_SO = (400, 422)  # refusals of a request as it was written
_FORMS = ("json_schema", "json_object", "none")
_SCHEMA_FIELDS = ("response_format", "json_schema", "structured_outputs")
_ABOUT_THE_SCHEMA = (*_SCHEMA_FIELDS, "json schema", "json_object", "structured output", "grammar")


@dataclass(slots=True)
class _Learnt:
    """Hold the server's missing abilities; each changes only once, so races are harmless."""

    no_logprobs: bool = False
    no_n: bool = False
    no_stream: bool = False
    completion_tokens_name: bool = False
    counts_first_choice: bool = False
    null_is_empty: bool = False
    probed: bool | None = None
    schema_form: int = 0  # into _FORMS; only ever raised


class OpenAICompatibleModel(Closable):
    """Use a model behind an OpenAI-compatible URL; a :class:`suffice.contracts.ChatModel`.

    It detects missing features of a server once and works around them. If the server rejects
    log-probabilities, it stops requesting them (``tokens`` is then ``None``). If the server draws only one
    sample, it sends parallel requests and sums their usage. Sample i has ``seed + i`` if a seed is set. If
    the server rejects a ``json_schema``, it requests any JSON object, and if that fails, no format. So a
    reply may have any form. It streams a text as events, unless the server refuses them or counts no tokens
    with them.

    llama.cpp counts the tokens of the first of several choices only. For such a server the count comes from
    the tokens themselves, or is ``None`` if they are unknown.
    """

    def __init__(
        self, url: str, model: str | None = None, *, settings: OpenAISettings | None = None
    ) -> None:
        self._settings = settings or OpenAISettings()
        self._server = Endpoint(url, self._settings)
        self._where, self._learnt = self._server.url, _Learnt()
        self.tally: CallTally = self._server.tally
        self.api = self._settings.api
        self.concurrency: int = self._settings.concurrency
        self.name: str = model or self._only_model()

    @property
    def endpoint(self) -> str:
        extra = self._settings.extra_body
        return f"{self._where} {json.dumps(dict(extra), sort_keys=True)}" if extra else self._where

    def generate(self, request: GenerationRequest) -> Generation:
        check_request(request, self.api, self.name)
        start = time.perf_counter()
        got, cost = self._in_a_slot(request)
        completions, costs, drawn, most = [*got], [cost], len(got), len(got)
        while len(completions) < request.n:  # it draws so many at a time; the others side by side
            missing = range(len(completions), request.n, most)
            parts = [
                replace(
                    request,
                    n=min(most, request.n - have),
                    seed=None if request.seed is None else request.seed + drawn + most * number,
                )
                for number, have in enumerate(missing)
            ]
            drawn += most * len(parts)
            at_once = min(len(parts), self._settings.concurrency)
            with ThreadPoolExecutor(at_once) as pool:
                for part, (got, cost) in zip(
                    parts, pool.map(as_here(self._in_a_slot), parts), strict=True
                ):
                    completions += got[: part.n]
                    costs.append(cost)
        elapsed = time.perf_counter() - start
        return Generation(
            completions=tuple(completions[: request.n]),
            model=self.name,
            prompt_tokens=known_sum([cost.prompt for cost in costs]),
            cached_tokens=known_sum([cost.cached for cost in costs]),
            completion_tokens=known_sum([cost.completion for cost in costs]),
            latency_s=elapsed,
        )

    def supports_logprobs(self) -> bool:
        """Say whether the server gives log-probabilities; the first call asks for one token."""
        if self._learnt.probed is None:
            prompt = (Message(role="user", content="Hi"),) if self.api == "chat" else "Hi"
            reply = self.generate(GenerationRequest(prompt=prompt, max_tokens=1, top_logprobs=1))
            self._learnt.probed = reply.completions[0].tokens is not None
        return self._learnt.probed

    def close(self) -> None:
        self._server.close()

    def _only_model(self) -> str:
        def read(payload: object) -> list[str] | None:
            """The models that are listed; ``None``: what came is no list of models."""
            listed = payload.get("data") if isinstance(payload, Mapping) else None
            named = isinstance(listed, list) and all(
                isinstance(model, Mapping) and model.get("id") is not None for model in listed
            )
            return [str(model["id"]) for model in listed or ()] if named else None

        names = None
        with suppress(BrokenReply):
            names = self._server.ask(
                lambda client: client.models.with_streaming_response.list(), read, model="(any)"
            )
        if names is None:
            raise UsageError(f"{self._where} does not list its models; name one")
        if len(names) != 1:
            raise UsageError(
                f"{self._where} has {len(names)} models; name one: {', '.join(sorted(names)) or '(none)'}"
            )
        return names[0]

    def _in_a_slot(self, request: GenerationRequest) -> tuple[tuple[Completion, ...], Counts]:
        with self._server.slots:
            return self._ask(request)

    def _ask(
        self, request: GenerationRequest, form: int = 0
    ) -> tuple[tuple[Completion, ...], Counts]:
        learnt = self._learnt
        if learnt.no_n:
            request = replace(request, n=1)
        form = max(form, learnt.schema_form)
        body = self._body(request, _FORMS[form])
        events = None
        if request.tell is not None and request.n == 1 and not learnt.no_stream:
            events = EventReply(request.tell)
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        asked = request.top_logprobs
        source = f"{self._where} (model {self.name!r})"
        nulls = 0

        def read(payload: object) -> tuple[tuple[Completion, ...], Counts]:
            nonlocal nulls
            try:
                completions = parse_completions(
                    payload, top_logprobs=asked, source=source, null_is_empty=learnt.null_is_empty
                )
            except NullReply:
                nulls += 1
                if nulls <= self._settings.max_retries:
                    raise
                learnt.null_is_empty = True  # every attempt said so: the model means it
                return read(payload)
            if not completions:
                raise BrokenReply(f"{source} sent a reply without any text; check the server's log")
            return completions, self._honest(payload, completions)

        try:
            completions, cost = self._server.ask(
                self._sending(body), read, model=self.name, events=events
            )
        except UntrustedEvents:
            if events is None:
                raise
            learnt.no_stream = True  # plainly asked it may give the whole text
            return self._ask(request, form)
        except UsageError as error:
            if getattr(error.__cause__, "status_code", None) not in _NOT_SO:
                raise
            said = str(error.__cause__)
            shaped = any(name in body for name in _SCHEMA_FIELDS)
            if shaped and any(words in said.lower() for words in _ABOUT_THE_SCHEMA):
                return self._ask(request, form + 1)
            if not self._adapt(said, body):
                raise
            return self._ask(request, form)
        if events is not None and cost.completion is None:
            learnt.no_stream = True  # what it does not count cannot be kept within a budget
        # not before it worked: servers that refuse a request for another reason may quote all of it
        learnt.schema_form = max(form, learnt.schema_form)
        if not asked:
            completions = tuple(replace(completion, tokens=None) for completion in completions)
        return completions, cost

    def _body(self, request: GenerationRequest, form: str) -> dict[str, Any]:
        learnt = self._learnt
        body = request_body(request)
        if learnt.no_logprobs:
            body.pop("logprobs", None)
            body.pop("top_logprobs", None)
        elif learnt.counts_first_choice and request.n > 1 and "logprobs" not in body:
            body["logprobs"] = True if self.api == "chat" else 1  # to count the tokens
        if learnt.completion_tokens_name:
            body["max_completion_tokens"] = body.pop("max_tokens")
        if request.json_schema is not None:
            _shape(body, form, request.json_schema)
        return body

    def _sending(self, body: Mapping[str, Any]) -> Send:
        prompt = "messages" if self.api == "chat" else "prompt"
        further = {name: value for name, value in body.items() if name != prompt}

        def send(client: Any) -> Any:
            completions = client.chat.completions if self.api == "chat" else client.completions
            return completions.with_streaming_response.create(
                model=self.name,
                extra_body={**further, **self._settings.extra_body},
                **{prompt: body[prompt]},
            )

        return send

    def _adapt(self, message: str, body: Mapping[str, Any]) -> bool:
        learnt, said = self._learnt, message.lower()
        if "logprob" in said and "logprobs" in body:
            learnt.no_logprobs = True
        elif "stream" in said and "stream" in body:
            learnt.no_stream = True
        elif "max_completion_tokens" in said and "max_tokens" in body:
            learnt.completion_tokens_name = True
        elif body.get("n", 1) > 1 and any(quoted in said for quoted in ("'n'", '"n"', "`n`")):
            learnt.no_n = True
        else:
            return False
        return True

    def _honest(self, payload: object, completions: tuple[Completion, ...]) -> Counts:
        cost = read_counts(payload)
        if isinstance(payload, dict) and "timings" in payload:
            self._learnt.counts_first_choice = True
        if len(completions) < 2 or not self._learnt.counts_first_choice:
            return cost
        if any(completion.tokens is None for completion in completions):
            return replace(cost, completion=None)
        drawn = sum(len(completion.tokens or ()) for completion in completions)
        return replace(cost, completion=max(drawn, cost.completion or 0))


def _shape(body: dict[str, Any], form: str, schema: Mapping[str, Any]) -> None:
    if form == "json_schema":
        if "json_schema" in body:  # llama.cpp's word for completions; the other is vLLM's
            body["structured_outputs"] = {"json": json.loads(schema_text(schema))}
        return
    for name in _SCHEMA_FIELDS:
        body.pop(name, None)
    if form == "json_object":
        body["response_format"] = {"type": "json_object"}

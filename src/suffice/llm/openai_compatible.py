"""Any server that speaks the OpenAI protocol."""

from __future__ import annotations

import copy
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, Self

from suffice._optional import require
from suffice.concurrency import AdaptiveLimit, Concurrency, Slots, WorkFor
from suffice.errors import BackendError, UsageError
from suffice.llm.translation import translate
from suffice.llm.wire import (
    Api,
    Counts,
    check_request,
    counts,
    parse_completions,
    request_body,
    schema_text,
)
from suffice.protocols import Completion, Generation, GenerationRequest, Message

_NO_KEY = "none"  # local servers ask for a key and read none
_NOTHING: Mapping[str, object] = MappingProxyType({})
_PUSHED_BACK = (408, 429)
_FORMS = ("json_schema", "json_object", "none")
_SCHEMA_FIELDS = ("response_format", "json_schema", "structured_outputs")
_ABOUT_THE_SCHEMA = (*_SCHEMA_FIELDS, "json schema", "json_object", "structured output", "grammar")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAISettings:
    """How a server is asked.

    Parameters
    ----------
    api
        ``chat`` or ``completion``.
    api_key
        ``None``: the environment variable ``OPENAI_API_KEY``, else a dummy, which local servers take.
    timeout_s
        Seconds a single attempt may take.
    max_retries
        Further attempts after 408, 409, 429, 5xx and lost connections, with growing pauses or the
        pause the server asks for.
    concurrency
        Requests in flight at most, over all threads; ``auto``: found by trying, see
        :class:`suffice.concurrency.AdaptiveLimit`.
    max_concurrency
        How far ``auto`` goes.
    extra_body
        Fields added to every request, for options only this server has.
    """

    api: Api = "chat"
    api_key: str | None = field(default=None, repr=False)
    timeout_s: float = 60.0
    max_retries: int = 4
    concurrency: int | Literal["auto"] = 8
    max_concurrency: int = 100
    extra_body: Mapping[str, object] = field(default_factory=lambda: _NOTHING)

    def __post_init__(self) -> None:
        if self.api not in ("chat", "completion"):
            raise UsageError(f"api must be 'chat' or 'completion', found {self.api!r}")
        for name, low in (("max_retries", 0), ("concurrency", 1), ("max_concurrency", 1)):
            value = getattr(self, name)
            if value != "auto" and (isinstance(value, str) or value < low):
                word = ", or 'auto'" if name == "concurrency" else ""
                raise UsageError(f"{name} must be at least {low}{word}, found {value!r}")
        if not self.timeout_s > 0:
            raise UsageError(f"timeout_s must be above 0, found {self.timeout_s}")


@dataclass(slots=True)
class _Learnt:
    """What the server turned out not to do. Only ever set to the other value, so safe to race."""

    no_logprobs: bool = False
    no_n: bool = False
    completion_tokens_name: bool = False
    counts_first_choice: bool = False
    probed: bool | None = None
    schema_form: int = 0  # into _FORMS; only ever raised


class OpenAICompatibleModel:
    """A model behind an OpenAI-compatible URL; a :class:`suffice.protocols.ChatModel`.

    What a server lacks is found out once and worked around: log-probabilities it rejects are no
    longer asked for (``tokens`` is then ``None``), samples it does not give are asked for again, with
    ``seed + i`` for sample i where a seed is set. Usage is summed over the requests this takes. Where a
    ``json_schema`` is rejected, any JSON object is asked for instead, and where that is rejected, nothing:
    a reply may have any form, as it may from a server that leaves out what it does not know.

    llama.cpp counts the tokens of the first of several choices only. From such a server the count is
    taken from the tokens themselves, or is ``None`` while they are not known.

    Parameters
    ----------
    url
        Base URL, often ending in ``/v1``.
    model
        The name the server knows the model by; ``None``: the only one it has.
    settings
        See :class:`OpenAISettings`.

    Raises
    ------
    MissingExtra
        When the extra ``openai`` is not installed.
    UsageError
        When the URL is none, or no model is named and the server has several.
    """

    def __init__(
        self, url: str, model: str | None = None, *, settings: OpenAISettings | None = None
    ) -> None:
        self._settings = settings or OpenAISettings()
        self._limit = call_limit(self._settings)
        self._slots = Slots(self._limit)
        self._attempts = _Attempts(self._slots)
        self._client = open_client(url, self._settings, self._attempts)
        self._openai = require("openai", extra="openai", purpose="A model server")
        self._url = url.rstrip("/")
        self._learnt = _Learnt()
        self._name = model or self._only_model()

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    @property
    def api(self) -> Api:
        """Which interface is used."""
        return self._settings.api

    @property
    def endpoint(self) -> str:
        """The URL, and the extra fields where there are any."""
        extra = self._settings.extra_body
        return f"{self._url} {json.dumps(dict(extra), sort_keys=True)}" if extra else self._url

    @property
    def call_limit(self) -> int | AdaptiveLimit:
        """Requests in flight at most, or what finds how many."""
        return self._limit

    @property
    def calls_at_once(self) -> int:
        """Requests in flight at most, at present."""
        return self._slots.now

    @property
    def concurrency(self) -> Concurrency:
        """How many pieces of work at a time suit it: as many as requests may be in flight."""
        return self._limit if isinstance(self._limit, int) else WorkFor((self._limit,))

    def generate(self, request: GenerationRequest) -> Generation:
        """Draw the completions.

        Raises
        ------
        UsageError
            When the server refuses the request, the key or the model's name.
        BackendError
            When it cannot be reached, keeps failing, or sends what is no reply.
        """
        check_request(request, self.api, self.name)
        with self._slots.taken():
            start = time.perf_counter()
            completions: list[Completion] = []
            costs: list[Counts] = []
            while len(completions) < request.n:
                got, cost = self._ask(_rest(request, len(completions)))
                completions += got
                costs.append(cost)
            elapsed = time.perf_counter() - start
        return Generation(
            completions=tuple(completions[: request.n]),
            model=self.name,
            prompt_tokens=_total([cost.prompt for cost in costs]),
            cached_tokens=_total([cost.cached for cost in costs]),
            completion_tokens=_total([cost.completion for cost in costs]),
            latency_s=elapsed,
        )

    def supports_logprobs(self) -> bool:
        """Whether the server gives log-probabilities; asks for one token the first time."""
        if self._learnt.probed is None:
            prompt = (Message(role="user", content="Hi"),) if self.api == "chat" else "Hi"
            reply = self.generate(GenerationRequest(prompt=prompt, max_tokens=1, top_logprobs=1))
            self._learnt.probed = reply.completions[0].tokens is not None
        return self._learnt.probed

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def but(self, *, model: str, max_retries: int) -> Self:
        """The same server with its connections, its slots and what was learnt of it, asked otherwise."""
        other = copy.copy(self)
        vars(other)["_name"] = model
        vars(other)["_client"] = self._client.with_options(max_retries=max_retries)
        return other

    def served(self, *, timeout_s: float) -> tuple[str, ...]:
        """The models that the server says it serves; none where it does not list them.

        Raises
        ------
        NoReply
            When it cannot be reached, asked once.
        """
        client = self._client.with_options(timeout=timeout_s, max_retries=0)
        try:
            return self._names(client) or ()
        except UsageError:  # whoever asks it for more is told why
            return ()

    def _only_model(self) -> str:
        names = self._names(self._client)
        if names is None:
            raise UsageError(f"{self._url} does not list its models; name one")
        if len(names) != 1:
            raise UsageError(
                f"{self._url} has {len(names)} models; name one: {', '.join(sorted(names)) or '(none)'}"
            )
        return names[0]

    def _names(self, client: Any) -> tuple[str, ...] | None:
        """``None``: what came is no list of models."""
        try:
            return tuple(str(model.id) for model in client.models.list())
        except self._openai.OpenAIError as error:
            raise translate(error, url=self._url, model="(any)") from error
        except (AttributeError, TypeError, ValueError):
            return None

    def _ask(
        self, request: GenerationRequest, form: int = 0
    ) -> tuple[tuple[Completion, ...], Counts]:
        """One exchange; fewer texts than asked for when the server draws fewer."""
        learnt = self._learnt
        if learnt.no_n:
            request = replace(request, n=1)
        form = max(form, learnt.schema_form)
        body = self._body(request, _FORMS[form])
        try:
            payload = self._post(body)
        except (self._openai.BadRequestError, self._openai.UnprocessableEntityError) as error:
            if _refuses_schema(str(error), body):
                return self._ask(request, form + 1)
            if not self._adapt(str(error), body):
                raise translate(error, url=self._url, model=self.name) from error
            return self._ask(request, form)
        except self._openai.OpenAIError as error:
            raise translate(error, url=self._url, model=self.name) from error
        # not before it worked: servers that refuse a request for another reason may quote all of it
        learnt.schema_form = max(form, learnt.schema_form)
        source = f"{self._url} (model {self.name!r})"
        asked = request.top_logprobs
        completions = parse_completions(payload, top_logprobs=asked, source=source)
        if not completions:
            raise BackendError(f"{source} sent a reply without any text; check the server's log")
        cost = self._honest(payload, completions)
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

    def _post(self, body: Mapping[str, Any]) -> object:
        interface = (
            self._client.chat.completions if self.api == "chat" else self._client.completions
        )
        # the package's signatures do not have them all
        shape = {name: body[name] for name in _SCHEMA_FIELDS if name in body}
        known = {name: value for name, value in body.items() if name not in shape}
        with self._attempts.heard():
            raw = interface.with_raw_response.create(
                model=self.name, extra_body=shape | dict(self._settings.extra_body) or None, **known
            )
        return reply_json(raw, self._url)

    def _adapt(self, message: str, body: Mapping[str, Any]) -> bool:
        """Learn from a refusal; whether asking again otherwise makes sense."""
        learnt, said = self._learnt, message.lower()
        if "logprob" in said and "logprobs" in body:
            learnt.no_logprobs = True
        elif "max_completion_tokens" in said and "max_tokens" in body:
            learnt.completion_tokens_name = True
        elif body.get("n", 1) > 1 and any(quoted in said for quoted in ("'n'", '"n"', "`n`")):
            learnt.no_n = True
        else:
            return False
        return True

    def _honest(self, payload: object, completions: tuple[Completion, ...]) -> Counts:
        cost = counts(payload)
        if isinstance(payload, dict) and "timings" in payload:
            self._learnt.counts_first_choice = True
        if len(completions) < 2 or not self._learnt.counts_first_choice:
            return cost
        if any(completion.tokens is None for completion in completions):
            return replace(cost, completion=None)
        drawn = sum(len(completion.tokens or ()) for completion in completions)
        return replace(cost, completion=max(drawn, cost.completion or 0))


def call_limit(settings: OpenAISettings) -> int | AdaptiveLimit:
    """How many requests of one server may be in flight, as the settings say."""
    if settings.concurrency == "auto":
        return AdaptiveLimit(most=settings.max_concurrency)
    return settings.concurrency


class _Attempts:
    """Hears of every attempt of a client, of those too that it makes again by itself."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._here = threading.local()

    @property
    def hooks(self) -> dict[str, list[Any]]:
        """What an HTTP client calls before a request and after a response."""
        return {"request": [self._sent], "response": [self._replied]}

    @contextmanager
    def heard(self) -> Iterator[None]:
        """One request, with its further attempts."""
        self._here.unanswered = False
        try:
            yield
        finally:
            self._sent(None)

    def _sent(self, _: object) -> None:
        if getattr(self._here, "unanswered", False):
            self._slots.push_back()
        self._here.unanswered = True

    def _replied(self, response: Any) -> None:
        self._here.unanswered = False
        if response.status_code in _PUSHED_BACK or response.status_code >= 500:
            self._slots.push_back()


def open_client(url: str, settings: OpenAISettings, attempts: _Attempts | None = None) -> Any:
    """An ``openai.OpenAI`` for a server's base URL; ``attempts`` are told of each where limits adapt.

    Raises
    ------
    MissingExtra
        When the extra ``openai`` is not installed.
    UsageError
        When the URL is none.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"a server's URL starts with http:// or https://, found {url!r}")
    openai = require("openai", extra="openai", purpose="A model server")
    http_client = None
    if attempts is not None and settings.concurrency == "auto":
        http_client = _http_client(openai.DefaultHttpxClient, attempts)
    return openai.OpenAI(
        api_key=settings.api_key or os.environ.get("OPENAI_API_KEY") or _NO_KEY,
        base_url=url.rstrip("/"),
        timeout=settings.timeout_s,
        max_retries=settings.max_retries,
        http_client=http_client,
    )


def _http_client(kind: Any, attempts: _Attempts) -> Any:
    """One that is closed when nobody needs it any more, as the package's own is."""

    class Heard(kind):  # type: ignore[misc]
        def __del__(self) -> None:
            if not self.is_closed:
                self.close()

    return Heard(event_hooks=attempts.hooks)


def reply_json(raw: Any, url: str) -> object:
    """The JSON of one of the client's raw responses; a :class:`BackendError` when it is none."""
    text = raw.http_response.text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BackendError(
            f"{url} sent a reply that is not JSON ({error}): {text[:200]!r}. Check that the "
            "URL is that of an OpenAI-compatible interface (it often ends in /v1)"
        ) from error


def _shape(body: dict[str, Any], form: str, schema: Mapping[str, Any]) -> None:
    """Put how the reply shall be formed in the words of ``form``."""
    if form == "json_schema":
        if "json_schema" in body:  # llama.cpp's word for completions; the other is vLLM's
            body["structured_outputs"] = {"json": json.loads(schema_text(schema))}
        return
    for name in _SCHEMA_FIELDS:
        body.pop(name, None)
    if form == "json_object":
        body["response_format"] = {"type": "json_object"}


def _refuses_schema(message: str, body: Mapping[str, Any]) -> bool:
    said = message.lower()
    asked = any(name in body for name in _SCHEMA_FIELDS)
    return asked and any(words in said for words in _ABOUT_THE_SCHEMA)


def _rest(request: GenerationRequest, have: int) -> GenerationRequest:
    """The request for the samples still missing."""
    seed = None if request.seed is None else request.seed + have
    return replace(request, n=request.n - have, seed=seed)


def _total(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None

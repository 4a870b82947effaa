from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from tests.server import Answer, Body, Server, refuse

from suffice.contracts import ChatModel, Generation, GenerationRequest, Message
from suffice.errors import BackendError, UsageError
from suffice.llm.endpoint import OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel

CHAT = GenerationRequest(prompt=(Message(role="user", content="Hi"),))
PLAIN = GenerationRequest(prompt="Hi")


def chat_reply(body: Body) -> Answer:
    """What a server answers that does everything asked for."""
    content = [
        {
            "token": "ok",
            "logprob": -0.5,
            "top_logprobs": [{"token": "ok", "logprob": -0.5}, {"token": "no", "logprob": -1.0}],
        }
    ]
    choices = [
        {
            "index": i,
            "message": {"role": "assistant", "content": f"ok {body.get('seed', 0) + i}"},
            "finish_reason": "stop",
            "logprobs": {"content": content} if body.get("logprobs") else None,
        }
        for i in range(body.get("n", 1))
    ]
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 2 * len(choices),
        "prompt_tokens_details": {"cached_tokens": 6},
    }
    return 200, {}, {"choices": choices, "usage": usage, "surprise": {"a": 1}}


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server(chat_reply)
    yield running
    running.close()


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def ask(server: Server, request: GenerationRequest = CHAT, **settings: Any) -> Generation:
    chosen = OpenAISettings(
        api="completion" if isinstance(request.prompt, str) else "chat",
        **{"first_pause_s": 0.001, **settings},
    )
    with OpenAICompatibleModel(server.url, "m", settings=chosen) as model:
        return model.generate(request)


def test_a_chat_with_everything(server: Server) -> None:
    reply = ask(server, replace(CHAT, n=2, seed=3, top_logprobs=1, stop=("\n",)))
    assert [completion.text for completion in reply.completions] == ["ok 3", "ok 4"]
    tokens = reply.completions[0].tokens
    assert tokens is not None
    assert [(t.token, t.logprob, len(t.top)) for t in tokens] == [("ok", -0.5, 1)]
    assert (reply.prompt_tokens, reply.cached_tokens, reply.completion_tokens) == (10, 6, 4)
    assert reply.model == "m"
    assert reply.latency_s is not None
    assert server.paths == ["/v1/chat/completions"]
    assert server.bodies[0] == {
        "model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0.0,
        "top_p": 1.0, "max_tokens": 64, "n": 2, "seed": 3, "stop": ["\n"], "logprobs": True,
        "top_logprobs": 1,
    }  # fmt: skip


def test_the_servers_pause_is_kept(server: Server) -> None:
    server.answers((429, {"retry-after": "1"}, {}), chat_reply)
    start = time.perf_counter()
    ask(server)
    assert time.perf_counter() - start >= 1.0


def test_the_callers_mistakes_are_not_retried(server: Server) -> None:
    server.answers(refuse(422, "nope"))
    with pytest.raises(UsageError, match="nope"):
        ask(server)
    assert len(server.bodies) == 1


def test_missing_samples_are_asked_for_again(server: Server) -> None:
    server.answer = lambda body: chat_reply(body | {"n": min(body.get("n", 1), 2)})
    reply = ask(server, replace(CHAT, n=5, seed=10, temperature=0.7))
    assert [c.text for c in reply.completions] == [f"ok {10 + i}" for i in range(5)]
    bodies = sorted(server.bodies, key=lambda body: int(body["seed"]))
    assert [(b.get("n"), b["seed"]) for b in bodies] == [(5, 10), (2, 12), (None, 14)]
    assert (reply.prompt_tokens, reply.cached_tokens, reply.completion_tokens) == (30, 18, 10)


def test_a_server_that_refuses_n_is_asked_singly(server: Server) -> None:
    def only_one(body: Body) -> Answer:
        if body.get("n", 1) > 1:
            return refuse(400, "Field 'n': Value must be between 1 <= value <= 1")
        return chat_reply(body)

    server.answers(only_one)
    reply = ask(server, replace(CHAT, n=3, seed=0))
    assert [c.text for c in reply.completions] == ["ok 0", "ok 1", "ok 2"]
    assert len(server.bodies) == 4


def test_samples_that_a_server_draws_singly_are_drawn_side_by_side(server: Server) -> None:
    together = threading.Barrier(4, timeout=5)

    def singly(body: Body) -> Answer:
        if body["seed"] > 0:
            together.wait()
        return chat_reply(body | {"n": 1})

    server.answer = singly
    reply = ask(server, replace(CHAT, n=5, seed=0))
    assert [c.text for c in reply.completions] == [f"ok {i}" for i in range(5)]


@pytest.mark.parametrize(
    ("field", "said", "asked"),
    [
        ("logprobs", "This model does not support logprobs", {"top_logprobs": 5}),
        ("max_tokens", "Unsupported parameter: use 'max_completion_tokens' instead.", {}),
        ("stream", "unknown field: stream_options", {"tell": pytest.fail}),
    ],
)
def test_what_a_server_refuses_is_not_asked_for_again(
    server: Server, field: str, said: str, asked: dict[str, Any]
) -> None:
    server.answer = lambda body: refuse(400, said) if field in body else chat_reply(body)
    with OpenAICompatibleModel(server.url, "m") as model:
        for _ in range(2):
            (completion,) = model.generate(replace(CHAT, **asked)).completions
            assert (completion.text, completion.tokens) == ("ok 0", None)
        if field == "logprobs":
            assert not model.supports_logprobs()
    assert [field in body for body in server.bodies][:3] == [True, False, False]
    renamed = 64 if field == "max_tokens" else None
    assert server.bodies[-1].get("max_completion_tokens") == renamed


def test_logprobs_are_probed_once(server: Server) -> None:
    with OpenAICompatibleModel(server.url, "m") as model:
        assert [model.supports_logprobs(), model.supports_logprobs()] == [True, True]
    assert [body["max_tokens"] for body in server.bodies] == [1]


def test_a_server_that_counts_the_first_choice_only(server: Server) -> None:
    def llama_cpp(body: Body) -> Answer:
        status, headers, reply = chat_reply(body)
        assert isinstance(reply, dict)
        reply["usage"]["completion_tokens"] = 1
        return status, headers, reply | {"timings": {}}

    server.answers(llama_cpp)
    samples = replace(CHAT, n=3, temperature=0.8)
    with OpenAICompatibleModel(server.url, "m") as model:
        assert model.generate(samples).completion_tokens is None
        second = model.generate(samples)
    assert second.completion_tokens == 3
    assert all(completion.tokens is None for completion in second.completions)


def test_requests_in_flight_never_exceed_the_limit(server: Server) -> None:
    lock, running, peak = threading.Lock(), 0, 0

    def counted(body: Body) -> Answer:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return chat_reply(body)

    server.answers(counted)
    with (
        OpenAICompatibleModel(server.url, "m", settings=OpenAISettings(concurrency=3)) as model,
        ThreadPoolExecutor(12) as pool,
    ):
        list(pool.map(lambda _: model.generate(CHAT), range(36)))
    assert peak == 3


def test_keys(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(server)
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    ask(server)
    ask(server, api_key="given")
    assert server.keys == ["Bearer none", "Bearer from-environment", "Bearer given"]
    assert "given" not in repr(OpenAISettings(api_key="given"))


def test_the_only_model_is_found(server: Server) -> None:
    with OpenAICompatibleModel(server.url) as model:
        assert isinstance(model, ChatModel)
        assert model.name == "only"
    server.models = ["b", "a"]
    with pytest.raises(UsageError, match="2 models; name one: a, b"):
        OpenAICompatibleModel(server.url)


SCHEMA = {"type": "object", "properties": {"plan": {"type": "string"}}}
SHAPED = replace(CHAT, json_schema=SCHEMA)
SHAPED_PLAIN = replace(PLAIN, json_schema=SCHEMA)
FORM = {"type": "json_schema", "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True}}
OBJECT = {"type": "json_object"}


def test_a_schema_for_a_completion_in_the_words_of_llama_cpp_and_vllm(server: Server) -> None:
    ask(server, SHAPED_PLAIN, extra_body={"top_k": 1})
    (body,) = server.bodies
    assert body["json_schema"].items() >= SCHEMA.items()
    assert body["structured_outputs"] == {"json": SCHEMA}
    assert body["top_k"] == 1
    assert "response_format" not in body


@pytest.mark.parametrize("status", [400, 422])
def test_a_rejected_schema_is_asked_for_as_an_object_and_then_not_at_all(
    server: Server, status: int
) -> None:
    known: set[str] = set()

    def picky(body: Body) -> Answer:
        form = body.get("response_format", {"type": "text"})["type"]
        unknown = refuse(status, f"response_format of type {form!r} is not supported")
        return chat_reply(body) if form in known | {"text"} else unknown

    server.answers(picky)
    for knows, asked in (
        ("json_object", [FORM, OBJECT, OBJECT]),
        ("text", [FORM, OBJECT, None, None]),
    ):
        known.add(knows) if knows == "json_object" else known.clear()
        server.bodies.clear()
        with OpenAICompatibleModel(server.url, "m") as model:
            for _ in range(2):
                assert model.generate(SHAPED).completions[0].text == "ok 0"
        assert [body.get("response_format") for body in server.bodies] == asked


def test_a_refusal_that_quotes_the_request_teaches_nothing(server: Server) -> None:
    def quoting(body: Body) -> Answer:
        if body["max_tokens"] > 64:
            return refuse(400, f"prompt is too long: {json.dumps(body)}, response_format")
        return chat_reply(body)

    server.answers(quoting)
    with OpenAICompatibleModel(server.url, "m") as model:
        with pytest.raises(BackendError, match="too long"):
            model.generate(replace(SHAPED, max_tokens=65))
        model.generate(SHAPED)
    assert server.bodies[-1]["response_format"] == FORM


# --- told as it comes -----------------------------------------------------------------------------
def events(*documents: object, end: bool = True) -> bytes:
    lines = [f"data: {json.dumps(document)}\n\n" for document in documents]
    return "".join([": hello\n\n", *lines, "data: [DONE]\n\n" if end else ""]).encode()


def delta(text: str, finish: str | None = None, logprob: float = -0.5) -> dict[str, Any]:
    held = {"content": [{"token": text, "logprob": logprob, "top_logprobs": []}]}
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish, "logprobs": held}
    return {"choices": [choice], "usage": None}


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}


def test_a_reply_in_events_is_told_and_read_like_one_in_a_piece(server: Server) -> None:
    stream = events(delta("Os"), delta("lø", "stop"), USAGE)
    server.answers((200, {"content-type": "text/event-stream"}, stream))
    pieces: list[str] = []
    model = OpenAICompatibleModel(server.url)
    reply = model.generate(replace(CHAT, top_logprobs=1, tell=pieces.append))
    assert pieces == ["Os", "lø"]
    (completion,) = reply.completions
    assert completion.text == "Oslø"
    assert [token.token for token in completion.tokens or ()] == ["Os", "lø"]
    assert (reply.prompt_tokens, reply.completion_tokens) == (7, 2)
    (body,) = server.bodies
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


def test_what_was_told_is_not_told_again_after_a_broken_stream(server: Server) -> None:
    broken = events(delta("Os"), end=False)
    whole = events(delta("Os"), delta("lo", "stop"), USAGE)
    kind = {"content-type": "text/event-stream"}
    server.answers((200, kind, broken), (200, kind, whole))
    pieces: list[str] = []
    reply = ask(server, replace(CHAT, tell=pieces.append))
    assert pieces == ["Os"]
    assert reply.completions[0].text == "Oslo"

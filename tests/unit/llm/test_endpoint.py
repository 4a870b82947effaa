"""A server that misbehaves: what is tried again, how much is read, how long is waited, what is told."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import tracemalloc
from dataclasses import replace
from email.utils import formatdate

import pytest
from tests.faulty_server import ABSURD_USAGE, FAULTS, Amounts, FaultyServer, Misbehaviour

from suffice.concurrency import Aside
from suffice.contracts import Generation, GenerationRequest, Message
from suffice.llm.endpoint import EndpointEncoder, OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel
from suffice.llm.wire import BrokenReply, NoReply

pytest.importorskip("openai", reason="the extra 'openai' is not installed")
anyio = pytest.importorskip("anyio")  # of openai

SAMPLES = GenerationRequest(
    prompt=(Message(role="user", content="Hi"),), n=2, seed=3, temperature=0.7, top_logprobs=2
)
SMALL = Amounts(hang_s=1.0, drip_s=0.005, giant_bytes=4_000_000, bomb_bytes=4_000_000, depth=5000)
LATE = ("hang", "drip", "drip_head")
KEY = "quite-secret-0123"


def settings(**changes: object) -> OpenAISettings:
    usual = {"timeout_s": 5.0, "first_pause_s": 0.001, "max_reply_bytes": 1 << 20, "api_key": KEY}
    return OpenAISettings(**(usual | changes))  # type: ignore[arg-type]


def planned(*plan: str, amounts: Amounts = SMALL, **how: object) -> FaultyServer:
    return FaultyServer(Misbehaviour(share=0.0, plan=plan, amounts=amounts, **how))  # type: ignore[arg-type]


def ask(server: FaultyServer, request: GenerationRequest = SAMPLES, **how: object) -> Generation:
    with OpenAICompatibleModel(server.url, "m", settings=settings(**how)) as model:
        return model.generate(request)


def test_every_fault_is_tried_again_and_changes_nothing() -> None:
    with planned() as good:
        wanted = ask(good)
    faults = [fault for fault in FAULTS if fault not in LATE]
    cut = {"too_many"}  # a reply nevertheless
    plan = [name for fault in faults for name in ([fault] if fault in cut else [fault, "ok"])]
    with (
        planned(*plan) as server,
        OpenAICompatibleModel(server.url, "m", settings=settings()) as model,
    ):
        for fault in faults:
            reply = model.generate(SAMPLES)
            assert reply.completions == wanted.completions, fault
            assert reply.prompt_tokens is not None
        # too many texts are cut, too few added to: neither is a failure
        assert model.tally.failed == len(faults) - 2
        assert set(server.calls) == {*faults, "ok"}


@pytest.mark.parametrize("fault", ["html", "nan_logprobs", "null_content", "cut_body", "reset"])
def test_vectors_are_tried_for_again(fault: str) -> None:
    with planned(fault) as server, EndpointEncoder(server.url, "m", server=settings()) as encoder:
        assert encoder.encode(["a", "b"]).shape == (2, 8)
    assert server.calls[fault] == 1


def test_a_list_of_models_is_tried_for_again() -> None:
    with (
        planned("html", "error", listing=True) as server,
        OpenAICompatibleModel(server.url, settings=settings()) as model,
    ):
        assert model.name == "only"


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("html", BrokenReply, "not JSON"),
        ("deep", BrokenReply, "nested too deeply"),
        ("giant", BrokenReply, r"more than 1,048,576 bytes.*max_reply_bytes"),
        ("bomb", BrokenReply, r"more than 1,048,576 bytes"),
        ("longer_number", BrokenReply, "not JSON"),
        ("hang", NoReply, "in time"),
        ("drip", NoReply, "in time"),
        ("drip_head", NoReply, "in time"),
        ("cut_stream", NoReply, "broke off"),
    ],
)
def test_what_lasts_ends_after_the_retries(fault: str, kind: type[NoReply], words: str) -> None:
    with planned(*[fault] * 2) as server:
        tracemalloc.start()
        started = time.perf_counter()
        with pytest.raises(kind, match=words) as caught:
            ask(server, max_retries=1, timeout_s=0.5 if fault in LATE else 5.0)
        seconds, (_, most) = time.perf_counter() - started, tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert caught.value.passing
    assert server.calls[fault] == 2
    assert seconds < 15.0  # a hang or a drip would take 30
    assert most < 20 << 20


def test_absurd_counts_are_unknown() -> None:
    with planned(ABSURD_USAGE) as server:
        reply = ask(server)
    assert (reply.prompt_tokens, reply.completion_tokens) == (None, None)


def test_null_that_lasts_is_what_the_model_says() -> None:
    with (
        planned(*["null_content"] * 8) as server,
        OpenAICompatibleModel(server.url, "m", settings=settings()) as model,
    ):
        for _ in range(2):  # the second time it is known of the server
            assert [completion.text for completion in model.generate(SAMPLES).completions] == [
                "",
                "",
            ]
    assert server.calls == {"null_content": 8}


def test_null_after_other_failures_is_not_believed() -> None:
    with (
        planned("error", "null_content") as server,
        OpenAICompatibleModel(server.url, "m", settings=settings(max_retries=1)) as model,
    ):
        with pytest.raises(BrokenReply, match="null"):
            model.generate(SAMPLES)
        assert all(completion.text for completion in model.generate(SAMPLES).completions)


@pytest.mark.parametrize("as_date", [False, True])
def test_a_pause_of_days_is_told(as_date: bool) -> None:
    said = formatdate(time.time() + 172800, usegmt=True) if as_date else "172800"
    amounts = Amounts(retry_after_s=said)
    with planned(*["busy_for"] * 9, amounts=amounts) as server:
        started = time.perf_counter()
        with pytest.raises(NoReply, match=r"before \d{4}-\d\d-\d\d .* UTC") as caught:
            ask(server, max_wait_s=0.05)
    assert time.perf_counter() - started < 15.0
    assert server.calls["busy_for"] == 7  # each time for more than is ever waited
    until = caught.value.until
    assert until is not None
    assert abs(until.timestamp() - time.time() - 172800) < 60


@pytest.mark.parametrize("fault", ["hang", "busy_for"])
def test_a_call_that_is_cut_ends_at_once(fault: str) -> None:
    """While a server keeps it waiting, or before the next attempt; the connection is given up."""
    asked, ended = threading.Event(), threading.Event()
    with (
        planned(fault, amounts=replace(SMALL, hang_s=3.0, retry_after_s=30)) as server,
        OpenAICompatibleModel(server.url, "m", settings=settings()) as model,
    ):

        def work() -> None:
            asked.set()
            try:
                model.generate(SAMPLES)
            finally:
                ended.set()

        aside = Aside(work)
        assert asked.wait(5)
        while not server.calls:
            time.sleep(0.001)
        begun = time.perf_counter()
        aside.cut()
        assert ended.is_set()
        assert time.perf_counter() - begun < 5
        assert model.generate(SAMPLES).completions


@pytest.mark.parametrize(("answered", "attempts"), [(False, 5), (True, 7)])
def test_where_nobody_ever_listened_it_is_told_sooner(answered: bool, attempts: int) -> None:
    with planned() as server, OpenAICompatibleModel(server.url, "m", settings=settings()) as model:
        if answered:
            model.generate(SAMPLES)
            model.close()  # else it asks on by the connection it has
        with server.away(), pytest.raises(NoReply, match="cannot be reached"):
            model.generate(SAMPLES)
    assert model.tally.failed == attempts


ASKING = """
import gc, os, sys
from suffice.llm.openai_compatible import OpenAICompatibleModel
from suffice.contracts import GenerationRequest, Message
request = GenerationRequest(prompt=(Message(role="user", content="Hi"),))
model = OpenAICompatibleModel(sys.argv[1], "m")
assert model.generate(request).completions
"""
FORKING = """
child = os.fork()
assert model.generate(request).completions
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
LEAVING = """
other = OpenAICompatibleModel(sys.argv[1], "m")
other.generate(request)
del other
gc.collect()
"""


@pytest.mark.parametrize("then", [FORKING, LEAVING], ids=["fork", "leave"])
def test_a_model_that_nobody_closes(then: str) -> None:
    shown = (
        "ignore" if then is FORKING else "always"
    )  # what the parent opened stays open in its child
    with planned() as server:
        command = [sys.executable, "-W", shown, "-c", ASKING + then, server.url]
        done = subprocess.run(command, capture_output=True, check=True, timeout=300)
    assert done.stderr == b""

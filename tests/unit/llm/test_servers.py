"""Several servers of one model: who is asked, who is put aside and comes back, what is refused."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.server import Answer, Body, Server, refuse

from suffice.concurrency import WorkFor, width_of
from suffice.errors import BackendError, SufficeWarning, UsageError
from suffice.llm.connect import connect
from suffice.llm.endpoint import OpenAISettings
from suffice.llm.servers import Roster, ServerPool, Turn, prompt_blocks
from suffice.protocols import ChatModel, GenerationRequest, Message

QUICK = OpenAISettings(api="completion", max_retries=1, timeout_s=5.0, first_pause_s=0.01)


class Clock:
    """Stands still until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def roster(count: int = 3, *, room: int = 100, clock: Clock | None = None) -> Roster:
    return Roster([f"http://s{n}" for n in range(count)], lambda _: room, clock or Clock())


def asked(servers: Roster, text: str = "", *, tried: Sequence[int] = ()) -> int | None:
    """Who is asked, and begins."""
    blocks = prompt_blocks(GenerationRequest(prompt=text))
    number = servers.choose(blocks, tried)
    if number is not None:
        servers.begin(number, blocks, tried)
    return number


def turn_at(number: int, *, trial: bool = False) -> Turn:
    return Turn(number=number, trial=trial, last=False)


# --- which one -------------------------------------------------------------------------------------
def test_the_least_busy_is_asked_and_equals_in_turn() -> None:
    servers = roster()
    assert [asked(servers) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    servers.end(turn_at(2))
    assert asked(servers) == 2
    assert [asked(servers) for _ in range(2)] == [1, 2]
    assert asked(servers, tried=[0, 2]) == 1
    full = roster(2, room=1)
    assert [asked(full) for _ in range(3)] == [0, 1, None]


def test_a_question_stays_where_its_round_before_was_unless_that_is_clearly_busier() -> None:
    shared, first, second = "How to answer. " * 40, "Ada was born. " * 40, "Bob has died. " * 40
    servers = roster(2)
    assert asked(servers, shared + first) == 0
    assert asked(servers, shared + second) == 1  # 0 has seen the instructions, and 1 is idle
    later = shared + second + "It was in May. " * 20
    assert [asked(servers, later) for _ in range(4)] == [1, 1, 1, 0]
    # what both have seen prefers neither
    assert [asked(servers, shared + "Carl. " * 20) for _ in range(4)] == [0, 0, 1, 0]
    for _ in range(16):
        asked(servers, shared)
    # of 13 under way each: half more are borne
    assert [asked(servers, shared + first) for _ in range(8)] == [0] * 7 + [1]


def test_prompts_are_known_by_their_beginnings() -> None:
    text = "word " * 300
    blocks = prompt_blocks(GenerationRequest(prompt=text))
    assert len(blocks) == 1500 // 256
    other = prompt_blocks(GenerationRequest(prompt=text[:1024] + "other " * 90))
    assert other[:4] == blocks[:4]
    assert other[4] != blocks[4]
    chat = (Message(role="system", content=text), Message(role="user", content="a"))
    longer = (Message(role="system", content=text), Message(role="user", content="b" * 600))
    ours, theirs = (prompt_blocks(GenerationRequest(prompt=prompt)) for prompt in (chat, longer))
    assert ours == theirs[: len(ours)]


def test_a_server_without_replies_is_put_aside_and_tried_again_ever_more_rarely() -> None:
    clock = Clock()
    servers = roster(2, clock=clock)
    assert servers.failed(turn_at(0), "refused") is None
    servers.answered(turn_at(0))
    assert servers.failed(turn_at(0), "refused") is None
    said = servers.failed(turn_at(0), "http://s0 cannot be reached")
    assert said is not None
    assert "put aside and tried again later: http://s0 cannot be reached" in said
    assert "(1 of 2 servers answer)" in said
    pauses: list[float] = []
    for _ in range(8):
        assert [asked(servers), asked(servers)] == [1, 1]
        wait = servers.wait_s()
        assert wait is not None
        clock.now += wait
        pauses.append(wait)
        assert asked(servers) == 0
        assert asked(servers) == 1  # one request at a time tries it
        assert servers.failed(turn_at(0, trial=True), "refused") is None
        servers.end(turn_at(0, trial=True))
    assert pauses == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60])
    clock.now += 60
    assert asked(servers) == 0
    # what was under way before is no sign, whatever comes of it
    assert servers.answered(turn_at(0)) is None
    assert servers.failed(turn_at(0), "late") is None
    assert servers.up == [1]
    assert (
        servers.answered(turn_at(0, trial=True))
        == "http://s0 answers again (2 of 2 servers answer)"
    )
    assert servers.answered(turn_at(0)) is None
    assert servers.wait_s() is None


def test_a_busy_server_is_left_alone_and_not_put_aside() -> None:
    clock = Clock()
    servers = roster(2, clock=clock)
    assert [servers.failed(turn_at(0), "429", busy_s=3.0) for _ in range(9)] == [None] * 9
    assert servers.up == [0, 1]
    assert [asked(servers) for _ in range(3)] == [1, 1, 1]
    clock.now += 3.0
    assert [asked(servers) for _ in range(3)] == [0, 0, 0]
    servers.failed(turn_at(0), "429", busy_s=900.0)
    servers.failed(turn_at(1), "429", busy_s=1.0)
    assert asked(servers) == 1  # whose pause is shorter
    clock.now += 60.0
    assert asked(servers, tried=[1]) == 0


def test_when_all_are_aside_the_one_due_first_is_asked() -> None:
    clock = Clock()
    servers = roster(2, clock=clock)
    servers.put_aside(0, "refused")
    clock.now += 0.5
    servers.put_aside(1, "late")
    assert servers.candidates(()) == []
    assert asked(servers) == 0
    assert servers.reasons() == "refused; late"


# --- real ones -------------------------------------------------------------------------------------
def completion(_: Body) -> Answer:
    choice = {"index": 0, "text": "ok", "finish_reason": "stop"}
    return 200, {}, {"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    pair = Server(completion), Server(completion)
    yield pair
    for server in pair:
        if server.thread.is_alive():
            server.close()


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def pool(
    servers: Sequence[Server],
    model: str | None = None,
    *,
    settings: OpenAISettings = QUICK,
    said: list[str] | None = None,
) -> ServerPool:
    heard = [] if said is None else said
    return ServerPool(
        [server.url for server in servers], model, settings=settings, on_change=heard.append
    )


def ask(model: ChatModel, prompt: str = "Hi") -> str:
    return model.generate(GenerationRequest(prompt=prompt)).completions[0].text


def test_requests_are_spread_and_a_name_is_found(servers: tuple[Server, Server]) -> None:
    def slow(body: Body) -> Answer:
        time.sleep(0.02)
        return completion(body)

    for server in servers:
        server.answer = slow
    with pool(servers) as model, ThreadPoolExecutor(8) as threads:
        assert (model.name, model.api) == ("only", "completion")
        assert model.endpoint == ",".join(sorted(server.url for server in servers))
        assert width_of(model) == 16
        assert list(threads.map(lambda _: ask(model), range(16))) == ["ok"] * 16
        assert model.supports_logprobs() is False
    assert sum(len(server.bodies) for server in servers) == 18
    assert min(len(server.bodies) for server in servers) >= 7


def test_a_server_killed_in_the_middle_loses_no_request(servers: tuple[Server, Server]) -> None:
    said: list[str] = []
    dies, stays = servers
    with pool(servers, said=said) as model, ThreadPoolExecutor(4) as threads:
        replies = threads.map(lambda number: ask(model, f"{number}"), range(60))
        while len(dies.bodies) < 10:
            time.sleep(0.002)
        dies.close()
        assert list(replies) == ["ok"] * 60
    assert len(stays.bodies) > 30
    (line,) = said
    assert f"put aside and tried again later: {dies.url} cannot be reached" in line


def test_it_comes_back_when_it_answers(
    servers: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suffice.llm.servers._FIRST_PAUSE_S", 0.02)
    said: list[str] = []
    away, _ = servers
    away.answer = lambda _: refuse(503, "loading")
    with pool(servers, said=said) as model:
        while not said:
            ask(model)
        asked_before = len(away.bodies)
        away.models = ["another"]
        away.answer = completion
        time.sleep(0.05)
        assert [ask(model) for _ in range(4)] == ["ok"] * 4
        assert len(away.bodies) == asked_before  # it would be another model's answer
        away.models = ["only"]
        while len(said) < 2:
            time.sleep(0.01)
            ask(model)
    assert "503: loading" in said[0]
    assert said[1:] == [f"{away.url} answers again (2 of 2 servers answer)"]


def test_a_busy_server_leaves_the_request_to_the_other_at_once(
    servers: tuple[Server, Server],
) -> None:
    busy, free = servers
    busy.answer = lambda _: (429, {"retry-after": "30"}, {"error": {"message": "slow down"}})
    with pool(servers) as model:
        start = time.perf_counter()
        assert [ask(model) for _ in range(4)] == ["ok"] * 4
        assert time.perf_counter() - start < 5
    assert (len(busy.bodies), len(free.bodies)) == (1, 4)


def test_a_server_that_hangs_is_put_aside(servers: tuple[Server, Server]) -> None:
    said: list[str] = []
    let_go = threading.Event()

    def hang(body: Body) -> Answer:
        let_go.wait(5)
        return completion(body)

    servers[0].answer = hang
    late = OpenAISettings(api="completion", timeout_s=0.2)
    with pool(servers, settings=late, said=said) as model:
        assert [ask(model) for _ in range(8)] == ["ok"] * 8
    let_go.set()
    assert len(servers[0].bodies) == 2
    assert "did not answer in time" in said[0]


def test_when_none_answers_each_ones_reason_is_given(servers: tuple[Server, Server]) -> None:
    first, second = servers
    at_once = OpenAISettings(api="completion", max_retries=0)
    with pool(servers, settings=at_once) as model:
        first.answer = lambda _: refuse(500, "boom")
        second.close()
        for _ in range(2):
            with pytest.raises(BackendError) as caught:
                ask(model)
            for part in ("none of the 2 servers answers: ", "500: boom", "cannot be reached"):
                assert part in str(caught.value)
        first.answer = completion
        assert ask(model) == "ok"


def test_what_the_caller_did_wrong_is_said_at_once(servers: tuple[Server, Server]) -> None:
    for server in servers:
        server.answer = lambda _: refuse(401, "no such key")
    with pool(servers) as model, pytest.raises(UsageError, match="401: no such key"):
        ask(model)
    assert sum(len(server.bodies) for server in servers) == 1


@pytest.mark.parametrize(
    ("first", "second", "model", "says"),
    [
        (["a"], ["b"], None, "different models: {0} has a; {1} has b"),
        (
            ["a", "b"],
            ["a", "b"],
            None,
            "which model? Name one that all servers serve; {0} has a, b",
        ),
        (["a"], ["b"], "a", "do not all serve 'a': {0} has a; {1} has b"),
        (["a"], ["b"], "c", "do not all serve 'c': {0} has a; {1} has b"),
    ],
)
def test_servers_of_different_models_are_refused(
    first: list[str],
    second: list[str],
    model: str | None,
    says: str,
    servers: tuple[Server, Server],
) -> None:
    servers[0].models, servers[1].models = first, second
    with pytest.raises(UsageError) as caught:
        pool(servers, model)
    assert says.format(servers[0].url, servers[1].url) in str(caught.value)


def test_any_name_is_taken_where_all_list_the_same(servers: tuple[Server, Server]) -> None:
    with pool(servers, "an alias") as model:
        assert model.name == "an alias"
        assert ask(model) == "ok"
    servers[0].models, servers[1].models = ["a", "b"], ["b"]
    with pool(servers, "b") as model:
        assert ask(model) == "ok"


def nobody_there() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1"


def test_one_that_is_not_there_in_the_beginning_is_put_aside(
    servers: tuple[Server, Server],
) -> None:
    urls = [nobody_there(), servers[0].url]
    with pytest.warns(SufficeWarning, match="is put aside"):
        model = ServerPool(urls, settings=QUICK)
    with model:
        assert [ask(model) for _ in range(3)] == ["ok"] * 3
    with pytest.raises(BackendError, match=r"none of the 2 servers answers: .*; .*cannot be reach"):
        ServerPool([nobody_there(), nobody_there()], settings=QUICK)


def test_what_a_user_types(servers: tuple[Server, Server]) -> None:
    urls = [server.url for server in servers]
    model = connect(f"{urls[0]}, {urls[1]}", "only", server=QUICK)
    assert isinstance(model, ServerPool)
    assert ask(model) == "ok"
    model.close()
    with pytest.raises(UsageError, match="named twice"):
        connect(f"{urls[0]},{urls[0]}/", "only", server=QUICK)
    with pytest.raises(UsageError, match="unknown language model"):
        connect(f"{urls[0]},embedded", "only", server=QUICK)


def test_each_server_finds_how_many_calls_suit_it(servers: tuple[Server, Server]) -> None:
    """Both take five at a time and refuse more; it begins with four, and tries six."""
    under_way = {0: 0, 1: 0}
    refused = {0: 0, 1: 0}
    lock = threading.Lock()

    def limited(number: int) -> Callable[[Body], Answer]:
        def answer(body: Body) -> Answer:
            with lock:
                if under_way[number] >= 5:
                    refused[number] += 1
                    return refuse(429, "slow down")
                under_way[number] += 1
            time.sleep(0.03)
            with lock:
                under_way[number] -= 1
            return completion(body)

        return answer

    for number, server in enumerate(servers):
        server.answer = limited(number)
    settings = OpenAISettings(api="completion", concurrency="auto", max_concurrency=24)
    seen: list[int] = []
    with pool(servers, settings=settings) as model:
        width = width_of(model)
        assert isinstance(width, WorkFor)
        assert (width.now, width.most) == (12, 72)

        def one(_: int) -> str:
            seen.append(max(limit.now for limit in width.limits))
            return ask(model)

        with ThreadPoolExecutor(width.most) as threads:
            assert list(threads.map(one, range(120))) == ["ok"] * 120
        assert max(seen) >= 6
        assert max(seen) <= 13
    assert max(refused.values()) > 0

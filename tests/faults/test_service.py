"""A service whose model server, disk, clock, clients or process fail: all are told, no round is lost."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.faults.children import USUAL, Child, Conditions, full
from tests.faulty_server import FAULTS, Amounts, FaultyServer, Misbehaviour

from suffice.trace.rounds.reader import read_traces

LIMIT_S = 20.0
AMOUNTS = Amounts(hang_s=5.0, giant_bytes=40_000_000, bomb_bytes=40_000_000, depth=5000)


@dataclass(slots=True, kw_only=True)
class Running:
    """A service under load, what its clients were told, and rounds by the id of an answered question."""

    child: Child
    client: httpx2.Client
    told: Counter[str] = field(default_factory=Counter)
    answered: dict[str, int] = field(default_factory=dict)
    err: str = ""

    def metric(self, name: str) -> float:
        text = self.client.get("/metrics").text
        values = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, values))

    @property
    def ready(self) -> bool:
        return self.client.get("/health/ready").is_success

    def ask(self, number: int) -> None:
        """One question to its end, streamed or not; one in ten hangs up after the first piece."""
        streams = number % 4 < 2
        asked = self.client.stream(
            "POST",
            "/v1/chat/completions",
            json={
                "model": f"suffice/{('stable', 'two')[number % 2]}",
                "messages": [{"role": "user", "content": f"Who founded tower {number}?"}],
                "stream": streams,
            },
        )
        begun = time.monotonic()
        with asked as reply:
            if number % 10 == 1:
                next(reply.iter_raw())
                self.told["hung up"] += 1
                return
            content = reply.read().decode()
        assert time.monotonic() - begun < LIMIT_S + 2
        document = _told(content, streams=streams and reply.is_success)
        if error := document.get("error"):
            assert error["message"]
            assert error["type"]
            self.told[f"{reply.status_code} {error['code']}"] += 1
        else:
            self.told["200"] += 1
            self.answered[reply.headers["x-suffice-trace-id"]] = document["suffice"]["rounds"]

    def under_load(self, numbers: Sequence[int], at_once: int = 16) -> None:
        """Ask all of them; those whom a dead service cut off are told nothing."""

        def one(number: int) -> None:
            try:
                self.ask(number)
            except httpx2.TransportError:
                self.told["cut"] += 1

        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(one, numbers))


def _told(content: str, *, streams: bool) -> Any:
    """The answer, or the error; it is one of them, whole, in the form of OpenAI."""
    documents = [content]
    if streams:
        *documents, end = [line[6:] for line in content.splitlines() if line.startswith("data: ")]
        assert end == "[DONE]", content[-300:]
    (told,) = (one for one in map(json.loads, documents) if "error" in one or "suffice" in one)
    return told


@contextmanager
def serving(
    given: Path, record: Path, llm: str = "scripted", conditions: Conditions = USUAL, code: int = 0
) -> Iterator[Running]:
    """``suffice serve`` with a record; ended with SIGTERM, with that code, where it runs still."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    words = f"serve --corpus notes --llm {llm} --model m --timeout 1 --max-wait 2 --port {port}"
    words += f" --policy stable=answer_stable --policy two=fixed-2 --request-timeout {LIMIT_S:g}"
    child = Child([*words.split(), "--record", str(record)], given, conditions)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    client = httpx2.Client(
        base_url=f"http://127.0.0.1:{port}", timeout=LIMIT_S + 10, limits=limits, trust_env=False
    )
    running = Running(child=child, client=client)
    with client:
        end = time.monotonic() + 60
        while True:
            try:
                client.get("/health/live")
                break
            except httpx2.TransportError:
                assert child.running, child.end().err
                assert time.monotonic() < end
                time.sleep(0.05)
        try:
            yield running
        finally:
            child.send(signal.SIGTERM)
            ended = child.end(60.0)
    running.err = ended.err
    assert ended.code in (code, -signal.SIGKILL), ended.err
    assert "Traceback" not in ended.err


def recorded(record: Path) -> dict[str, int]:
    held = [(one.question.id, len(one.rounds)) for one in read_traces(record).records()]
    assert len({name for name, _ in held}) == len(held)
    return dict(held)


def check_recorded(running: Running, record: Path) -> None:
    """Every answer's rounds stand in the record, and those that a failing model's answer went without."""
    held = recorded(record)
    assert not {name for name, rounds in running.answered.items() if held.get(name, 0) < rounds}


@pytest.mark.slow
def test_a_model_server_on_which_three_calls_in_ten_fail(given: Path, tmp_path: Path) -> None:
    record, how = tmp_path / "r", Misbehaviour(share=0.3, faults=FAULTS, seed=1, amounts=AMOUNTS)
    with FaultyServer(how) as server, serving(given, record, server.url) as running:
        threads = Path(f"/proc/{running.child.pid}/task")
        running.under_load(range(8))
        before = len(list(threads.iterdir()))
        running.under_load(range(8, 200))
        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(running.under_load, range(200, 400))
            with server.away():
                time.sleep(3)
            load.result()
        end, gauges = time.monotonic() + LIMIT_S, ("suffice_in_flight", "suffice_queue")
        while any(map(running.metric, gauges)) or len(list(threads.iterdir())) > before + 2:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert running.metric("suffice_record_lost_rounds") == 0
        assert running.told.total() == 400
        check_recorded(running, record)
        assert sum(recorded(record).values()) >= running.metric("suffice_question_rounds_sum")
    assert set(running.told) <= {"200", "hung up", "200 model_failed", "502 model_failed"}


@pytest.mark.slow
@pytest.mark.parametrize("signalled", [signal.SIGKILL, signal.SIGTERM])
def test_an_end_under_load_loses_no_answered_round(
    signalled: signal.Signals, given: Path, tmp_path: Path
) -> None:
    for number in range(3):
        record = tmp_path / str(number)
        with serving(given, record) as running, ThreadPoolExecutor(1) as pool:
            load = pool.submit(running.under_load, range(200))
            time.sleep(1.0 + 0.3 * number)
            running.child.send(signalled)
            load.result()
        assert running.answered
        check_recorded(running, record)
        with serving(given, record) as running:  # it takes up what the dead left
            running.under_load(range(4))
        check_recorded(running, record)


@pytest.mark.slow
def test_a_killed_service_loses_no_round_of_a_loop_that_it_answered(
    given: Path, tmp_path: Path
) -> None:
    record = tmp_path / "r"
    with serving(given, record) as running:

        def post(path: str, **body: Any) -> Any:
            return running.client.post(path, json=body).raise_for_status().json()

        loops = [
            post("/v1/loops", question=f"Question {n}?", policy="two")["id"] for n in range(20)
        ]
        for number in (1, 2):
            for loop in loops:
                post(f"/v1/loops/{loop}/rounds", round=number, answer=f"{number}")
        running.child.send(signal.SIGKILL)
    killed = list(read_traces(record).records())
    assert len(killed) == 20
    assert all([held.answer for held in one.rounds] == ["1", "2"] for one in killed)
    with serving(given, record) as running:
        told = running.client.get(f"/v1/loops/{loops[0]}").json()
        assert "started anew" in told["error"]["message"]
    assert read_traces(record).n_questions == 20


@pytest.mark.slow
def test_a_full_disk_costs_no_answer(given: Path, disk: Path) -> None:
    record = disk / "r"
    with serving(given, record) as running:
        running.under_load(range(10))
        check_recorded(running, record)
        with full(disk, 0):
            running.under_load(range(10, 310))
            assert running.metric("suffice_record_failing") == 1
            assert not running.ready
        running.under_load(range(310, 320))
        assert set(running.told) == {"200", "hung up"}
        assert running.metric("suffice_record_failing") == 0
        assert running.metric("suffice_record_lost_rounds") == 0
        check_recorded(running, record)
        running.child.send(signal.SIGKILL)
    check_recorded(running, record)


def test_what_could_not_be_written_at_the_end_is_said_last_and_the_status_is_1(
    given: Path, tmp_path: Path
) -> None:
    record, limited = tmp_path / "r", Conditions(file_bytes=800_000)
    with serving(given, record, conditions=limited, code=1) as running:
        running.under_load([number for number in range(44) if number % 10 != 1], at_once=4)
        assert running.metric("suffice_record_failing") == 1
        assert not running.ready
    assert set(running.told) == {"200"}
    asked, held = sum(running.answered.values()), recorded(record)
    cut = sum(held.get(name, 0) < rounds for name, rounds in running.answered.items())
    last = running.err.splitlines()[-1]
    told = re.search(r"(\d+) rounds of (\d+) questions", last)
    assert told is not None
    assert int(told[1]) == asked - sum(held.values())
    assert 0 < cut <= int(told[2]) < 40  # of one only the end may be lost
    assert str(record) in last

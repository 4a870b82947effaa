"""A service whose model server, disk, clock, clients or process fail: all are told, no round is lost."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.faults.children import USUAL, Child, Conditions
from tests.faults.work import Tried
from tests.faulty_server import FAULTS, Amounts, FaultyServer, Misbehaviour
from tests.serving import chat, client, service

from suffice.llm.endpoint import OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel
from suffice.trace.rounds.reader import read_traces

LIMIT_S = 20.0
AMOUNTS = Amounts(hang_s=5.0, giant_bytes=40_000_000, bomb_bytes=40_000_000, depth=5000)
HEADERS = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a client got: an answer of so many rounds, or an error; nothing where it hung up."""

    status: int = 0
    name: str = ""
    rounds: int | None = None
    error: str = ""
    seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class Running:
    """A service under load, and what its clients were told."""

    port: int
    child: Child
    told: list[Told] = field(default_factory=list)
    err: str = ""

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S + 10)

    def get(self, path: str) -> tuple[int, str]:
        with closing(self.connection()) as connection:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()

    def metric(self, name: str) -> float:
        families = text_string_to_metric_families(self.get("/metrics")[1])
        samples = [sample for family in families for sample in family.samples]
        return sum(sample.value for sample in samples if sample.name == name)

    @property
    def threads(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.child.pid}/task").iterdir())

    def ask(self, number: int, *, streams: bool, hangs_up: bool = False) -> Told:
        """Ask one question to its end, or hang up after the first piece."""
        body = {
            "model": f"suffice/{('stable', 'two')[number % 2]}",
            "messages": [{"role": "user", "content": f"Who founded tower {number}?"}],
            "stream": streams,
        }
        begun = time.monotonic()
        with closing(self.connection()) as connection:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), HEADERS)
            if hangs_up and not streams:
                time.sleep(0.05)
                return Told()
            with closing(connection.getresponse()) as reply:
                if hangs_up:
                    reply.readline()
                    return Told()
                content = reply.read().decode()
        name = reply.getheader("x-suffice-trace-id") or ""
        rounds, error = _read(content, streams=streams and reply.status == 200)
        seconds = time.monotonic() - begun
        return Told(status=reply.status, name=name, rounds=rounds, error=error, seconds=seconds)

    def under_load(self, numbers: Sequence[int], at_once: int, *, hang_ups: float = 0.0) -> None:
        """Ask all of them, half of them streamed; those whom a dead service cut off are told nothing."""
        lots = random.Random(1)
        leaving = {number for number in numbers if lots.random() < hang_ups}

        def one(number: int) -> None:
            try:
                streams = number % 4 < 2
                told = self.ask(number, streams=streams, hangs_up=number in leaving)
            except (OSError, http.client.HTTPException):
                return
            self.told.append(told)

        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(one, numbers))

    @property
    def answered(self) -> dict[str, int]:
        """Rounds by the id of an answered question."""
        return {told.name: told.rounds for told in self.told if told.rounds is not None}


def _read(content: str, *, streams: bool) -> tuple[int | None, str]:
    """The rounds of an answer, or the error; it is one of them, whole, in the form of OpenAI."""
    if streams:
        *events, end = [line[6:] for line in content.splitlines() if line.startswith("data: ")]
        assert end == "[DONE]", content[-300:]
        documents = [json.loads(event) for event in events]
    else:
        documents = [json.loads(content)]
    errors = [document["error"] for document in documents if "error" in document]
    answers = [document["suffice"] for document in documents if "suffice" in document]
    assert len(errors) + len(answers) == 1, content[-300:]
    if errors:
        assert errors[0]["message"]
        assert errors[0]["type"]
        return None, str(errors[0]["code"])
    return int(answers[0]["rounds"]), ""


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


@contextmanager
def serving(
    given: Path,
    record: Path,
    llm: str = "scripted",
    conditions: Conditions = USUAL,
    code: int = 0,
) -> Iterator[Running]:
    """``suffice serve`` with a record; ended with SIGTERM, with that code, where it runs still."""
    port = free_port()
    line = f"serve --corpus notes --llm {llm} --model m --timeout 1 --max-wait 2 --port {port}"
    line += f" --policy stable=answer_stable --policy two=fixed-2 --request-timeout {LIMIT_S:g}"
    child = Child([*line.split(), "--record", str(record)], given, conditions=conditions)
    running = Running(port=port, child=child)
    end = time.monotonic() + 60
    while True:
        try:
            running.get("/health/live")
            break
        except OSError:
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


def wait_until_idle(running: Running, threads: int) -> None:
    """Nothing is in flight or waits, and calls that were cut have let go of their threads."""
    end, gauges = time.monotonic() + LIMIT_S, ("suffice_in_flight", "suffice_queue")
    while any(map(running.metric, gauges)) or running.threads > threads:
        assert time.monotonic() < end, running.threads
        time.sleep(0.1)


def recorded(record: Path) -> dict[str, int]:
    """Rounds by question; no id stands twice."""
    held = [(one.question.id, len(one.rounds)) for one in read_traces(record).records()]
    assert len({name for name, _ in held}) == len(held)
    return dict(held)


def check_recorded(running: Running, record: Path) -> None:
    """Every answer's rounds stand in the record, and those that a failing model's answer went without."""
    held = recorded(record)
    lost = {name for name, rounds in running.answered.items() if held.get(name, 0) < rounds}
    assert not lost


@pytest.mark.slow
def test_a_model_server_on_which_three_calls_in_ten_fail(
    given: Path, tmp_path: Path, tried: Tried
) -> None:
    asked, record = 400, tmp_path / "r"
    how = Misbehaviour(share=0.3, faults=FAULTS, seed=1, amounts=AMOUNTS)
    with FaultyServer(how) as server, serving(given, record, server.url) as running:
        running.under_load(range(8), 8)
        before = running.threads
        running.under_load(range(8, asked // 2), 16, hang_ups=0.1)
        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(running.under_load, range(asked // 2, asked), 16, hang_ups=0.1)
            with server.away():
                time.sleep(3)
            load.result()
        wait_until_idle(running, before + 2)
        assert max(told.seconds for told in running.told) < LIMIT_S + 2
        questions = running.metric("suffice_requests_total")
        rounds = running.metric("suffice_question_rounds_sum")
        assert running.metric("suffice_record_lost_rounds") == 0
        assert len(running.told) == asked
        check_recorded(running, record)
        assert sum(recorded(record).values()) >= rounds
        assert running.ask(1, streams=True).status == 200
    told = Counter(str(one.status or "hung up") + one.error for one in running.told)
    tried(f"service: failing calls of {server.calls.total():,}", server.failed)
    tried("service: questions", int(questions))
    for what, times in told.items():
        tried(f"service: clients told {what}", times)
    assert set(told) <= {"200", "hung up", "200model_failed", "502model_failed"}, told


def test_a_sample_of_three_calls_in_ten(tmp_path: Path) -> None:
    at_once = [name for name in FAULTS if name not in ("hang", "drip", "drip_head", "busy", "bomb")]
    how = Misbehaviour(share=0.4, faults=at_once, seed=3, amounts=Amounts(giant_bytes=2_000_000))
    quick = OpenAISettings(timeout_s=1.0, first_pause_s=0.001, max_reply_bytes=1 << 20)
    with (
        FaultyServer(how) as server,
        OpenAICompatibleModel(server.url, "m", settings=quick) as model,
    ):
        served = service(model, {"two": "fixed-2"}, record=tmp_path / "r")
        with client(served) as asked:
            for number in range(10):
                reply = chat(asked, stream=number % 2 == 0)
                _read(reply.text, streams=number % 2 == 0 and reply.status_code == 200)
            assert (served.places.taken, served.places.waiting) == (0, 0)
    assert server.failed
    assert read_traces(tmp_path / "r").n_questions == 10


@pytest.mark.slow
def test_a_kill_under_load_loses_no_answered_round(
    given: Path, tmp_path: Path, tried: Tried
) -> None:
    with FaultyServer(Misbehaviour(share=0.0)) as server:
        for number in range(6):
            record = tmp_path / str(number)
            with serving(given, record, server.url) as running, ThreadPoolExecutor(1) as pool:
                load = pool.submit(running.under_load, range(200), 16)
                time.sleep(1.0 + 0.3 * number)
                running.child.send(signal.SIGTERM if number >= 4 else signal.SIGKILL)
                load.result()
            assert running.answered
            check_recorded(running, record)
            with serving(given, record, server.url) as running:  # it takes up what the dead left
                running.under_load(range(4), 2)
            check_recorded(running, record)
            tried(f"service: {'SIGTERM' if number >= 4 else 'SIGKILL'} under load")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.slow
def test_a_full_disk_costs_no_answer(given: Path, disk: Path, tried: Tried) -> None:
    record = disk / "r"
    with serving(given, record) as running:
        running.under_load(range(10), 4)
        check_recorded(running, record)
        with (disk / "filler").open("wb") as filler:
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            os.posix_fallocate(filler.fileno(), 0, free)
        running.under_load(range(10, 310), 4)
        assert running.metric("suffice_record_failing") == 1
        assert running.get("/health/ready")[0] == 503
        (disk / "filler").unlink()
        running.under_load(range(310, 320), 4)
        assert {told.status for told in running.told} == {200}
        assert running.metric("suffice_record_failing") == 0
        assert running.metric("suffice_record_lost_rounds") == 0
        check_recorded(running, record)
        assert len(recorded(record)) == 320
        running.child.kill()
    check_recorded(running, record)
    tried("service: answers while the disk is full", 300)


def test_what_could_not_be_written_at_the_end_is_said_last_and_the_status_is_1(
    given: Path, tmp_path: Path, tried: Tried
) -> None:
    record = tmp_path / "r"
    limited = Conditions(file_bytes=800_000)
    with serving(given, record, conditions=limited, code=1) as running:
        running.under_load(range(40), 4)
        assert running.metric("suffice_record_failing") == 1
        assert running.get("/health/ready")[0] == 503
    assert {told.status for told in running.told} == {200}
    asked = sum(running.answered.values())
    held = recorded(record)
    cut = sum(held.get(name, 0) < rounds for name, rounds in running.answered.items())
    last = running.err.splitlines()[-1]
    told = re.search(r"(\d+) rounds of (\d+) questions", last)
    assert told is not None
    assert int(told[1]) == asked - sum(held.values())
    assert 0 < cut <= int(told[2]) < 40  # of one only the end may be lost
    assert str(record) in last
    tried("service: questions lost on a limited disk and told", cut)


@pytest.mark.slow
def test_two_services_share_a_folder_while_their_clocks_jump(
    given: Path, tmp_path: Path, tried: Tried
) -> None:
    record = tmp_path / "r"
    jumping = Conditions(jumps=(0.0, 86_400.0, -6e8, 6e8))
    with serving(given, record, conditions=jumping) as one, serving(given, record) as other:
        with ThreadPoolExecutor(2) as pool:
            for load in [pool.submit(each.under_load, range(100), 8) for each in (one, other)]:
                load.result()
        assert {told.status for told in (*one.told, *other.told)} == {200}
        for each in (one, other):
            check_recorded(each, record)
    assert len(recorded(record)) == 200
    tried("service: two on one folder, one with a clock that jumps by up to 20 years")

"""A service in operation: its door, health, metrics, what it keeps of texts, a full disk."""

from __future__ import annotations

import hashlib
import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from tests.builders import alarming_record
from tests.server import taking_posts
from tests.serving import MESSAGES, service

from suffice import Round, Watch
from suffice.errors import UsageError
from suffice.monitor.following import Following
from suffice.monitor.production import KINDS
from suffice.policies.policy_file import save_policy
from suffice.policies.rules.policy import Rule
from suffice.serve import operation
from suffice.serve.app import make_app
from suffice.serve.operation import Operation, check
from suffice.serve.service_settings import (
    ModelSettings,
    RecordSettings,
    SecuritySettings,
    ServeSettings,
    WatchSettings,
)
from suffice.trace.rounds.reader import read_traces

POLICY = Rule(rule="round >= 2")


@contextmanager
def served(settings: ServeSettings, **further: Any) -> Iterator[tuple[TestClient, Operation]]:
    """A client of a service with everything around it, as ``suffice serve`` puts it together."""
    door = check(settings)
    held = service(record=settings.record.folder, texts=settings.record.texts, **further)
    around = Operation(settings, held, door)
    app = make_app(held, routers=around.routers, door=door, beside=around.running)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client, around


def ask(client: TestClient, **headers: str) -> Any:
    return client.post("/v1/chat/completions", json={"messages": MESSAGES}, headers=headers)


def metrics(client: TestClient, **headers: str) -> dict[str, float]:
    totals: dict[str, float] = {}
    for family in text_string_to_metric_families(client.get("/metrics", headers=headers).text):
        for sample in family.samples:
            totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return totals


def test_a_token_of_the_file_opens_all_but_health(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# of people\nanna {hashlib.sha256(b'secret').hexdigest()}\n")
    bearer = {"authorization": "Bearer secret"}
    with served(ServeSettings(security=SecuritySettings(tokens=str(file)))) as (client, _):
        assert client.get("/health/live").status_code == 200
        for path in ("/metrics", "/v1/models", "/openapi.json", "/v1/loops/x", "/nothing"):
            assert client.get(path).status_code == 401, path
        assert ask(client).status_code == 401
        assert ask(client, **bearer).status_code == 200
        assert metrics(client, **bearer)["suffice_requests_total"] == 1


def test_a_service_that_ends_or_cannot_answer_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation, "_CHECK_EVERY_S", 0.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    gone = ServeSettings(model=ModelSettings(llm=url))
    with served(gone) as (client, _):
        reply = client.get("/health/ready")
        assert (reply.status_code, [*reply.json()["problems"]]) == (503, ["model"])
    recorded = RecordSettings(folder=str(tmp_path / "r"))
    full = ServeSettings(record=recorded, watch=WatchSettings(seconds=0))
    with served(full) as (client, around):
        assert client.get("/health/ready").status_code == 200
        (tmp_path / "r").rename(tmp_path / "away")
        (tmp_path / "r").touch()  # a file
        assert [*client.get("/health/ready").json()["problems"]] == ["record"]
        around.listening(print).ending()
        assert client.get("/health/ready").json() == {"status": "ending"}
        assert client.get("/health/live").status_code == 200


def test_answers_go_on_where_the_record_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    record = RecordSettings(folder=str(tmp_path / "r"))
    with served(ServeSettings(record=record)) as (client, _):
        assert ask(client).status_code == 200
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("suffice.trace.engines.SQLite.begin", _no_room)
            assert ask(client).status_code == 200
            unready = client.get("/health/ready")
            assert (unready.status_code, *unready.json()["problems"]) == (503, "record")
            assert metrics(client)["suffice_record_failing"] == 1
        assert ask(client).status_code == 200
        assert client.get("/health/ready").status_code == 200
    assert read_traces(tmp_path / "r").n_questions >= 2


def _no_room(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xff\xfe{}",
        b"x" * 10_000_000,
        b'{"messages": NaN}',
        b"",
    ],
    ids=["deep list", "deep object", "no UTF-8", "10 MB", "NaN", "empty"],
)
def test_a_body_that_is_none_is_refused(body: bytes) -> None:
    with served(ServeSettings()) as (client, _):
        for path in ("/v1/chat/completions", "/v1/decisions", "/v1/loops"):
            reply = client.post(path, content=body)
            assert reply.status_code in (400, 413), path
            assert reply.json()["error"]["message"]
        assert ask(client).status_code == 200


# --- the policies in force, watched --------------------------------------------------------------
def watched_settings(tmp_path: Path, url: str) -> ServeSettings:
    return ServeSettings(
        record=RecordSettings(folder=str(tmp_path / "r")),
        watch=WatchSettings(seconds=0.01, webhook=url, metric="em", max_loss=0.1, first=3),
    )


def alarms(client: TestClient) -> dict[str, float]:
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {
        sample.labels["kind"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "suffice_alarm" and sample.labels["policy"] == "p"
    }


def raised(client: TestClient) -> bool:
    return any(alarms(client).values())


def wait_for(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_alarms_of_policies_in_force_are_gauges_and_told_once(tmp_path: Path) -> None:
    file = alarming_record(tmp_path / "r", POLICY)
    policies = {"p": str(file)}
    with taking_posts(204) as (url, taken):
        settings = watched_settings(tmp_path, url)
        for _ in range(2):  # the second time after a restart
            with served(settings, policies=policies) as (client, _):
                wait_for(partial(raised, client))
                assert alarms(client) == {**dict.fromkeys(KINDS, 0.0), "loss": 1.0}
                assert ask(client).status_code == 200
                wait_for(lambda: len(taken) == 1)
        assert [post["alarm"] for post in taken] == ["loss"]
    assert read_traces(tmp_path / "r").n_questions == 26


def test_loops_that_end_by_themselves_are_no_exploration_other_than_stated(tmp_path: Path) -> None:
    """Where their policy says stop, half would have ended anyhow, and nobody can see it of all."""
    policy = Rule(rule="round >= 1")
    with Watch(policy, record=tmp_path / "r", mode="live", explore=0.5, max_rounds=3) as watch:
        for number in range(160):
            with watch.question(f"What is {number}?", question_id=f"q{number}") as loop:
                for tried in range(1 + number % 2 * 2):
                    if not loop.done:
                        loop.observe(Round(answer=str(number) if tried == 2 else "no idea"))
            watch.label(f"q{number}", gold_answers=[str(number)])
    policies = {"p": str(save_policy(policy, tmp_path / "p.json", max_rounds=3))}
    with taking_posts(204) as (url, taken):
        with served(watched_settings(tmp_path, url), policies=policies) as (client, _):
            wait_for(partial(raised, client))
            assert alarms(client) == {**dict.fromkeys(KINDS, 0.0), "loss": 1.0}
            wait_for(lambda: len(taken) == 1)
        assert taken[0]["evidence"]["estimate"] == pytest.approx(0.5, abs=0.1)


def test_of_two_services_on_one_folder_one_tells_an_alarm(tmp_path: Path) -> None:
    policies = {"p": str(alarming_record(tmp_path / "r", POLICY))}
    with taking_posts(204) as (url, taken):
        settings = watched_settings(tmp_path, url)
        with (
            served(settings, policies=policies) as (first, _),
            served(settings, policies=policies) as (second, _),
        ):
            for client in (first, second):
                wait_for(partial(raised, client))
            wait_for((tmp_path / "r" / ".alarms.jsonl").exists)
            time.sleep(0.05)
            assert [post["alarm"] for post in taken] == ["loss"]


def test_a_look_that_fails_is_logged_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    policies = {"p": str(alarming_record(tmp_path / "r", POLICY))}
    failing, look = iter(range(3)), Following.look

    def looked(folder: Following) -> Any:
        if next(failing, None) is not None:
            raise OSError("the disk is away")
        return look(folder)

    monkeypatch.setattr(Following, "look", looked)
    with (
        caplog.at_level(logging.ERROR, logger="suffice.serve"),
        taking_posts(403, 403, 204) as (url, taken),
        served(watched_settings(tmp_path, url), policies=policies) as (client, _),
    ):
        wait_for(lambda: len(taken) == 3)
        assert alarms(client)["loss"] == 1.0
        assert ask(client).status_code == 200
        time.sleep(0.05)
        assert len(taken) == 3
    said = [record.getMessage() for record in caplog.records]
    assert [sum(words in line for line in said) for words in ("disk is away", "403")] == [1, 1]
    assert sum("loss alarm" in line for line in said) == 1


def test_where_nothing_is_watched_nothing_can_be_posted(tmp_path: Path) -> None:
    folder = str(tmp_path / "r")
    url = "http://127.0.0.1:9/"
    for record, seconds in ((None, 60.0), (folder, 0.0), (folder, -1.0)):
        own = WatchSettings(seconds=seconds, webhook=url)
        with pytest.raises(UsageError, match=r"\[watch\]"):
            check(ServeSettings(record=RecordSettings(folder=record), watch=own))
    wrong = ServeSettings(record=RecordSettings(folder=folder), watch=WatchSettings(level=2.0))
    with pytest.raises(UsageError, match="level"):
        check(wrong)
    off = WatchSettings(seconds=0.0)
    settings = ServeSettings(record=RecordSettings(folder=folder), watch=off)
    with served(settings) as (client, _):
        assert ask(client).status_code == 200
        assert alarms(client) == {}
    assert not (tmp_path / "r" / ".alarms.jsonl").exists()

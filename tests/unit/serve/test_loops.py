"""Loops over HTTP: watched and recorded, and safe to ask again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.loop_service import Clock, loop_app
from tests.serving import Heard

from suffice.serve.service_settings import LimitSettings, LoopSettings
from suffice.trace.rounds.reader import read_traces
from suffice.trace.store import Store

QUESTION = {"question": "Where was Ibsen born?", "gold_answers": ["Skien"]}


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "traces"


@pytest.fixture
def client(record: Path) -> Iterator[TestClient]:
    with TestClient(loop_app(record)) as client:
        yield client


def send(client: TestClient, path: str, body: Any, status: int = 200) -> Any:
    reply = client.post(path, json=body)
    assert reply.status_code == status, reply.text
    return reply.json()


def refused(client: TestClient, path: str, body: Any, status: int, code: str | None) -> str:
    error = send(client, path, body, status)["error"]
    assert error["code"] == code
    said: str = error["message"]
    return said


def begin(client: TestClient, **more: Any) -> str:
    return "/v1/loops/" + str(send(client, "/v1/loops", {**QUESTION, **more}, 201)["id"])


def test_a_loop_from_its_question_to_the_record(client: TestClient, record: Path) -> None:
    begun = send(client, "/v1/loops", {**QUESTION, "question_id": "q1", "split": "eval"}, 201)
    assert (begun["question_id"], begun["policy"], begun["done"]) == ("q1", "stable", False)
    loop = f"/v1/loops/{begun['id']}"
    first = send(client, f"{loop}/rounds", {"round": 1, "answer": "Skien", "score": 1.0})
    assert (first["action"], first["done"], first["round"]) == ("continue", False, 1)
    assert list(first["undefined"]) == ["answer_stable"]
    second = send(client, f"{loop}/rounds", {"round": 2, "answer": "skien."})
    assert (second["stopped_by"], second["done"], second["would_stop"]) == ("policy", True, 2)
    told = refused(client, f"{loop}/rounds", {"round": 3, "answer": "x"}, 409, "done")
    assert "end after round 2 (answer_stable holds" in told
    ended = send(client, f"{loop}/end", {})
    assert (ended["answer"], ended["answer_round"], ended["ended"]) == ("skien.", 2, True)
    assert ended == send(client, f"{loop}/end", {}) == client.get(loop).json()
    send(client, "/v1/labels", {"question_id": "q1", "question_type": "place"})
    client.__exit__()
    (question,) = read_traces(record).records()
    assert (question.question.id, question.question.split) == ("q1", "eval")
    assert (question.stopped_by, question.gold.answers) == ("policy", ("Skien",))
    assert [held.answer for held in question.rounds] == ["Skien", "skien."]
    assert question.scores == {1: 1.0}
    assert question.question.type == "place"
    assert question.policy_hash == begun["policy_hash"]


def test_what_is_sent_again_changes_nothing(client: TestClient, record: Path) -> None:
    begun = send(client, "/v1/loops", QUESTION, 201)
    loop = f"/v1/loops/{begun['id']}"
    one = {"round": 1, "answer": "Oslo"}
    assert send(client, f"{loop}/rounds", one) == send(client, f"{loop}/rounds", one)
    send(client, f"{loop}/rounds", {"round": 2, "answer": "Skien"})
    answers = [send(client, f"{loop}/answer", {"answer": "At Skien"}) for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0]["answer"] == "At Skien"
    send(client, f"{loop}/end", {"reason": "enough"})
    assert send(client, f"{loop}/end", {})["stopped_by"] == "user"
    for _ in range(2):
        label = {"question_id": begun["question_id"], "gold_answers": ["Skien"]}
        send(client, "/v1/labels", label)
    assert len(Store(record / "record.db").labels()[0]) == 1
    client.__exit__()
    (question,) = read_traces(record).records()
    assert [held.answer for held in question.rounds] == ["Oslo", "At Skien"]


def test_a_wrong_number_is_refused_with_the_right_one(client: TestClient) -> None:
    rounds = f"{begin(client)}/rounds"
    for wrong in ({}, {"round": "1"}, {"round": True}, {"round": 0}):
        assert "round" in refused(client, rounds, {**wrong, "answer": "a"}, 400, None)
    assert "the next is 1" in refused(
        client, rounds, {"round": 2, "answer": "a"}, 409, "wrong_round"
    )
    send(client, rounds, {"round": 1, "answer": "a"})
    other = refused(client, rounds, {"round": 1, "answer": "b"}, 409, "wrong_round")
    assert "another content; the next is 2" in other
    assert "self" in refused(client, rounds, {"round": 2, "self": 1}, 400, None)
    assert send(client, rounds, {"round": 2, "answer": "b"})["round"] == 2  # nothing was observed


def test_a_loop_has_so_many_bytes(record: Path) -> None:
    app = loop_app(record, limits=LimitSettings(loop_bytes=2_000))
    with TestClient(app) as client:
        loop = begin(client)
        send(client, f"{loop}/rounds", {"round": 1, "answer": "é" * 400})
        said = refused(
            client, f"{loop}/rounds", {"round": 2, "answer": "é" * 600}, 413, "loop_too_large"
        )
        assert "2,000 bytes" in said
        refused(client, f"{loop}/answer", {"answer": "é" * 600}, 413, "loop_too_large")
        send(client, f"{loop}/rounds", {"round": 2, "answer": "b"})
        assert send(client, f"{loop}/end", {})["rounds"] == 2


def test_labels_are_taken_at_a_rate() -> None:
    clock = Clock()
    app = loop_app(limits=LimitSettings(labels_per_minute=2), clock=clock)
    with TestClient(app) as client:
        label = {"question_id": "q", "score": 1}
        for _ in range(2):
            assert client.post("/v1/labels", json=label).status_code != 429
        reply = client.post("/v1/labels", json=label)
        assert (reply.status_code, reply.headers["Retry-After"]) == (429, "30")
        assert "2 labels a minute" in reply.json()["error"]["message"]
        clock.now += 30
        assert client.post("/v1/labels", json=label).status_code != 429


def test_a_question_has_one_loop_at_a_time(client: TestClient) -> None:
    loop = begin(client, question_id="q1")
    said = refused(client, "/v1/loops", {**QUESTION, "question_id": "q1"}, 400, None)
    assert loop.removeprefix("/v1/loops/") not in said  # somebody else may ask
    send(client, f"{loop}/rounds", {"round": 1, "answer": "a"})
    send(client, f"{loop}/end", {"error": "the search broke"})
    assert begin(client, question_id="q1") != loop


def test_two_clients_of_one_loop_take_turns(client: TestClient) -> None:
    rounds = f"{begin(client, policy='two')}/rounds"
    wait = threading.Barrier(4)

    def observe(name: int) -> int:
        wait.wait()
        return client.post(rounds, json={"round": 1, "answer": f"by {name}"}).status_code

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(observe, range(4))) == [200, 409, 409, 409]


def test_a_loop_that_nobody_touches_ends_as_unfinished(record: Path) -> None:
    clock, heard = Clock(), Heard()
    limits = LoopSettings(under_way=2, idle_s=60)
    app = loop_app(record, loops=limits, clock=clock, observers=[heard])
    loops = app.state.loops
    with TestClient(app) as client:
        left, kept = begin(client), begin(client)
        send(client, f"{left}/rounds", {"round": 1, "answer": "Oslo"})
        full = client.post("/v1/loops", json=QUESTION)
        assert (full.status_code, full.headers["Retry-After"]) == (429, "60")
        clock.now = 59.0
        client.get(kept)
        clock.now = 61.0
        loops.sweep()
        assert loops.under_way == 1
        state = client.get(left).json()
        assert (state["ended"], state["stopped_by"]) == (True, "error")
        assert "nobody touched it for 60 s" in state["reason"]
        said = refused(client, f"{left}/rounds", {"round": 2, "answer": "x"}, 409, "ended")
        assert "begin another with POST /v1/loops" in said
        clock.now = 200.0  # asked for before it was looked for
        assert client.get(kept).json()["ended"]
    (question,) = read_traces(record).records()
    assert question.stopped_by == "error"
    assert [len(ended.rounds) for ended in heard.ended] == [1, 0]


def test_exploration_and_shadow_are_the_watchs(record: Path) -> None:
    with TestClient(loop_app(record, explore=0.999999)) as client:
        loop = begin(client, policy="two")
        for number in (1, 2):
            reply = send(client, f"{loop}/rounds", {"round": number, "answer": "a"})
        assert (reply["action"], reply["would_stop"], reply["done"]) == ("continue", 2, False)
        assert client.get(loop).json()["explored"]
        send(client, f"{loop}/end", {})
    (question,) = read_traces(record).records()
    assert question.propensity == pytest.approx(0.999999)
    with TestClient(loop_app(loops=LoopSettings(mode="shadow"))) as client:
        loop = begin(client, policy="two")
        reply = [send(client, f"{loop}/rounds", {"round": n, "answer": "a"}) for n in (1, 2)][-1]
        assert reply["reason"].startswith("in shadow, so it goes on; ")


def test_labels_that_differ_are_refused_after_a_restart_too(tmp_path: Path) -> None:
    label = {"question_id": "q9", "gold_answers": ["a", "b"], "score": 0.5}
    with TestClient(loop_app(tmp_path)) as client:
        begun = send(client, "/v1/loops", {"question": "Where?", "question_id": "q9"}, 201)
        refused(client, "/v1/labels", {**label, "question_id": "q"}, 404, "question_not_found")
        send(client, f"/v1/loops/{begun['id']}/rounds", {"round": 1, "answer": "a"})
        send(client, "/v1/labels", label)
        send(client, "/v1/labels", {**label, "gold_answers": ["b", "a"]})
    with TestClient(loop_app(tmp_path)) as client:
        for wrong in ({"score": 1.0}, {"gold_answers": ["c"]}):
            refused(client, "/v1/labels", {**label, **wrong}, 409, "labelled")


def test_unknown_ids_and_wrong_bodies(client: TestClient) -> None:
    assert client.get("/v1/loops/loop-0").status_code == 404
    refused(client, "/v1/loops/x/rounds", {"round": 1}, 404, "loop_not_found")
    loop = begin(client)
    said = refused(client, f"{loop}/end", {"error": "a", "reason": "b"}, 400, None)
    assert "not both" in said
    assert "before a round" in refused(client, f"{loop}/answer", {"answer": "a"}, 400, None)
    for wrong in ({"answer": "a", "self": "a"}, {}):
        refused(client, f"{loop}/answer", wrong, 400, None)
    refused(client, "/v1/labels", {"question_id": "q"}, 400, None)
    refused(client, "/v1/labels", {"question_id": "q", "score": 7}, 400, None)
    refused(client, "/v1/loops", {"question": "q", "question_id": ""}, 400, None)
    refused(client, "/v1/loops", {**QUESTION, "gold_answers": "Skien"}, 400, None)

"""What a service takes on, records and cuts."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from tests.serving import QUESTION, Heard, Shelf, chat, client, service

from suffice.concurrency import may_be_cut
from suffice.contracts import Generation, GenerationRequest
from suffice.live.answering import Answered, AskSettings, LiveLoop
from suffice.live.requirements import choose_policy
from suffice.serve.guard import Refusal
from suffice.serve.service import Service, Wanted
from suffice.serve.service_settings import LimitSettings
from suffice.serve.under_way import UnderWay
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.reader import read_traces


class Held(ScriptedModel):
    def __init__(self) -> None:
        super().__init__(lambda *_: "Answer: Skien")
        self.go = threading.Event()
        self.asked = threading.Event()

    def generate(self, request: GenerationRequest) -> Generation:
        self.asked.set()
        with may_be_cut(self.go.set):
            self.go.wait()
        return super().generate(request)


async def begin(served: Service, **further: object) -> UnderWay:
    return await served.ask(QUESTION, Wanted(), **further)  # type: ignore[arg-type]


async def done(under_way: UnderWay) -> Answered:
    try:
        return await under_way.done()
    finally:
        under_way.leave()


def test_a_question_more_than_there_is_room_for_waits_and_the_next_is_sent_away() -> None:
    model = Held()
    served = service(model, limits=LimitSettings(questions=1, queue=1))

    async def three() -> None:
        first = await begin(served)
        waits = asyncio.create_task(begin(served))
        await asyncio.sleep(0.01)
        assert (served.places.taken, served.places.waiting) == (1, 1)
        with pytest.raises(Refusal) as refused:
            await begin(served)
        assert refused.value.status == 429
        assert refused.value.headers == {"Retry-After": "2"}
        model.go.set()
        assert (await done(first)).answer == "Skien"
        assert (await done(await waits)).answer == "Skien"
        await asyncio.sleep(0.05)
        assert (served.places.taken, served.places.waiting) == (0, 0)

    asyncio.run(three())


def test_a_client_that_hangs_up_cuts_its_question_and_frees_its_place() -> None:
    model, heard = Held(), Heard()
    served = service(model, observers=[heard], limits=LimitSettings(questions=1))

    async def hang_up() -> None:
        gone = asyncio.Event()
        under_way = await begin(served, hung_up=gone.wait)
        await asyncio.to_thread(model.asked.wait)
        gone.set()
        with pytest.raises(Refusal, match="hung up"):
            await under_way.done()
        await asyncio.sleep(0.05)
        assert served.places.taken == 0

    asyncio.run(hang_up())
    (ended,) = heard.ended
    assert ended.stopped_by == "gone"


def test_who_asks_again_at_once_finds_the_place_free() -> None:
    served = service(limits=LimitSettings(questions=1, queue=0))

    async def again() -> None:
        for _ in range(20):
            await done(await begin(served))
            await asyncio.sleep(0)  # a client's next request comes by the event loop

    asyncio.run(again())


def test_a_request_ends_in_time_and_finished_rounds_are_kept(tmp_path: Path) -> None:
    slow = threading.Event()

    def reply(*_: object) -> str:
        if slow.is_set():
            time.sleep(0.2)
        slow.set()
        return "Answer: Skien"

    served = service(
        ScriptedModel(reply),
        {"stable": "answer_stable"},
        record=tmp_path / "record",
        limits=LimitSettings(seconds=0.1),
    )
    with client(served) as asked:
        late = chat(asked)
    assert late.status_code == 504
    assert late.json()["error"]["code"] == "timeout"
    traces = read_traces(tmp_path / "record")
    assert traces.n_questions == 1


def test_every_question_is_recorded_and_told_of(tmp_path: Path) -> None:
    heard = Heard()
    served = service(observers=[heard], record=tmp_path / "record")
    with client(served) as asked:
        lazy = chat(asked, model="two").json()["suffice"]
        chat(asked, model="stable", stream=True)
    traces = read_traces(tmp_path / "record")
    assert traces.n_questions == 2
    assert lazy["trace_id"] in traces.question_ids
    assert [ended.policy for ended in heard.ended] == ["two", "stable"]
    assert [[ran.number for ran in ended.rounds] for ended in heard.ended] == [[1, 2], [1, 2]]
    assert [ended.stopped_by for ended in heard.ended] == ["policy", "policy"]
    assert heard.ended[0].tokens.completion == 5


def test_an_explored_question_runs_on_and_is_asked_for_every_answer(tmp_path: Path) -> None:
    served = service(policies={"two": "answer_stable"}, record=tmp_path / "r", explore=0.999)
    with client(served) as asked:
        told = chat(asked).json()["suffice"]
    assert told["explored"]
    assert told["rounds"] == 5
    assert told["stopped_by"] == "budget"
    traces = read_traces(tmp_path / "r")
    assert traces.n_rounds == 5


def test_the_answer_is_that_of_ask() -> None:
    model = ScriptedModel()
    live = LiveLoop.of(choose_policy("answer_stable"), model, AskSettings(), print)
    alone = live.answer(QUESTION, Shelf())
    with client(service(ScriptedModel())) as asked:
        served = chat(asked, model="stable").json()
    assert served["choices"][0]["message"]["content"] == alone.answer
    assert served["suffice"]["stop_reason"] == alone.reason
    assert served["usage"]["prompt_tokens"] == alone.to_json()["usage"]["prompt_tokens"]


def test_an_ending_service_takes_no_more() -> None:
    served = service()
    with client(served) as asked:
        served.ready = False
        reply = chat(asked)
    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "5"


def test_without_a_ground_loops_of_others_are_decided_about(tmp_path: Path) -> None:
    served = Service(None, {"two": "fixed-2"}, record=tmp_path / "r")
    with client(served) as asked:
        refused = chat(asked)
        assert refused.status_code == 404
        assert "--corpus" in refused.json()["error"]["message"]
        rounds = [{"answer": "Oslo"}, {"answer": "Skien"}]
        decided = asked.post("/v1/decisions", json={"question": QUESTION, "rounds": rounds}).json()
        assert (decided["action"], decided["policy"]) == ("stop", "two")
        loop = asked.post("/v1/loops", json={"question": QUESTION}).json()["id"]
        told = asked.post(f"/v1/loops/{loop}/rounds", json={"round": 1, "answer": "Oslo"}).json()
        assert (told["action"], told["done"]) == ("continue", False)
        (model,) = asked.get("/v1/models").json()["data"]
        assert (model["id"], model["suffice"]["model"]) == ("suffice/two", None)
    assert read_traces(tmp_path / "r").n_questions == 1

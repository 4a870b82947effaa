from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.server import Answer, Server
from tests.serving import MESSAGES, Heard, chat, client, listening, service

from suffice.contracts import Generation, GenerationRequest
from suffice.costs.prices import parse_prices
from suffice.errors import BackendError, UsageError
from suffice.live.answering import AskSettings
from suffice.live.watching import Budgets
from suffice.llm.endpoint import OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel
from suffice.serve.service_settings import LimitSettings
from suffice.testing.models import Failures, ScriptedModel
from suffice.trace.rounds.reader import read_traces


def test_a_question_is_answered_under_the_policy_of_the_model() -> None:
    with client(service()) as asked:
        reply = chat(asked, model="suffice/stable", temperature=0.2, user="me")
    body = reply.json()
    assert reply.status_code == 200
    assert body["choices"][0]["message"]["content"] == "Skien, Norway"
    assert body["model"] == "suffice/stable"
    assert body["suffice"]["rounds"] == 2
    assert body["suffice"]["stopped_by"] == "policy"
    assert body["suffice"]["notes"] == ["without effect: temperature, user"]
    assert [passage["round"] for passage in body["suffice"]["passages"]] == [1, 2]
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert reply.headers["x-suffice-rounds"] == "2"
    assert reply.headers["x-suffice-stopped-by"] == "policy"
    assert "answer_stable" in reply.headers["x-suffice-stop-reason"]
    assert reply.headers["x-suffice-trace-id"] == body["suffice"]["trace_id"]
    assert reply.headers["x-suffice-policy-hash"] == body["suffice"]["policy_hash"]
    assert "x-suffice-cost-usd" not in reply.headers


def test_policy_and_limits_of_a_request_are_its_own() -> None:
    settings = AskSettings(budgets=Budgets(prices=parse_prices("input=1,output=1")))
    served = service(settings=settings)
    with client(served) as asked:
        by_header = chat(asked, model="two", headers={"X-Suffice-Policy": "stable"}).json()
        limits = {"X-Suffice-Policy": "suffice/stable", "X-Suffice-Max-Rounds": "1"}
        cut = chat(asked, headers=limits)
        cheap = chat(asked, model="stable", headers={"X-Suffice-Budget-Usd": "1e-9"})
        after = chat(asked, model="stable").json()
    assert by_header["suffice"]["policy"] == "stable"
    assert cut.headers["x-suffice-rounds"] == "1"
    assert cut.headers["x-suffice-stopped-by"] == "budget"
    assert cheap.json()["suffice"]["stop_reason"].startswith("the budget of 1e-09 USD is spent; ")
    assert float(cheap.headers["x-suffice-cost-usd"]) > 0
    assert after["suffice"]["stopped_by"] == "policy"
    kept = served.policies["stable"]
    assert kept.live is not None
    assert kept.live.settings.budgets.usd is None
    assert kept.max_rounds == 5


def test_all_questions_of_a_record_share_the_dollars_of_a_day(tmp_path: Path) -> None:
    limit = Budgets(usd_per_day=0.4, prices=parse_prices("input=0,output=0,call=0.1"))
    settings = AskSettings(budgets=limit)
    with pytest.raises(UsageError, match="--record"):
        service(settings=settings)
    with client(service(settings=settings, record=tmp_path)) as asked:
        names = ("stable", "two", "stable")
        told = [chat(asked, model=name).json()["suffice"] for name in names]
    assert [one["stopped_by"] for one in told] == ["policy", "policy", "budget"]
    assert "24 hours" in told[-1]["stop_reason"]


def test_past_a_hard_budget_of_a_day_no_question_begins(tmp_path: Path) -> None:
    prices = parse_prices("input=0,output=0,call=0.1")
    settings = AskSettings(budgets=Budgets(usd_per_day=0.05, hard=True, prices=prices))
    with client(service(settings=settings, record=tmp_path)) as asked:
        assert chat(asked, model="stable").status_code == 200
        refused, streamed = (chat(asked, model="two", stream=streams) for streams in (False, True))
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "budget_spent")
    assert int(refused.headers["retry-after"]) > 0
    assert '"code":"budget_spent"' in streamed.text
    assert read_traces(tmp_path).n_questions == 1


def lines_of(reply: Any) -> list[dict[str, Any]]:
    """The chunks of a stream; its last line is the end."""
    data = [line[6:] for line in reply.text.splitlines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    assert "event:" not in reply.text
    return [json.loads(line) for line in data[:-1]]


def test_a_lazy_answer_is_streamed_as_it_comes_and_an_early_one_at_the_stop() -> None:
    with client(service()) as asked:
        lazy = chat(asked, model="two", stream=True, stream_options={"include_usage": True})
        early = chat(asked, model="stable", stream=True)
    chunks = lines_of(lazy)
    texts = [part["delta"].get("content") for chunk in chunks for part in chunk["choices"]]
    assert texts == ["", "Skien", ", Norway", None]
    assert ": round 1 continue\n\n: round 2 stop\n\n" in lazy.text
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] > 0
    assert chunks[-1]["suffice"]["rounds"] == 2
    assert lazy.headers["x-suffice-trace-id"] == chunks[-1]["suffice"]["trace_id"]
    assert "x-suffice-rounds" not in lazy.headers
    told = lines_of(early)
    assert [chunk["choices"][0]["delta"].get("content") for chunk in told] == [
        "",
        "Skien, Norway",
        None,
    ]
    assert told[-1]["choices"][0]["finish_reason"] == "stop"
    assert told[-1]["suffice"]["stopped_by"] == "policy"


IMAGE = [{"role": "user", "content": [{"type": "image_url"}]}]


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"model": "suffice/stabel"}, 404, "model"),
        ({"headers": {"X-Suffice-Policy": "../etc"}}, 404, "model"),
        ({"headers": {"X-Suffice-Max-Rounds": "99"}}, 400, "max_rounds"),
        ({"headers": {"X-Suffice-Budget-Usd": "1"}}, 400, "budget_usd"),
        ({"headers": {"X-Suffice-Budget-Usd": "-1"}}, 400, "x-suffice-budget-usd"),
        ({"headers": {"X-Suffice-Max-Rounds": "many"}}, 400, "x-suffice-max-rounds"),
        ({"n": 2}, 400, "n"),
        ({"tools": [{"type": "function"}]}, 400, "tools"),
        ({"web_search_options": {}}, 400, "web_search_options"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format.type"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "system", "content": "Be kind."}]}, 400, None),
        ({"messages": [{"role": "user", "content": " "}]}, 400, "messages"),
        ({"messages": [{"role": "user", "content": "a" * 4001}]}, 400, "messages"),
        ({"messages": IMAGE}, 400, "messages[0].content"),
        ({"stream": "yes"}, 400, "stream"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(
    fields: dict[str, Any], status: int, param: str | None
) -> None:
    with client(service()) as asked:
        reply = chat(asked, **fields)
    assert reply.status_code == status
    error = reply.json()["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert error["message"]


def test_parts_of_text_and_what_was_said_before() -> None:
    heard = Heard()
    parts = [{"type": "text", "text": "Where was"}, {"type": "text", "text": "Ibsen born?"}]
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": parts}]
    with client(service(observers=[heard])) as asked:
        reply = chat(asked, messages=messages, top_k=3)
    assert reply.json()["suffice"]["notes"] == [
        "system messages were not read",
        "without effect: top_k",
    ]
    assert heard.ended[0].text == "Where was\nIbsen born?"


SAID = [
    {"role": "user", "content": "Who wrote Hedda Gabler?"},
    {"role": "assistant", "content": [{"type": "text", "text": "Henrik Ibsen\nAnswer: Oslo"}]},
    {"role": "user", "content": "And where was he born?"},
]


@pytest.mark.parametrize("stated", ["Where was Henrik Ibsen born?\nUser: Thanks", " \n"])
def test_a_question_is_understood_by_what_was_said_before(stated: str, tmp_path: Path) -> None:
    asked_for: list[str] = []

    def reply(request: GenerationRequest, _: int) -> str:
        prompt = str(request.prompt)
        if prompt.endswith("Question:"):
            asked_for.append(prompt)
            return stated
        return "Answer: Skien"

    served = service(ScriptedModel(reply), record=tmp_path / "record")
    with client(served) as asked:
        alone = chat(asked, messages=SAID[2:]).json()
        told = chat(asked, messages=SAID).json()
    (prompt,) = asked_for
    assert (
        "User: Who wrote Hedda Gabler?\nAssistant: Henrik Ibsen Answer: Oslo\nUser: And" in prompt
    )
    question = "Where was Henrik Ibsen born?" if stated.strip() else "And where was he born?"
    assert told["suffice"]["question"] == question
    assert told["suffice"]["notes"] == alone["suffice"]["notes"] == []
    assert told["usage"]["prompt_tokens"] > alone["usage"]["prompt_tokens"] + 50
    held = {one.question.id: one for one in read_traces(tmp_path / "record").records()}
    recorded, plain = (held[one["suffice"]["trace_id"]] for one in (told, alone))
    assert recorded.question.text == question
    assert [one.usage.llm_calls for one in plain.rounds] == [0, 1]
    assert [one.usage.llm_calls for one in recorded.rounds] == [1, 1]
    assert recorded.rounds[0].usage.latency_s is not None


def test_models_are_policies() -> None:
    with client(service()) as asked:
        listed = asked.get("/v1/models").json()
        one = asked.get("/v1/models/suffice/two").json()
        none = asked.get("/v1/models/suffice/twoo")
        lost = asked.get("/v1/completions")
    assert [model["id"] for model in listed["data"]] == ["suffice/two", "suffice/stable"]
    assert one == listed["data"][0]
    assert none.status_code == 404
    assert none.json()["error"]["code"] == "model_not_found"
    assert (lost.status_code, lost.json()["error"]["type"]) == (404, "invalid_request_error")


def test_a_model_that_fails_is_a_bad_gateway_until_a_round_was_answered() -> None:
    dead = ScriptedModel(failures=Failures(first=99))
    with client(service(dead)) as asked:
        reply = chat(asked)
        streamed = chat(asked, stream=True)
    assert reply.status_code == 502
    assert reply.json()["error"]["type"] == "upstream_error"
    assert lines_of(streamed)[-1]["error"] == reply.json()["error"]
    assert "scripted failure" not in reply.text  # the log has it
    late = ScriptedModel(failures=Failures(containing=("Town 1",)))
    with client(service(late)) as asked:
        begun = chat(asked, model="stable").json()
    assert begun["suffice"]["stopped_by"] == "error"
    assert begun["suffice"]["rounds"] == 1
    assert begun["choices"][0]["message"]["content"]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("hangs", [False, True])
def test_a_server_that_dies_late_costs_no_answer_at_hand(hangs: bool, streams: bool) -> None:
    over = threading.Event()

    def dead(_: dict[str, Any]) -> Answer:
        if hangs:
            over.wait(10)
        return 500, {}, {"error": {"message": "no"}}

    said = {"choices": [{"message": {"content": "Answer: Skien"}, "finish_reason": "stop"}]}
    # its retries take longer than the request may
    settings = OpenAISettings(first_pause_s=0.4, max_retries=50)
    with (
        closing(Server(dead)) as server,
        OpenAICompatibleModel(server.url, "m", settings=settings) as model,
        listening(service(model, limits=LimitSettings(seconds=1))) as url,
    ):
        server.answers((200, {}, said), dead)
        asked = {"messages": MESSAGES, "model": "stable", "stream": streams}
        reply = httpx2.post(f"{url}/chat/completions", json=asked, timeout=20)
        over.set()
    assert reply.status_code == 200
    told = lines_of(reply) if streams else [reply.json()]
    choices = [choice for part in told for choice in part["choices"]]
    texts = [choice["delta" if streams else "message"].get("content") for choice in choices]
    assert "".join(filter(None, texts)) == "Skien"
    assert told[-1]["suffice"]["stopped_by"] == "error"
    assert told[-1]["suffice"]["rounds"] == 1


class BreaksOff(ScriptedModel):
    """Tells the beginning of a reply and fails, so many times; then it replies."""

    def __init__(self, times: int) -> None:
        super().__init__(lambda *_: "Answer: Skien")
        self.left = times

    def generate(self, request: GenerationRequest) -> Generation:
        if self.left and request.tell is not None:
            self.left -= 1
            for piece in ("Answer: Oslo is", " the town"):
                request.tell(piece)
            raise BackendError("the connection was lost")
        return super().generate(request)


def test_after_a_reply_that_broke_off_no_second_answer_is_streamed() -> None:
    with client(service(BreaksOff(1))) as asked:
        reply = chat(asked, model="two", stream=True)
    *chunks, last = lines_of(reply)
    pieces = [part["delta"].get("content") for chunk in chunks for part in chunk["choices"]]
    assert "".join(filter(None, pieces)) == "Oslo is the town"
    assert last["error"]["code"] == "model_failed"

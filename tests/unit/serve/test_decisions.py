"""Rounds in, a decision out: as a controller decides, with what was not given named."""

from __future__ import annotations

import math
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.loop_service import POLICIES, loop_app

from suffice.live.controller import Controller
from suffice.policies.file import PolicyFile, policy_hash
from suffice.policies.rules.policy import RulePolicy
from suffice.serve.decisions import EXAMPLE
from suffice.serve.events import Event, QuestionBegun, QuestionEnded, RoundEnded
from suffice.signals.available import NOT_GIVEN
from suffice.trace.rounds.records import Round

ROUNDS = [{"answer": "Oslo"}, {"answer": "Skien"}, {"answer": "skien."}]


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(loop_app()[0])


def post(client: TestClient, body: Any, status: int = 200, policy: str = "") -> Any:
    headers = {"X-Suffice-Policy": policy} if policy else {}
    reply = client.post("/v1/decisions", json=body, headers=headers)
    assert reply.status_code == status, reply.text
    return reply.json()


def test_the_decision_of_the_last_round_with_all_that_is_known_of_it(client: TestClient) -> None:
    policy = POLICIES["stable"]
    controller = Controller(policy)
    for held in ROUNDS:
        decision = controller.observe(Round(**held))  # type: ignore[arg-type]
    reply = post(client, {"question": "Where was Ibsen born?", "rounds": ROUNDS})
    assert reply == {
        "round": 3,
        "action": "stop",
        "reason": decision.reason,
        "values": dict(decision.values),
        "confidence": None,
        "stopped_by": "policy",
        "undefined": {},
        "would_stop": 3,
        "answer_round": 3,
        "policy": "stable",
        "policy_hash": policy_hash(policy.policy),
    }


def test_the_budget_is_the_policys_unless_one_is_asked_for(client: TestClient) -> None:
    five = [{"answer": str(number)} for number in range(5)]
    assert post(client, {"question": "", "rounds": five})["stopped_by"] == "budget"
    early = post(client, {"question": "", "rounds": five[:2], "max_rounds": 2})
    assert (early["stopped_by"], early["would_stop"]) == ("budget", None)


def test_a_policy_is_named_by_the_body_or_by_a_header(client: TestClient) -> None:
    body = {"question": "", "rounds": ROUNDS[:2]}
    assert post(client, body)["policy"] == "stable"
    assert post(client, {**body, "policy": "two"})["action"] == "stop"
    assert post(client, body, policy="two")["policy"] == "two"
    refused = post(client, {**body, "policy": "tow"}, 404)["error"]
    assert "known: stable, two" in refused["message"]


def test_a_round_is_what_observe_takes_or_what_a_record_holds(client: TestClient) -> None:
    parts = {
        "answer": "Skien",
        "passages": [{"id": "p", "text": "Ibsen was born in Skien.", "score": 0.5}, "another"],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1},
        "logprobs": {"content": [{"token": "Skien", "logprob": -0.1, "top_logprobs": []}]},
        "signals": {"own": None},
    }
    whole = {"finished": {"answer": "Skien", "tokens": [{"token": "Skien", "logprob": "-inf"}]}}
    assert post(client, {"question": "", "rounds": [parts, whole]})["would_stop"] == 2


@pytest.mark.filterwarnings(f"ignore:{NOT_GIVEN}")
def test_signals_without_a_value_are_named_with_the_reason() -> None:
    rule = RulePolicy(
        rule="answer_token_margin > 1 or own > 2 or answer_stable", own_signals=("own",)
    )
    client = TestClient(loop_app(policies=lambda: {"rule": PolicyFile(rule, None)})[0])
    reply = post(client, {"question": "", "rounds": [{"answer": "a", "signals": {"own": None}}]})
    assert reply["undefined"].keys() == {"answer_token_margin", "own", "answer_stable"}
    assert reply["undefined"]["answer_token_margin"] == "the round has no tokens"
    assert reply["undefined"]["own"] == "given as undefined"


def test_infinite_values_are_text(client: TestClient) -> None:
    rule = RulePolicy(rule="own > 2", own_signals=("own",))
    client = TestClient(loop_app(policies=lambda: {"rule": PolicyFile(rule, None)})[0])
    content = '{"question": "", "rounds": [{"signals": {"own": 1e999}}]}'
    reply = client.post("/v1/decisions", content=content).json()
    assert reply["values"] == {"own": "inf"}
    assert math.isinf(float(reply["values"]["own"]))


def test_several_at_once_each_with_its_reply_or_its_error(client: TestClient) -> None:
    one = {"question": "", "rounds": ROUNDS}
    several: list[Any] = [one, {"question": ""}, {**one, "rounds": [{"answer": 1}]}, 7]
    decisions = post(client, {"requests": several})["decisions"]
    assert decisions[0] == post(client, one)
    said = [held["error"]["message"] for held in decisions[1:]]
    assert "rounds is missing" in said[0]
    assert said[1].startswith("round 1: ")
    assert "a request is an object" in said[2]
    too_many = post(client, {"requests": [one] * 257}, 400)["error"]["message"]
    assert "256 requests, found 257" in too_many


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"question": "", "rounds": []}, "1 to 256 rounds, found 0"),
        ({"question": "", "rounds": ROUNDS * 90}, "1 to 256 rounds, found 270"),
        ({"question": 3, "rounds": ROUNDS}, "question must be a text, found 3"),
        ({"question": "", "rounds": ROUNDS, "polcy": "x"}, "unknown field 'polcy'; allowed: "),
        ({"question": "", "rounds": ROUNDS, "max_rounds": 0}, "at least 1, found 0"),
        ({"question": "", "rounds": ROUNDS, "max_rounds": True}, "a whole number or null"),
        ({"question": "", "rounds": [{"answr": "a"}]}, "observe() takes "),
        ({"question": "", "rounds": [{}]}, "give at least passages= or answer="),
        ({"question": "", "rounds": [{"finished": {}, "answer": ""}]}, "not both; found answer"),
        ({"question": "", "rounds": [{"finished": [1]}]}, "not a round"),
        ({"question": "", "rounds": [{"finished": {"answer": "a", "x": 1}}]}, "not a round"),
        ({"question": "", "rounds": [{"candidate_scores": ["x"]}]}, "candidate_scores"),
        ({"question": "", "rounds": [{"candidate_scores": 3}]}, "a sequence of numbers, found 3"),
        ({"question": "", "rounds": [{"answer": "", "sample_clusters": 1}]}, "sequence of numbers"),
        ({"question": "", "rounds": [{"answer": "", "signals": []}]}, "numbers by name, found []"),
        ({"question": "", "rounds": [{"passages": [3]}]}, "number 0 is 3"),
        ({"question": "", "rounds": [{"signals": {"x": 10**400}}]}, "numbers by name"),
        ({"requests": [], "question": ""}, "{'requests': [...]} alone"),
    ],
)
def test_what_is_wrong_is_said(client: TestClient, body: Any, said: str) -> None:
    assert said in post(client, body, 400)["error"]["message"]


def test_observers_are_told() -> None:
    told: list[Event] = []
    client = TestClient(loop_app(tell=told.append)[0])
    post(client, {**EXAMPLE, "rounds": EXAMPLE["rounds"][:1]})
    begun, ended, over = told
    assert isinstance(begun, QuestionBegun)
    assert (begun.endpoint, begun.text) == ("decisions", "Where was Ibsen born?")
    assert isinstance(ended, RoundEnded)
    assert isinstance(over, QuestionEnded)
    assert (over.trace_id, over.stopped_by, over.rounds) == (begun.trace_id, "goes-on", 1)

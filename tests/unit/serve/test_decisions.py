"""Rounds in, a decision out: as a controller decides, with what was not given named."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.loop_service import STABLE, loop_app

from suffice.live.controller import Controller
from suffice.policies.policy_file import PolicyFile, policy_hash
from suffice.policies.rules.policy import Rule
from suffice.signals.known_signals import NOT_GIVEN
from suffice.trace.rounds.records import Round

ROUNDS = [{"answer": "Oslo"}, {"answer": "Skien"}, {"answer": "skien."}]


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(loop_app())


def post(client: TestClient, body: Any, status: int = 200) -> Any:
    reply = client.post("/v1/decisions", json=body)
    assert reply.status_code == status, reply.text
    return reply.json()


def test_the_decision_of_the_last_round_with_all_that_is_known_of_it(client: TestClient) -> None:
    controller = Controller(PolicyFile(STABLE, 5))
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
        "policy_hash": policy_hash(STABLE),
    }


def test_the_budget_is_the_policys_unless_one_is_asked_for(client: TestClient) -> None:
    five = [{"answer": str(number)} for number in range(5)]
    assert post(client, {"question": "", "rounds": five})["stopped_by"] == "budget"
    early = post(client, {"question": "", "rounds": five[:2], "max_rounds": 2})
    assert (early["stopped_by"], early["would_stop"]) == ("budget", None)


def test_a_policy_is_named_by_the_body(client: TestClient) -> None:
    body = {"question": "", "rounds": ROUNDS[:2]}
    assert post(client, body)["policy"] == "stable"
    assert post(client, {**body, "policy": "two"})["action"] == "stop"
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
    rule = Rule(rule="answer_token_margin > 1 or own > 2 or answer_stable", own_signals=("own",))
    client = TestClient(loop_app(policies={"rule": rule}))
    reply = post(client, {"question": "", "rounds": [{"answer": "a", "signals": {"own": None}}]})
    assert reply["undefined"].keys() == {"answer_token_margin", "own", "answer_stable"}
    assert reply["undefined"]["answer_token_margin"] == "the round has no tokens"
    assert reply["undefined"]["own"] == "given as undefined"


ONE = {"question": "", "rounds": ROUNDS}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({**ONE, "rounds": []}, "rounds"),
        ({**ONE, "rounds": ROUNDS * 90}, "rounds"),
        ({**ONE, "question": 3}, "question"),
        ({**ONE, "polcy": "x"}, "polcy"),
        ({**ONE, "max_rounds": 0}, "max_rounds"),
        ({**ONE, "max_rounds": True}, "max_rounds"),
        ({**ONE, "rounds": [{"answr": "a"}]}, "rounds.0.answr"),
        ({**ONE, "rounds": [{}]}, "rounds"),
        ({**ONE, "rounds": [{"finished": {}, "answer": ""}]}, "rounds"),
        ({**ONE, "rounds": [{"finished": [1]}]}, "rounds.0.finished"),
        ({**ONE, "rounds": [{"finished": {"answer": "a", "x": 1}}]}, "rounds"),
        ({**ONE, "rounds": [{"candidate_scores": 3}]}, "rounds.0.candidate_scores"),
        ({**ONE, "rounds": [{"answer": "", "sample_clusters": 1}]}, "rounds.0.sample_clusters"),
        ({**ONE, "rounds": [{"answer": "", "signals": []}]}, "rounds.0.signals"),
        ({**ONE, "rounds": [{"passages": [3]}]}, "rounds"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(client: TestClient, body: Any, param: str) -> None:
    assert post(client, body, 400)["error"]["param"] == param

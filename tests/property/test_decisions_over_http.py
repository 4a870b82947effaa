"""What is decided over HTTP is what a controller decides and replay replays, to the bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from starlette.testclient import TestClient
from tests.every_policy import policies
from tests.loop_service import loop_app
from tests.properties import examples
from tests.question_records import question_records

from suffice.contracts import StopPolicy
from suffice.errors import UsageError
from suffice.live.controller import Controller
from suffice.signals.known_signals import NOT_GIVEN
from suffice.signals.signal_table import first_stops, signal_table
from suffice.testing.conformance import incomplete_rounds
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import QuestionRecord, as_document

pytestmark = pytest.mark.filterwarnings(f"ignore:{NOT_GIVEN}", "ignore:EXECUTE can never be chosen")
DECISION = ("action", "reason", "values", "confidence", "stopped_by")


def served() -> dict[str, StopPolicy]:
    return {str(number): policy for number, policy in enumerate(policies())}


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(loop_app(policies=served()))


@settings(deadline=None, max_examples=1, suppress_health_check=list(HealthCheck))
@given(records=question_records(max_questions=2))
def test_it_is_the_same_decision(client: TestClient, records: list[QuestionRecord]) -> None:
    check(client, records, dict([*served().items()][::7]))


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(records=question_records(max_questions=3))
def test_it_is_the_same_decision_of_every_policy(
    client: TestClient, records: list[QuestionRecord]
) -> None:
    check(client, records, served())


def check(
    client: TestClient, records: Sequence[QuestionRecord], among: Mapping[str, StopPolicy]
) -> None:
    for name, policy in among.items():
        stops = [check_question(ask(client, name, record), policy, record) for record in records]
        try:
            table = signal_table(to_trace_set(records), policy.specs)
        except UsageError:  # a record that does not give what the policy reads
            continue
        replayed = first_stops(policy, table).tolist()
        for record, stop, round_ in zip(records, stops, replayed, strict=True):
            assert round_ == stop or (stop is None and round_ >= len(record.rounds))


def ask(client: TestClient, name: str, record: QuestionRecord) -> Sequence[Mapping[str, Any]]:
    rounds = [{"finished": as_document(finished)} for finished in record.rounds]
    asked = {"question": record.question.text, "question_id": record.question.id, "policy": name}
    decisions: list[Mapping[str, Any]] = []
    for number in range(1, len(rounds) + 1):
        reply = client.post("/v1/decisions", json={**asked, "rounds": rounds[:number]})
        assert reply.status_code == 200, reply.text
        decisions.append(reply.json())
    return decisions


def check_question(
    told: Sequence[Mapping[str, Any]], policy: StopPolicy, record: QuestionRecord
) -> int | None:
    controller = Controller(policy).start(record.question.text, question_id=record.question.id)
    for number, (finished, reply) in enumerate(zip(record.rounds, told, strict=True), start=1):
        with incomplete_rounds():
            decision = controller.observe(finished)
        live = {part: as_document(getattr(decision, part)) for part in DECISION}
        assert {part: reply[part] for part in DECISION} == live
        if decision.stop:
            assert told[-1]["would_stop"] == number
            return number
    assert told[-1]["would_stop"] is None
    return None

"""Alarms posted to one address: tried again, never led elsewhere, and what it holds stays secret."""

from __future__ import annotations

import pytest
from tests.server import taking_posts

from suffice.errors import BackendError, UsageError
from suffice.monitor.aspects import Alarm
from suffice.monitor.hook import WebHook

ALARM = Alarm(
    kind="loss",
    question=7,
    question_id="q7",
    policy="abc",
    text="stopping loses more than was promised",
    evidence={"low": 0.2},
)


def test_an_alarm_is_posted_with_its_evidence(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with taking_posts(204) as (url, taken):
        WebHook(url).send(ALARM)
    assert "s3cret" not in caplog.text
    assert taken == [ALARM.to_json()]
    assert Alarm.from_json(taken[0]) == ALARM


def test_a_server_in_trouble_is_tried_again_with_growing_pauses() -> None:
    pauses: list[float] = []
    with taking_posts(503, 500, 200) as (url, taken):
        WebHook(url, pause=pauses.append).send(ALARM)
    assert len(taken) == 3
    assert pauses == [0.5, 1.0]


@pytest.mark.parametrize(("status", "tries"), [(500, 4), (403, 1), (307, 1), (302, 1)])
def test_what_is_not_taken_is_said_without_the_secret(status: int, tries: int) -> None:
    with (
        taking_posts(200) as (elsewhere, led),
        taking_posts(status, location=elsewhere if status < 400 else "") as (url, taken),
        pytest.raises(BackendError, match=f"status {status}") as told,
    ):
        WebHook(url, pause=lambda _: None).send(ALARM)
    assert len(taken) == tries
    assert led == []
    assert "s3cret" not in str(told.value)


def test_nobody_there() -> None:
    with taking_posts(200) as (url, _):
        pass
    with pytest.raises(BackendError, match="alarm") as told:
        WebHook(url, pause=lambda _: None).send(ALARM)
    assert "s3cret" not in str(told.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/hook",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "https://ann:pass@example.org/",
        "hook",
        "http://127.0.0.1.example.org/",
        "http://[::1",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        WebHook(url)

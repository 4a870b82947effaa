"""Alarms posted to one address: never led elsewhere, and what it holds stays secret."""

from __future__ import annotations

import pytest
from tests.server import taking_posts

from suffice.errors import BackendError, UsageError
from suffice.monitor.following import WebHook
from suffice.monitor.production import Alarm

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


@pytest.mark.parametrize("status", [500, 403, 307, 302])
def test_what_is_not_taken_is_said_without_the_secret(status: int) -> None:
    with (
        taking_posts(200) as (elsewhere, led),
        taking_posts(status, location=elsewhere if status < 400 else "") as (url, taken),
        pytest.raises(BackendError, match=f"status {status}") as told,
    ):
        WebHook(url).send(ALARM)
    assert len(taken) == 1
    assert led == []
    assert "s3cret" not in str(told.value)


def test_nobody_there() -> None:
    with taking_posts(200) as (url, _):
        pass
    with pytest.raises(BackendError, match="alarm") as told:
        WebHook(url).send(ALARM)
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

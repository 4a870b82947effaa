"""A record watched as loops write it: every question once, labels later, alarms told once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.server import taking_posts

from suffice import Round, Usage, Watch
from suffice.errors import BackendError, DataError, UsageError
from suffice.monitor.following import AlarmLog, Following, WebHook
from suffice.monitor.production import Alarm, Production, ProductionSettings
from suffice.policies.rules.policy import Rule
from suffice.trace.export import export_traces
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.writer import write_traces

POLICY = Rule(rule="round >= 2")
SETTINGS = ProductionSettings(metric="em", max_loss=0.1, first=3, max_rounds=3)
QUESTIONS = 9


def ask(watch: Watch, number: int) -> str:
    """A question that the third round answers otherwise; one in four is labelled a question later."""
    with watch.question(f"What is {number}?", question_id=f"q{number}") as loop:
        while not loop.done:
            answer = f"{number}" if len(loop.rounds) == 2 else "no idea"
            loop.observe(Round(answer=answer, usage=Usage(llm_calls=1)))
    return loop.question_id


def watching(root: Path) -> Following:
    return Following(root, Production(POLICY, SETTINGS))


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "live"


def test_every_question_counts_once_however_often_one_looks(record: Path) -> None:
    steady = watching(record)
    with Watch(POLICY, record=record, mode="live", explore=0.7, max_rounds=3) as watch:
        for number in range(QUESTIONS):
            name = ask(watch, number)
            if number % 2:
                continue
            steady.look()
            if number % 4 == 0:
                watch.label(name, gold_answers=[str(number)])
        explored = watch.counts.rounds - 2 * QUESTIONS
    steady.look()
    counts = steady.production.counts
    assert (counts["questions"], counts["explored"]) == (QUESTIONS, explored)
    assert counts["early"] == QUESTIONS
    assert not steady.look()
    json.dumps(steady.production.to_json(), allow_nan=False)
    whole = watching(record)  # a record that is there is the stream read to its end
    whole.look()
    assert whole.production.counts == counts
    assert whole.production.to_json()["loss"] == steady.production.to_json()["loss"]
    assert whole.production.to_json()["loss"]["estimate"] == 1.0  # all that ran on became right


def test_a_label_that_comes_in_the_middle_of_a_look_is_not_lost(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, read = watching(record), Following._new_labels
    with Watch(POLICY, record=record, max_rounds=3) as watch:
        ask(watch, 0)

        def meanwhile(folder: Following) -> object:
            monkeypatch.undo()
            watch.label(ask(watch, 1), gold_answers=["1"])
            return read(folder)

        monkeypatch.setattr(Following, "_new_labels", meanwhile)
        seen.look()
        seen.look()
    counts = seen.production.counts
    assert (counts["questions"], counts["labelled"]) == (2, 1)


def test_alarms_are_told_once_also_after_a_restart(record: Path, tmp_path: Path) -> None:
    with Watch(POLICY, record=record, mode="live", explore=0.7, max_rounds=3) as watch:
        for number in range(24):
            watch.label(ask(watch, number), gold_answers=[str(number)])
    first = watching(record)
    first.look()
    (alarm,) = first.production.alarms
    assert alarm.kind == "loss"
    assert alarm.evidence["low"] > 0.1
    assert first.production.gauges()["loss"] == 1.0
    file = tmp_path / "alarms.jsonl"
    log = AlarmLog(file)
    assert log.untold([alarm]) == [alarm]
    log.tell(alarm)
    assert json.loads(file.read_text()) == alarm.to_json()
    again = watching(record)
    again.look()
    for teller in (log, AlarmLog(file)):
        assert teller.untold(again.production.alarms) == []
    assert AlarmLog().untold(again.production.alarms) == [alarm]
    stricter = Production(POLICY, ProductionSettings(metric="em", max_loss=0.05, max_rounds=3))
    Following(record, stricter).look()
    assert AlarmLog(file).untold(stricter.alarms)  # another promise is broken


def test_a_recorder_s_file_that_grows_is_read_on(record: Path, tmp_path: Path) -> None:
    with Watch(POLICY, record=record, max_rounds=3) as watch:
        for number in range(9):
            ask(watch, number)
    records = list(read_traces(record).records())
    place = tmp_path / "record.parquet"
    seen = watching(place)
    assert not seen.look()
    write_traces(records[:4], place)
    assert [question.id for question in seen.look()] == ["q0", "q1", "q2", "q3"]
    write_traces(records, place)
    assert [question.id for question in seen.look()] == ["q4", "q5", "q6", "q7", "q8"]
    write_traces(records[1:], place)
    assert seen.look() == []


def test_labels_of_nobody_and_torn_ones_do_no_harm(record: Path) -> None:
    with Watch(POLICY, record=record.with_name("live.db"), max_rounds=3) as watch:
        name = ask(watch, 7)
    export_traces(record.with_name("live.db"), record, format="parquet")
    seen = watching(record)
    with (record / "labels.jsonl").open("wb") as stream:
        stream.write(b'{"question_id": "nobody", "gold_answers": ["x"]}\n')
        stream.write(b'{"question_id": "' + name.encode()[:1])
    seen.look()
    assert seen.production.counts["labelled"] == 0
    with (record / "labels.jsonl").open("ab") as stream:
        stream.write(name.encode()[1:] + b'", "gold_answers": ["7"]}')  # without a line feed
    seen.look()
    assert seen.production.counts["labelled"] == 1
    (record / "labels.jsonl").write_bytes(b"nonsense\n")
    with pytest.raises(DataError):
        seen.look()


# --- web hook -------------------------------------------------------------------------------------
ALARM = Alarm(
    kind="loss",
    question=7,
    question_id="q7",
    policy="abc",
    text="stopping loses more than promised",
    evidence={"low": 0.2},
)


def test_an_alarm_is_posted_with_its_evidence(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with taking_posts(204) as (url, taken):
        WebHook(url).send(ALARM)
    assert "s3cret" not in caplog.text
    assert taken == [ALARM.to_json()]


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
        *("http://example.org/hook", "ftp://127.0.0.1/", "file:///etc/passwd"),
        *("https://ann:pass@example.org/", "hook", "http://127.0.0.1.example.org/", "http://[::1"),
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        WebHook(url)


def test_loops_side_by_side_raise_no_alarm(record: Path) -> None:
    """Those that are explored end last, in whatever number loops run at once."""
    with Watch(POLICY, record=record, mode="live", explore=0.2, max_rounds=5) as watch:
        for batch in range(3):
            loops = [watch.question("?", question_id=f"{batch}-{n}").begin() for n in range(200)]
            for _ in range(5):
                for loop in loops:
                    if not loop.done:
                        loop.observe(Round(answer="Oslo", usage=Usage(llm_calls=1)))
            for loop in loops:
                loop.end()
    following = watching(record)
    following.look()
    assert following.production.counts["questions"] == 600
    assert not following.production.alarms

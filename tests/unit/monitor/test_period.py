"""A report on a period: its figures are those of its questions alone, and the tests run over all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from suffice import Round, Watch
from suffice.cli.main import main
from suffice.errors import DataError, UsageError
from suffice.monitor.following import Following
from suffice.monitor.production import Production, ProductionSettings
from suffice.monitor.questions import Asked, Promised, Stopping
from suffice.options import read_since
from suffice.policies.policy_file import save_policy
from suffice.policies.rules.policy import Rule
from suffice.scoring import METRICS
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.writer import write_traces

POLICY = Rule(rule="round >= 2")
NOW = datetime.now(UTC).replace(microsecond=0)
WEEK = NOW - timedelta(days=7)
SETTINGS = ProductionSettings(metric="em", max_loss=0.1, first=3, max_rounds=3)


def live(place: Path, ends: Mapping[str, Sequence[datetime]]) -> Path:
    """A store of questions that the third round would answer otherwise, with the times of their rounds."""
    with Watch(POLICY, record=place, mode="live", explore=0.6, max_rounds=3) as watch:
        for number, (name, times) in enumerate(ends.items()):
            with watch.question(f"What is {name}?", question_id=name) as loop:
                while not loop.done:
                    done = len(loop.rounds)
                    time = times[min(done, len(times) - 1)]
                    answer = name if done == 2 and number % 3 else "no idea"
                    loop.observe(Round(answer=answer, time=time))
            if number % 4:
                watch.label(name, gold_answers=[name])
    return place


def told(place: Path, since: datetime | None, **more: Any) -> dict[str, Any]:
    production = Production(POLICY, replace(SETTINGS, since=since, **more))
    Following(place, production).look()
    return production.to_json()


def test_a_period_is_what_a_record_of_its_questions_alone_would_tell(tmp_path: Path) -> None:
    days = {f"q{number}": [NOW - timedelta(hours=8 * (60 - number))] for number in range(60)}
    whole = told(live(tmp_path / "all.db", days), WEEK, max_loss=0.9)
    recent = {name: ends for name, ends in days.items() if ends[0] >= WEEK}
    assert 0 < len(recent) < len(days)
    traces = read_traces(tmp_path / "all.db").only_questions(recent)
    slow = Production(POLICY, replace(SETTINGS, max_loss=0.9))
    slow.read([(traces, traces.question_ids)])
    alone, period = slow.to_json(), whole["since"]
    same = period.keys() & alone.keys() - {"since", "alarms"}
    assert {"loss", "saved", "rounds_saved", "questions_needed", "labelled", "misdated"} <= same
    assert {name: period[name] for name in same} == {name: alone[name] for name in same}
    by_hand = {
        int(name[1:]): rounds
        for name, rounds in zip(traces.question_ids, traces.last_rounds, strict=True)
    }
    assert period["rounds_saved"] == pytest.approx(1 - sum(by_hand.values()) / (3 * len(recent)))
    lost = [number % 3 > 0 for number, rounds in by_hand.items() if rounds == 3 and number % 4]
    assert period["loss"]["estimate"] == pytest.approx(sum(lost) / len(lost))
    untouched = told(
        tmp_path / "all.db", None, max_loss=0.9
    )  # tests run on from the first question
    assert all(untouched[name] == whole[name] for name in ("tests", "loss", "alarms"))


def test_borders_and_a_clock_that_jumped(tmp_path: Path) -> None:
    late, back = NOW + timedelta(days=40), WEEK + timedelta(days=1)
    ends = {"before": [WEEK - timedelta(microseconds=1)], "early future": [late], "at": [WEEK]}
    ends |= {"future": [late], "backwards": [back, WEEK - timedelta(days=300)]}
    found = told(live(tmp_path / "live.db", ends), WEEK)
    assert (found["questions"], found["misdated"]) == (5, 3)
    assert (found["since"]["questions"], found["since"]["misdated"]) == (3, 2)


def test_without_times_it_is_refused(tmp_path: Path) -> None:
    place = live(tmp_path / "live.db", {"q": [NOW]})
    (one,) = read_traces(place).records()
    timeless = replace(one, rounds=tuple(replace(each, time=None) for each in one.rounds))
    write_traces([timeless], tmp_path / "t.parquet")
    with pytest.raises(DataError) as refused:
        told(tmp_path / "t.parquet", WEEK)
    assert refused.value.column == "time"


def test_alarms_keep_their_date_and_a_week_without_questions_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = {f"{n} <b>|*{n}*": [NOW - timedelta(days=20, hours=-n)] for n in range(60)}
    place = live(tmp_path / "live.db", ends)
    ends_later = told(place, NOW - timedelta(days=18))
    assert (ends_later["decision"], ends_later["since"]["alarms"]) == ("alarm", [])
    (alarm,) = (one for one in ends_later["alarms"] if one["alarm"] == "loss")
    assert datetime.fromisoformat(alarm["time"]) == ends[alarm["question_id"]][0]
    file = save_policy(POLICY, tmp_path / "p.json", max_rounds=3)
    typed = ["monitor", str(place), "--policy", str(file), "--since", "7d"]
    assert main([*typed, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["decision"] == "nothing"
    assert main([*typed[:-1], "30d", "--max-loss", "0.1", "--format", "markdown"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Alarm")
    assert "&lt;b&gt;\\|\\*" in shown
    assert "<b>" not in shown


def test_so_many_questions_as_are_said_to_be_needed_do_show_it() -> None:
    def stopping(times: int) -> Stopping:
        made = Stopping(Promised(metric=METRICS["em"], score="em", most=0.3), 0.05)
        for number in range(20):  # the share of questions that stop early stays as it is
            made.take(Asked(id="q", rounds=2, stop=1, early=number > 0, explored=number > 0))
        for loss in [1.0, *[0.0] * 19] * times:
            made.lose(loss)
        return made

    needed = stopping(1).needed
    assert needed is not None
    assert stopping(1).loss.high > 0.3
    assert stopping(-(-needed // 20)).loss.high <= 0.3 < stopping(needed // 20 - 1).loss.high


def test_times_are_read_and_what_is_none_or_to_come_is_refused() -> None:
    for text, hours in {"12h": 12, "7d": 168, "2w": 336}.items():
        assert abs(datetime.now(UTC) - timedelta(hours=hours) - read_since(text)).seconds < 60
    assert read_since("2026-01-31T08:00+02:00") == datetime(2026, 1, 31, 6, tzinfo=UTC)
    assert read_since("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    for text in ("7", "0d", "-1d", "1.5h", "9" * 12 + "w", "soon", "2999-01-01", ""):
        with pytest.raises(UsageError):
            read_since(text)

"""Questions that one process leaves and another one goes on with."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import suffice
from suffice import traces
from suffice.costs.prices import Prices
from suffice.live.loop import Loop

STABLE = "answer_stable"
ANSWERS = ("Bergen", "Oslo", "Oslo")
SPENT = suffice.Usage(llm_calls=1, prompt_tokens=1_000_000, completion_tokens=0)


def watch_of(place: str, **own: Any) -> suffice.Watch:
    return suffice.Watch(own.pop("policy", STABLE), record=place, mode="live", **own)


def left(watch: suffice.Watch, rounds: int = 2, *, stays: bool = True) -> Loop:
    """A question of a process that stays where it is."""
    loop = watch.question("Where?", question_id="q1").begin()
    loop.stays = stays
    for number, answer in enumerate(ANSWERS[:rounds], start=1):
        loop.observe(answer=answer, passages=[f"Passage {number}."], usage=SPENT)
    return loop


def only(place: str) -> Any:
    (record,) = suffice.read(place).records()
    return record


def test_it_is_one_question_with_its_rounds_in_order(place: str) -> None:
    """The policy decides as if nothing had happened, and found passages are known."""
    with watch_of(place) as first:
        left(first)
    with watch_of(place) as second:
        loop = second.resume("q1")
        assert loop is not None
        assert (len(loop.rounds), loop.would_stop, loop.answer) == (2, None, "Oslo")
        decision = loop.observe(answer="Oslo", passages=["Passage 1.", "Passage 3."])
        loop.end()
    assert (decision.stop, loop.stopped_by) == (True, "policy")
    record = only(place)
    assert (record.question.text, record.stopped_by) == ("Where?", "policy")
    assert tuple(held.answer for held in record.rounds) == ANSWERS
    assert [held.text for held in record.rounds[2].passages] == ["Passage 3."]
    assert [held.signals["policy_stop"] for held in record.rounds] == [0.0, 0.0, 1.0]


def test_a_question_under_way_here_is_the_same_loop(place: str) -> None:
    with watch_of(place) as watch:
        loop = left(watch)
        assert watch.resume("q1") is loop
        loop.end()
        assert watch.resume("q1") is None
    alone = suffice.Watch(STABLE, mode="live")
    loop = left(alone)
    assert (alone.resume("q1"), alone.resume("q2")) == (loop, None)


def test_two_processes_take_turns_and_nothing_is_lost(place: str) -> None:
    with watch_of(place, max_rounds=9) as first, watch_of(place, max_rounds=9) as second:
        stale = left(first, 1)
        there = second.resume("q1")
        assert there is not None
        there.observe(answer="Oslo")
        here = first.resume("q1")
        assert here is not None
        assert here is not stale
        assert len(here.rounds) == 2
        here.observe(answer="Oslo")
        here.end()
        there.end()  # of what is no more its own
    assert tuple(held.answer for held in only(place).rounds) == ANSWERS
    for watch in (first, second):
        assert (watch.counts.lost_rounds, watch.counts.lost_questions) == (0, 0)


@pytest.mark.parametrize(
    ("stays", "ends", "other"),
    [
        (False, False, {}),
        (True, True, {}),
        (True, False, {"policy": "fixed-3"}),
        (True, False, {"explore": 0.5, "max_rounds": 5}),
        (True, False, {"texts": "no-texts"}),
    ],
)
def test_others_are_not_resumed(stays: bool, ends: bool, other: dict[str, Any], place: str) -> None:
    kept = {name: value for name, value in other.items() if name == "texts"}
    with watch_of(place, **kept) as first:
        loop = left(first, stays=stays)
        if ends:
            loop.end()
    with watch_of(place, **other) as second:
        assert second.resume("q1") is None
        assert second.resume("q7") is None


def test_what_nobody_resumes_for_a_week_has_failed(tmp_path: Path) -> None:
    place = str(tmp_path / "live.db")
    with watch_of(place) as watch:
        left(watch)
        with sqlite3.connect(place) as database:
            database.execute("UPDATE questions SET ended = ended - 8 * 86400")
        database.close()
    assert (only(place).stopped_by, len(only(place).rounds)) == ("error", 2)
    with watch_of(place) as second:
        assert second.resume("q1") is None


def test_an_export_has_it_once_when_it_ended(place: str, tmp_path: Path) -> None:
    with watch_of(place) as first:
        left(first)
    assert traces.export(place, tmp_path / "out", format="parquet").questions == 0
    with watch_of(place) as second:
        loop = second.resume("q1")
        assert loop is not None
        loop.observe(answer="Oslo")
        loop.end()
    assert traces.export(place, tmp_path / "out", format="parquet").questions == 1
    (record,) = suffice.read(tmp_path / "out").records()
    assert len(record.rounds) == 3


def test_its_rounds_count_once_in_what_a_day_may_cost(place: str) -> None:
    prices = Prices(input=1.0, cached=1.0, output=1.0)
    budgets = suffice.Budgets(usd_per_day=3.5, usd=3.5, prices=prices)
    with watch_of(place, budgets=budgets) as first:
        left(first)
    with watch_of(place, budgets=budgets) as second:
        loop = second.resume("q1")
        assert loop is not None
        loop.observe(answer="Bergen", usage=SPENT)
        assert not loop.done
        loop.observe(answer="Oslo", usage=SPENT)
        assert loop.stopped_by == "budget"
        loop.end()

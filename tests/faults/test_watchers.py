"""Watchers that are killed, or share a store, lose nothing that was finished."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest
from tests.faults.children import Child

from suffice.live.watch import Watch
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord


def watching(words: Sequence[str]) -> int:
    """Record questions without end; each is told when it is finished."""
    place, told = words
    warnings.simplefilter("error")  # that a question was not kept in time, too
    watch = Watch(record=place, max_rounds=3)
    descriptor = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in count():
        name = f"{os.getpid()}-{time.monotonic_ns()}-{number}"
        with watch.question("?", question_id=name) as loop:
            while not loop.done:
                passage = f"{name} {len(loop.rounds)} " + "x" * 300
                loop.observe(answer="Oslo " * 20, passages=[passage])
        os.write(descriptor, f"{name}\n".encode())
    return 0


def kill_two(place: str, told: Path, after: float) -> None:
    """Two processes record into one store, and are killed at a moment."""
    watchers = [Child([place, str(told)], told.parent, run=watching) for _ in range(2)]
    before, deadline = told.stat().st_size, time.monotonic() + 60
    while time.monotonic() < deadline and told.stat().st_size == before:
        time.sleep(0.002)
    time.sleep(after)
    for watcher in watchers:
        watcher.send(signal.SIGKILL)
    assert [watcher.end().code for watcher in watchers] == [-signal.SIGKILL] * 2


def check_watched(place: str, told: Path) -> dict[str, QuestionRecord]:
    """Everything told as finished is there, whole and once; nothing is invalid."""
    finished = told.read_text().split()
    records = {record.question.id: record for record in read_traces(place).records()}
    assert len(finished) == len(set(finished))
    assert set(finished) <= set(records)
    assert all(len(records[name].rounds) == 3 for name in finished)
    assert all(records[name].stopped_by is None for name in finished)
    unfinished = set(records) - set(finished)
    assert all(records[name].stopped_by in (None, "error") for name in unfinished)
    return records


@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["folder", "server"])
def test_two_watchers_killed_lose_nothing_that_was_finished(
    times: int, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder, told = tmp_path / "traces", tmp_path / "told"
    told.touch()
    place = str(folder) if kind == "folder" else request.getfixturevalue("database")
    for number in range(times):
        kill_two(place, told, 0.2 * number / times)
    before = check_watched(place, told)
    with Watch(record=place) as watch, watch.question("?", question_id="after") as loop:
        loop.observe(answer="Oslo")  # whoever writes next ends what the dead left
    after = {record.question.id: record for record in read_traces(place).records()}
    assert after.pop("after").rounds
    assert after == before
    if kind == "folder":
        assert [file.name for file in folder.iterdir()] == ["record.db"]

"""SIGKILL at random moments: nothing finished is lost, nothing is doubled, and the same command goes on."""

from __future__ import annotations

import os
import random
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.faults.children import Child, Ended
from tests.faults.work import LONG, WORKS, Tried, Work, result

from suffice.live.watch import Watch
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord


def killed(work: Work, given: Path, out: Path, after: float) -> Ended:
    """The command, killed so many seconds after it began, unless it has ended."""
    child = Child(work.line(given, out), given)
    time.sleep(after)
    child.kill()
    return child.end()


def kept(
    out: Path, want: dict[str, Any], before: dict[str, Counter[Any]]
) -> dict[str, Counter[Any]]:
    """The rows that stand there between two runs: those of before, none twice, none that is no result."""
    rows = {}
    for name, content in result(out, finished=False).items():
        if isinstance(content, list):
            rows[name] = Counter(content)
            assert rows[name] <= Counter(want[name]), f"{name} holds what no whole run leaves"
        elif name in want:
            assert content == want[name], f"{name} is not whole"
    for name, count in before.items():
        assert count <= rows[name], f"{name} has lost rows"
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("work", [*LONG, *WORKS], ids=lambda work: work.name)
def test_killed_at_random_moments_it_ends_as_if_it_had_not_been(
    work: Work, given: Path, clean: Callable[[Work], Any], tmp_path: Path, tried: Tried
) -> None:
    whole = clean(work)
    draw = random.Random(work.name)
    kills, place = 0, 0
    out = tmp_path / "0"
    out.mkdir()
    before: dict[str, Counter[Any]] = {}
    for _ in range(10 * work.kills):
        if kills == work.kills:
            break
        ended = killed(work, given, out, draw.uniform(0.0, whole.seconds))
        kills += ended.code == -signal.SIGKILL
        before = kept(out, whole.result, before)
        if result(out) == whole.result:  # done, or killed after the last byte
            place += 1
            out, before = tmp_path / str(place), {}
            out.mkdir()
    tried("SIGKILL of the demo or of training on text" if work in LONG else "SIGKILL", kills)
    assert kills == work.kills
    ended = Child(work.line(given, out), given).end()
    assert ended.code == 0, ended.err
    assert result(out) == whole.result
    assert not list(out.rglob("*.tmp"))


def watching(words: Sequence[str]) -> int:
    """Record questions without end; each is told when it is finished."""
    place, told = words
    warnings.simplefilter("error")  # that a question was not kept in time, too
    watch = Watch(record=place, max_rounds=3)
    descriptor = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    number = 0
    while True:
        name = f"{os.getpid()}-{time.monotonic_ns()}-{number}"
        number += 1
        with watch.question("?", question_id=name) as loop:
            while not loop.done:
                passage = f"{name} {len(loop.rounds)} " + "x" * 300
                loop.observe(answer="Oslo " * 20, passages=[passage])
        os.write(descriptor, f"{name}\n".encode())


def kill_two_watchers(place: str, told: Path, after: float) -> None:
    """Two processes record into one store, and are killed at a moment."""
    watchers = [Child([place, str(told)], told.parent, run=watching) for _ in range(2)]
    before = told.stat().st_size if told.exists() else 0
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (told.exists() and told.stat().st_size > before):
        time.sleep(0.002)
    time.sleep(after)
    for watcher in watchers:
        watcher.kill()
    for watcher in watchers:
        assert watcher.end().code == -signal.SIGKILL


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


@pytest.mark.parametrize("times", [6, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["folder", "server"])
def test_two_watchers_killed_lose_nothing_that_was_finished(
    times: int, kind: str, tmp_path: Path, tried: Tried, request: pytest.FixtureRequest
) -> None:
    tried(f"SIGKILL of two watchers of one {kind}", 2 * times)
    folder, told = tmp_path / "traces", tmp_path / "told"
    place = str(folder) if kind == "folder" else request.getfixturevalue("database")
    for number in range(times):
        kill_two_watchers(place, told, 0.2 * number / times)
        if number % 10 == 9:
            check_watched(place, told)
    before = check_watched(place, told)
    with Watch(record=place) as watch, watch.question("?", question_id="after") as loop:
        loop.observe(answer="Oslo")  # whoever writes next ends what the dead left
    after = {record.question.id: record for record in read_traces(place).records()}
    assert after.pop("after").rounds
    assert after == before
    if kind == "folder":
        assert [file.name for file in folder.iterdir()] == ["record.db"]

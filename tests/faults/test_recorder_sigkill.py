"""Two recorders of one folder killed at random moments: every question is there once, and right."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.faults.children import Child
from tests.faults.work import Tried

from suffice.errors import BackendError
from suffice.loops.record.dataset_run import RecorderSettings, Task, record
from suffice.loops.record.session import Progress
from suffice.trace.durable import Shard
from suffice.trace.recording import failures_of
from suffice.trace.rounds.reader import inspect_traces
from suffice.trace.rounds.records import Gold, Passage, Question, Round, Usage


class Slow:
    """Three rounds a question; question 7 fails until it is mended."""

    def __init__(self, *, mended: bool) -> None:
        self.mended = mended

    def rounds(self, question: Question, retriever: Any) -> Iterator[Round]:
        for number in (1, 2, 3):
            time.sleep(0.006)
            if question.id == "q0007" and not self.mended:
                raise BackendError("no reply")
            yield Round(
                answer=f"{question.id} round {number}",
                passages=(Passage(id=f"{question.id}-{number}", text="some words " * 40),),
                usage=Usage(llm_calls=1),
            )


def recording(words: Sequence[str]) -> int:
    """Record one of two shards, or all of it; how many are finished is told."""
    folder, told, questions, shard, mended = words
    tasks: list[Any] = [
        Task(
            question=Question(id=f"q{n:04d}", text=f"Question {n}?"),
            gold=Gold(answers=(f"gold {n}",)),
            retriever=None,  # type: ignore[arg-type]
        )
        for n in range(int(questions))
    ]
    descriptor = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(_: Progress) -> None:
        os.write(descriptor, b".")

    settings = RecorderSettings(
        run={"pipeline": "slow"},
        concurrency=3,
        on_progress=tell,
        shard=Shard.parse(shard) if shard else None,
    )
    summary = record(tasks, Slow(mended=mended == "mended"), folder, settings)
    sys.stdout.write(f"done {summary.recorded} {summary.before} {summary.failed}\n")
    return 0


def start(root: Path, questions: int, shard: str, mended: str = "") -> Child:
    words = [str(root / "traces"), str(root / "told"), str(questions), shard, mended]
    return Child(words, root, run=recording)


def kill_both(root: Path, questions: int, finished: int, after: float) -> int:
    """Kill both so long after they finished that many; how many still ran."""
    told = root / "told"
    told.write_bytes(b"")
    recorders = [start(root, questions, shard) for shard in ("1/2", "2/2")]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and told.stat().st_size < finished:
        if not any(recorder.running for recorder in recorders):
            break
        time.sleep(0.002)
    time.sleep(after)
    for recorder in recorders:
        recorder.kill()
    return sum(recorder.end().code == -signal.SIGKILL for recorder in recorders)


def valid_questions(root: Path) -> set[str]:
    """Ids in the folder, which must be valid as it lies there."""
    folder = root / "traces"
    if not any(folder.glob("record*.db")):
        return set()
    inspection = inspect_traces(folder)
    assert inspection.errors == ()
    for made in inspection.traces.records():
        assert len(made.rounds) == 3
    assert set(failures_of(folder)) <= {"q0007"}
    return set(inspection.traces.question_ids)


@pytest.mark.parametrize(
    ("kills", "questions"), [(4, 60), pytest.param(200, 2_500, marks=pytest.mark.slow)]
)
def test_killed_at_random_moments_nothing_is_lost_or_doubled(
    kills: int, questions: int, tmp_path: Path, tried: Tried
) -> None:
    tried("SIGKILL of two recorders of one folder", kills)
    draw = random.Random(20)
    before: set[str] = set()
    killed = 0
    while killed < kills and len(before) < questions - 1:
        killed += kill_both(tmp_path, questions, draw.randrange(12), draw.uniform(0.0, 0.03))
        now = valid_questions(tmp_path)
        assert now >= before
        before = now
    assert killed >= kills
    ended = start(tmp_path, questions, "", "mended").end()
    assert f"done {questions - len(before)} {len(before)} 0" in ended.out, ended.err
    folder = tmp_path / "traces"
    for database in folder.glob("record*.db"):  # Parquet alone holds all
        database.unlink()
    traces = inspect_traces(folder).valid(skip_invalid=False)
    assert traces.question_ids == tuple(f"q{n:04d}" for n in range(questions))
    assert traces.table.num_rows == 3 * questions
    for number, made in enumerate(traces.records()):
        name = f"q{number:04d}"
        assert made.question.text == f"Question {number}?"
        assert made.gold.answers == (f"gold {number}",)
        assert [each.answer for each in made.rounds] == [f"{name} round {t}" for t in (1, 2, 3)]
    assert not list(folder.glob(".*.tmp"))

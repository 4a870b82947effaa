"""A recording killed at random moments and resumed: every question is there once, and right."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from suffice.trace.rounds.reader import inspect_traces

# A slow scripted loop; question 7 fails until the file "mended" appears.
SCRIPT = """
import sys, time
from pathlib import Path

from suffice.errors import BackendError
from suffice.loops.record.recorder import RecorderSettings, Task, record
from suffice.trace.rounds.records import Gold, Passage, Question, Round, Usage

root = Path(sys.argv[1])


class Slow:
    def rounds(self, question, retriever):
        for number in (1, 2, 3):
            time.sleep(0.006)
            if question.id == "q007" and not (root / "mended").exists():
                raise BackendError("no reply")
            yield Round(
                answer=f"{question.id} round {number}",
                passages=(Passage(id=f"{question.id}-{number}", text="some words " * 40),),
                usage=Usage(llm_calls=1),
            )


tasks = [
    Task(
        question=Question(id=f"q{n:03d}", text=f"Question {n}?"),
        gold=Gold(answers=(f"gold {n}",)),
        retriever=None,
    )
    for n in range(int(sys.argv[2]))
]
print("started", flush=True)
summary = record(
    tasks,
    Slow(),
    root / "traces",
    RecorderSettings(
        run={"pipeline": "slow"},
        concurrency=3,
        on_progress=lambda progress: print(progress.finished, flush=True),
    ),
)
print("done", summary.recorded, summary.before, summary.failed, flush=True)
"""


def start(root: Path, questions: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(root), str(questions)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_after(process: subprocess.Popen[str], questions: int, seconds: float) -> bool:
    """Kill it so long after it stored that many questions; whether it was still running."""
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n", process.communicate()[1]
    for _ in range(questions):
        process.stdout.readline()
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def valid_questions(root: Path) -> set[str]:
    """Ids in the directory, which must be valid as it lies there."""
    folder = root / "traces"
    if not any(folder.glob("*.parquet")):
        return set()
    inspection = inspect_traces(folder)
    assert inspection.errors == ()
    for record in inspection.traces.records():
        assert len(record.rounds) == 3
    failures = folder / "failures.jsonl"
    if failures.exists():
        assert [json.loads(line)["question_id"] for line in failures.read_text().splitlines()] in (
            [],
            ["q007"],
        )
    return set(inspection.traces.question_ids)


@pytest.mark.parametrize(
    ("kills", "questions"), [(3, 40), pytest.param(15, 150, marks=pytest.mark.slow)]
)
def test_killed_at_random_moments_nothing_is_lost_or_doubled(
    kills: int, questions: int, tmp_path: Path
) -> None:
    generator = random.Random(20)
    before: set[str] = set()
    killed = 0
    for _ in range(kills):
        process = start(tmp_path, questions)
        killed += kill_after(process, generator.randrange(10), generator.uniform(0.0, 0.03))
        now = valid_questions(tmp_path)
        assert now >= before
        before = now
    assert killed >= kills - kills // 5
    assert kills < len(before) < questions

    (tmp_path / "mended").touch()
    output, errors = start(tmp_path, questions).communicate(timeout=120)
    assert output.splitlines()[-1] == f"done {questions - len(before)} {len(before)} 0", errors
    assert valid_questions(tmp_path) == {f"q{n:03d}" for n in range(questions)}
    traces = inspect_traces(tmp_path / "traces").traces
    assert traces.table.num_rows == 3 * questions
    for number, record in enumerate(traces.records()):
        name = f"q{number:03d}"
        assert record.question.text == f"Question {number}?"
        assert record.gold.answers == (f"gold {number}",)
        assert [each.answer for each in record.rounds] == [f"{name} round {t}" for t in (1, 2, 3)]
    assert (tmp_path / "traces" / "failures.jsonl").read_text() == ""
    assert not list((tmp_path / "traces").glob(".*.tmp"))

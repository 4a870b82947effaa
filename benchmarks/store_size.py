"""A store of a month at 50,000 questions a day: what opening it, one more loop and one look at news take.

Each way runs in a process of its own, on a store of 15,000 questions and on one of 1,500,000; ``growth`` is
their ratio. The store is filled by SQL, with rounds as a watch writes them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from suffice.live.watch import Watch
from suffice.policies.rules.policy import RulePolicy
from suffice.trace.store import Store

SIZES = (15_000, 1_500_000)
RULE = "answer_stable and not abstained"

OPEN = "watch = Watch(RULE, record=FILE)"
WORK = {
    "a watch opened": OPEN,
    "a watch opened and a question of two rounds": f"""{OPEN}
with watch.question("Which capital?", question_id="q17") as loop:
    loop.observe(answer="Oslo")
    loop.observe(answer="Oslo")
assert loop.question_id == "q17#2" and watch.counts.lost_questions == 0""",
    "a question labelled": f"""{OPEN}
watch.label("q14", gold_answers=["Oslo"])""",
    "a look at what ended last": """from pathlib import Path
from suffice.trace.store import Store
runs = Store(Path(FILE)).runs(lambda _: COUNT - 10, dead=False)
assert 10 <= sum(len(run.records) for run in runs) <= 12""",
}


def fill(file: Path, questions: int) -> None:
    """A store with questions of two rounds each, of which a watch wrote the first."""
    with Watch(RulePolicy(rule=RULE), record=file).question("Which?", question_id="q0") as loop:
        loop.observe(answer="Oslo")
        loop.observe(answer="Oslo")
    store = Store(file, stays=True)
    with store.transaction() as connection:
        columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(questions)")]
        first = dict(
            zip(columns, connection.execute("SELECT * FROM questions").fetchone(), strict=True)
        )
        rounds = connection.execute("SELECT round, content, score, time FROM rounds").fetchall()
        places = ", ".join("?" * len(columns))
        for begin in range(1, questions, 50_000):
            numbers = range(begin, min(begin + 50_000, questions))
            more = [
                {**first, "number": i + 1, "id": f"q{i}", "turn": i + 1, "text": f"Which {i}?"}
                for i in numbers
            ]
            connection.executemany(
                f"INSERT INTO questions VALUES ({places})",
                [tuple(row[name] for name in columns) for row in more],
            )
            connection.executemany(
                "INSERT INTO rounds VALUES (?, ?, ?, ?, ?)",
                [(i + 1, *held) for i in numbers for held in rounds],
            )
    store.disconnect()


def _timed(file: Path, questions: int, work: str) -> tuple[float, float]:
    """Seconds of the work and MB of memory at its end, in a process that has loaded all it needs."""
    lines = f"""
import json, time
from suffice.live.watch import Watch
from suffice.policies.rules.policy import RulePolicy
RULE, COUNT = RulePolicy(rule={RULE!r}), {questions}
import tempfile
with tempfile.TemporaryDirectory() as warm:
    FILE = warm + "/warm.db"
    with Watch(RULE, record=FILE) as watch, watch.question("Which?") as loop:
        loop.observe(answer="Oslo")
FILE = {str(file)!r}
began = time.perf_counter()
{work}
took = time.perf_counter() - began
most = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([took, int(most.split()[1]) / 1024]))
"""
    done = subprocess.run(
        [sys.executable, "-c", lines], check=True, stdout=subprocess.PIPE, text=True, env=os.environ
    )
    seconds, mb = json.loads(done.stdout)
    return float(seconds), float(mb)


def main() -> dict[str, float]:
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in WORK}
        for questions in SIZES:
            file = Path(folder) / f"{questions}.db"
            began = time.perf_counter()
            fill(file, questions)
            figures[f"{questions:,} questions: s to fill"] = time.perf_counter() - began
            figures[f"{questions:,} questions: GB"] = file.stat().st_size / 1e9
            for name, work in WORK.items():
                took[name].append(_timed(file, questions, work))
    for name, ((small_s, small_mb), (large_s, large_mb)) in took.items():
        figures[f"{name}: s, {SIZES[-1]:,} questions"] = large_s
        figures[f"{name}: s, growth"] = large_s / small_s
        figures[f"{name}: MB, {SIZES[-1]:,} questions"] = large_mb
        figures[f"{name}: MB, growth"] = large_mb / small_mb
    return figures

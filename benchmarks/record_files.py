"""Reading 1,000 small files of a record against the same rows from one file; long questions replayed.

python -m benchmarks.record_files

Prints milliseconds of CPU a file over one file, beside Arrow's own time to open and read such a file, and the
time of a replay of one question by its rounds.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

import suffice
from suffice.testing.traces import make_record

FILES, QUESTIONS = 1_000, 5
RULES = ["answer_stable and answer_token_margin > 4", "passage_novelty < 0.2"]


def cpu_seconds(run: Callable[[], object], times: int = 3) -> float:
    """The least of several runs."""
    best = float("inf")
    for _ in range(times):
        began = time.process_time()
        run()
        best = min(best, time.process_time() - began)
    return best


def long_question(rounds: int, file: Path) -> Path:
    draw = random.Random(rounds)
    answers = [draw.choice(["Oslo", "Rome", f"word {number}"]) for number in range(rounds)]
    margins = [8 * draw.random() for _ in answers]
    suffice.write_traces([make_record("q", answers, gold=["Oslo"], margins=margins)], file)
    return file


def main() -> None:
    with tempfile.TemporaryDirectory() as held:
        folder, one = Path(held) / "folder", Path(held) / "one.parquet"
        folder.mkdir()
        records = [
            make_record(f"q{number}", ["Oslo", "Rome", "Rome"], gold=["Rome"], margins=[1, 2, 3])
            for number in range(FILES * QUESTIONS)
        ]
        suffice.write_traces(records, one)
        for number in range(FILES):
            part = records[number * QUESTIONS : (number + 1) * QUESTIONS]
            suffice.write_traces(part, folder / f"part-{number:05}.parquet")
        files = sorted(folder.glob("*.parquet"))
        of_one = cpu_seconds(lambda: suffice.read_traces(one))
        of_folder = cpu_seconds(lambda: suffice.read_traces(folder))
        of_arrow = cpu_seconds(lambda: [pq.read_table(file) for file in files])
        a_file = 1000 * (of_folder - of_one) / FILES
        print(f"a file over the same rows from one file: {a_file:.2f} ms of CPU")
        print(f"pyarrow.parquet.read_table of such a file: {1000 * of_arrow / FILES:.2f} ms")
        print(f"ratio: {a_file * FILES / of_arrow / 1000:.2f}")
        for rounds in (1_000, 4_000, 32_767):
            file = long_question(rounds, Path(held) / f"{rounds}.parquet")
            took = cpu_seconds(partial(suffice.compare, file, rules=RULES, baseline="fixed-3"))
            print(f"{rounds:,} rounds: {took:.2f} s, {1e6 * took / rounds:.0f} us a round")


if __name__ == "__main__":
    main()

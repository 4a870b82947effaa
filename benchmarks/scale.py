"""Whole commands on a large record, over a process that only reads the columns they need.

python -m benchmarks.scale [QUESTIONS]

The record is copies of examples/traces/generated.parquet under new ids. CPU time is user and system time of
the process and its children; peak memory is the greatest of any of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from suffice.policies.rules.policy import Rule
from suffice.trace.rounds.schema import USAGE_COLUMNS

EXAMPLE = Path(__file__).parents[1] / "examples" / "traces" / "generated.parquet"
MARGIN = "answer_stable and answer_token_margin > 2"
RULES = ("answer_stable", "overlap > 0.3", "self_consistency > 0.6", MARGIN)
SEARCHED = (
    *("answer_stable", "answer_token_margin", "overlap", "self_consistency"),
    *("verbalized_confidence", "answer_in_evidence"),
)
COMMON = ("question_id", "round", "question", "split", "gold_answers", "answer")
READ = "import sys, pyarrow.parquet as pq; pq.read_table(sys.argv[1], columns=sys.argv[2:])"


def written(file: Path, questions: int, *, splits: bool) -> Path:
    """A record of so many questions; without splits a replay is of every question."""
    example = pq.read_table(EXAMPLE)
    ids = example.column("question_id").cast(pa.string())
    if not splits:
        place = example.schema.get_field_index("split")
        nulls = pa.nulls(len(example), example.schema.field(place).type)
        example = example.set_column(place, "split", nulls)
    with pq.ParquetWriter(file, example.schema, compression="zstd") as writer:
        for copy in range(questions // len(ids.unique())):
            renamed = pc.binary_join_element_wise(ids, f"{copy}", "-")
            place = example.schema.get_field_index("question_id")
            writer.write_table(
                example.set_column(place, "question_id", renamed.cast(example.schema[place].type))
            )
    return file


def spent(*command: str) -> tuple[float, float, float]:
    """CPU and wall seconds of a process, and its peak memory in MB."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return (usage.ru_utime + usage.ru_stime, time.perf_counter() - begun, usage.ru_maxrss / 1024)


def reading(record: Path, rule: str) -> float:
    """CPU seconds of reading what a rule, the scores and the costs need, the best of three."""
    read = {name for spec in Rule(rule=rule).specs for name in (*spec.needs, *spec.reads)}
    wanted = {*COMMON, *(column.name for column in USAGE_COLUMNS), *read}
    columns = [name for name in pq.read_schema(record).names if name in wanted]
    return min(spent("-c", READ, str(record), *columns)[0] for _ in range(3))


def main(arguments: Sequence[str] = ()) -> dict[str, float]:
    """Of every command CPU over reading its columns, and peak memory; of two processes wall time."""
    questions, figures = int(arguments[0]) if arguments else 20_000, {}
    with tempfile.TemporaryDirectory() as folder:
        whole = written(Path(folder) / "whole.parquet", questions, splits=False)
        divided = written(Path(folder) / "divided.parquet", questions, splits=True)
        every = " or ".join(f"{name} > 0" for name in SEARCHED)
        works = {
            **{rule: (rule, whole, ("replay", "--stop-when", rule)) for rule in RULES},
            "fit tasr": (MARGIN, divided, ("fit", "tasr", "--out", f"{folder}/policy.json")),
            "search": (
                every,
                divided,
                ("search", "--form", "dnf", "--signals", ",".join(SEARCHED)),
            ),
        }
        for name, (rule, record, words) in works.items():
            command = ("-m", "suffice", *words, str(record), "--workers")
            cpu, wall, peak = spent(*command, "1")
            read = reading(record, rule)
            figures[f"{name}: CPU over reading its columns (at most 3; fits and search 4)"] = (
                cpu / read
            )
            figures[f"{name}: peak MB"] = peak
            if rule == name:
                _, of_two, _ = spent(*command, "2")
                figures[f"{name}: wall time of one process over two (at least 1.8)"] = wall / of_two
    return figures


if __name__ == "__main__":
    for figure, value in main(sys.argv[1:]).items():
        print(f"  {value:12.4g}  {figure}")

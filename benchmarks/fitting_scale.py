"""Fitting on large records: CPU time a question and peak memory, at growing numbers of questions.

python -m benchmarks.fitting_scale [--questions 10000 100000 1000000] [--methods tasr micp] [--folder DIR]

Every fit is a process of its own that reads the record from Parquet. The record is made here, by columns, and
has what the fits read and nothing else: answers, gold answers, five samples a round and stored signals.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from suffice.measures.measures import Measures
from suffice.policies.registry import fit_method
from suffice.policies.stop_rag.states import read_rewards
from suffice.replay.choose.certified import fit_certified
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.schema import SCHEMA

ROUNDS, SAMPLES, ANSWERS = 5, 5, 20_000
READS: dict[str, tuple[str, ...]] = {
    "tasr": ("answer_token_margin",),
    "ab-rag": ("token_probability", "answer_in_evidence", "rerank_variance"),
    "micp": (),
    "gate": ("candidate_agreement", "contradiction"),
    "certified": ("answer_token_margin",),
    "rewards": (),
}
"""The stored signals that each fit reads; one without any reads samples."""
_GROUP = 50_000  # questions


# --- the record ---------------------------------------------------------------------------------------
def written(folder: Path, method: str, questions: int) -> Path:
    """A record of so many questions of split tune for a method, written unless it is there."""
    stored = READS[method]
    path = folder / f"{'-'.join(stored) or 'samples'}-{questions}.parquet"
    if path.exists():
        return path
    unfinished = path.with_suffix(".unfinished")
    rng, writer = np.random.default_rng(42), None
    for start in range(0, questions, _GROUP):
        table = _rows(rng, np.arange(start, min(start + _GROUP, questions)), stored)
        writer = writer or pq.ParquetWriter(unfinished, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    return unfinished.rename(path)


def _rows(
    rng: np.random.Generator, questions: NDArray[np.int64], stored: Sequence[str]
) -> pa.Table:
    """Answers are right more often in later rounds and tend to stay; samples agree with them mostly."""
    rows = len(questions) * ROUNDS
    question = np.repeat(questions, ROUNDS)
    names = pc.utf8_lpad(pa.array(question).cast(pa.string()), 9, "0")
    words = _named("Town of ", np.arange(ANSWERS))
    gold = np.repeat(rng.integers(0, ANSWERS, len(questions)), ROUNDS)
    first = rng.integers(0, ROUNDS + 2, len(questions))
    known = (np.arange(ROUNDS) >= first[:, None]).ravel()
    columns = {
        "question_id": pc.binary_join_element_wise("q", names, ""),
        "round": pa.array(np.tile(np.arange(1, ROUNDS + 1, dtype=np.int16), len(questions))),
        "question": pc.binary_join_element_wise("What is ", names, ""),
        "gold_answers": _lists(words.take(pa.array(gold)), 1),
        "split": pc.binary_join_element_wise("tune", pa.array([""] * rows), ""),
        "answer": words.take(pa.array(np.where(known, gold, rng.integers(0, 3, rows)))),
    }
    if stored:
        signals = {
            "answer_token_margin": rng.gamma(2.0, 1.0, rows) + known,
            "token_probability": rng.random(rows),
            "answer_in_evidence": np.where(rng.random(rows) < 0.1, np.nan, known * 1.0),
            "rerank_variance": rng.random(rows),
            "candidate_agreement": rng.integers(1, 6, rows) / 5,
            "contradiction": (rng.random(rows) < 0.1) * 1.0,
        }
        columns["signals"] = _map({name: signals[name] for name in stored})
    else:
        right = np.repeat(known, SAMPLES) ^ (rng.random(rows * SAMPLES) < 0.25)
        said = np.where(right, np.repeat(gold, SAMPLES), rng.integers(0, 3, rows * SAMPLES))
        columns["samples"] = _lists(words.take(pa.array(said)), SAMPLES)
    return pa.table(columns, schema=pa.schema([SCHEMA.field(name) for name in columns]))


def _named(start: str, numbers: NDArray[np.int64]) -> pa.Array:
    return pc.binary_join_element_wise(start, pa.array(numbers).cast(pa.string()), "")


def _lists(values: pa.Array, length: int) -> pa.Array:
    return pa.ListArray.from_arrays(
        pa.array(np.arange(0, len(values) + 1, length, dtype=np.int32)), values
    )


def _map(signals: dict[str, NDArray[np.float64]]) -> pa.Array:
    rows = len(next(iter(signals.values())))
    keys = pa.array(list(signals)).take(pa.array(np.tile(np.arange(len(signals)), rows)))
    values = pa.array(np.stack(list(signals.values()), axis=1).ravel(), from_pandas=True)
    offsets = np.arange(0, len(values) + 1, len(signals), dtype=np.int32)
    return pa.MapArray.from_arrays(pa.array(offsets), keys, values)


# --- figures ------------------------------------------------------------------------------------------
def _fit(method: str, path: Path) -> None:
    measures = Measures(read_traces(path))
    if method == "rewards":
        read_rewards(measures, "f1")
    elif method == "certified":
        fit_certified(measures)
    else:
        fit_method(method, measures)


def measured(method: str, path: Path) -> dict[str, float]:
    """CPU seconds of a fit, and the peak memory of its process in MB, all imports included."""
    command = [sys.executable, "-m", "benchmarks.fitting_scale", "--one", method, str(path)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    of_fit: dict[str, float] = json.loads(output.splitlines()[-1])
    return of_fit


def figures(questions: Sequence[int], methods: Sequence[str], folder: Path) -> dict[str, float]:
    """By method and number of questions; the growth is that of the time a question."""
    told: dict[str, float] = {}
    for method in methods:
        each = []
        for count in questions:
            of_fit = measured(method, written(folder, method, count))
            each.append(of_fit["cpu_s"] / count * 1e6)
            told[f"{method}, {count:,} x {ROUNDS}: CPU microseconds a question"] = each[-1]
            told[f"{method}, {count:,} x {ROUNDS}: peak memory, MB"] = of_fit["peak_mb"]
        told[f"{method}: time a question at the most over that at the fewest"] = each[-1] / each[0]
    return told


def main() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        return figures((10_000, 100_000), list(READS), Path(folder))


def _one(method: str, path: str) -> None:
    warnings.simplefilter("ignore")
    started = time.process_time()
    _fit(method, Path(path))
    spent = time.process_time() - started
    # that of this program alone: getrusage counts what started it too
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    print(json.dumps({"cpu_s": spent, "peak_mb": peak}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--methods", nargs="+", default=list(READS))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--one", nargs=2, metavar=("METHOD", "FILE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        _one(*asked.one)
    else:
        for figure, value in figures(asked.questions, asked.methods, asked.folder).items():
            print(f"  {value:12.4g}  {figure}", flush=True)

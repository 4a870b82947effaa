"""Searching and certifying, against a straightforward pandas search and against bare memory traffic."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.timing import best_seconds
from suffice.numbers.intervals.simultaneous import simultaneous_bands
from suffice.replay.choose.bounds import CertifySettings, Half, member_tests
from suffice.replay.choose.rule_stops import (
    Formula,
    RuleBatch,
    enumerate_formulas,
    pack,
    stop_rounds_of,
    stop_rounds_of_formulas,
)

SIGNALS, QUESTIONS, ROUNDS, RESAMPLES = 6, 300, 5, 1000


def make_data(questions: int = QUESTIONS) -> tuple[np.ndarray, np.ndarray]:
    """Truth values (signals, questions, rounds) and F1 (questions, rounds)."""
    rng = np.random.default_rng(42)
    return rng.random((SIGNALS, questions, ROUNDS)) < 0.3, rng.random((questions, ROUNDS))


# --- 876 formulas with 1,000 resamples each ------------------------------------------------------
def ours(fires: np.ndarray, f1: np.ndarray) -> np.ndarray:
    """Means and 95% percentile intervals, (3, n_formulas), and simultaneous bands on the way."""
    formulas = enumerate_formulas("dnf", SIGNALS)
    packed = pack(fires)
    last = np.full(fires.shape[1], ROUNDS, np.int16)
    stops = stop_rounds_of_formulas(packed, formulas, last)
    columns = np.take_along_axis(f1, stops.T.astype(np.intp) - 1, axis=1)
    (band,) = simultaneous_bands(len(formulas), lambda part: columns[:, part], (None,))
    return np.stack([band.estimate, band.naive_low, band.naive_high])


def with_pandas(frame: pd.DataFrame, formulas: list[Formula]) -> np.ndarray:
    """A frame with a row a question and round, a mask a formula, sampled questions a resample."""
    found = []
    for formula in formulas:
        fires = pd.Series(False, index=frame.index)
        for clause in formula.clauses:
            held = pd.Series(True, index=frame.index)
            for number in clause:
                held &= frame[f"s{number}"]
            fires |= held
        first = frame[fires].groupby("question").head(1)
        last = frame.groupby("question").tail(1)
        missing = last[~last["question"].isin(first["question"])]
        chosen = pd.concat([first, missing]).sort_values("question")["f1"].reset_index(drop=True)
        rng = np.random.default_rng(42)
        drawn = rng.integers(0, len(chosen), (RESAMPLES, len(chosen)))
        means = [chosen.iloc[rows].mean() for rows in drawn]
        found.append([chosen.mean(), *np.percentile(means, [2.5, 97.5])])
    return np.array(found).T


def make_frame(fires: np.ndarray, f1: np.ndarray) -> pd.DataFrame:
    columns = {f"s{n}": fires[n].ravel() for n in range(SIGNALS)}
    question = np.repeat(np.arange(f1.shape[0]), ROUNDS)
    return pd.DataFrame({"question": question, **columns, "f1": f1.ravel()})


def exhaustive() -> dict[str, float]:
    fires, f1 = make_data()
    seconds = best_seconds(lambda: ours(fires, f1), repeats=3)
    formulas = enumerate_formulas("dnf", SIGNALS)
    some = list(range(0, len(formulas), 100))
    frame = make_frame(fires, f1)
    slow = with_pandas(frame, [formulas[n] for n in some])
    np.testing.assert_allclose(ours(fires, f1)[:, some], slow, atol=1e-12)
    by_pandas = best_seconds(lambda: with_pandas(frame, [formulas[n] for n in some]), repeats=1)
    scaled = by_pandas * len(formulas) / len(some)
    return {
        "876 formulas x 1,000 resamples, seconds (under 3)": seconds,
        "straightforward pandas over ours (at least 100)": scaled / seconds,
    }


# --- random rules --------------------------------------------------------------------------------
def random_batches(rules: int, conditions: int) -> list[RuleBatch]:
    """Rules of one to four conditions in every shape, in equal numbers."""
    rng = np.random.default_rng(1)
    shapes = [(1,), (2,), (1, 1), (3,), (1, 2), (1, 1, 1), (4,), (1, 3), (2, 2), (1, 1, 2)]
    shapes.append((1, 1, 1, 1))
    number = rules // len(shapes)
    return [RuleBatch(rng.integers(0, conditions, (number, sum(s))), s) for s in shapes]


def seconds_of(rules: int, questions: int) -> float:
    """Seconds for the stop rounds of every rule, and its mean F1."""
    rng = np.random.default_rng(2)
    packed = pack(rng.random((240, questions, ROUNDS)) < 0.3)
    last, f1 = np.full(questions, ROUNDS, np.int16), rng.random((questions, ROUNDS))
    batches, rows = random_batches(rules, 240), np.arange(questions)

    def work() -> None:
        for batch in batches:
            for _, part in batch.blocks(packed.words[0].size):
                f1[rows, stop_rounds_of(packed, part, last) - 1].mean(axis=1)

    return best_seconds(work, repeats=3)


def throughput() -> dict[str, float]:
    million = seconds_of(1_000_000, QUESTIONS)
    quarter = seconds_of(250_000, QUESTIONS)
    wide = seconds_of(250_000, 4 * QUESTIONS)
    return {
        "random rules of up to 4 signals a second and core, 300 x 5": 1_000_000 / million,
        "time for 4 times the rules (4: linear)": million / quarter,
        "time for 4 times the questions (4: linear)": wide / quarter,
    }


# --- certified choice ----------------------------------------------------------------------------
def certify_large(*, only_front: bool) -> None:
    rng = np.random.default_rng(3)
    members, half = 10_000, 5_000
    f1 = (rng.random((2 * half, ROUNDS)) < np.linspace(0.4, 0.5, ROUNDS)).astype(float)
    eager = rng.random((members, 1))
    draws = rng.random((members, 2 * half), dtype=np.float32)
    stops = np.where(draws < eager, rng.integers(1, ROUNDS, (members, 1)), ROUNDS).astype(np.int16)
    stops[0] = ROUNDS
    last = np.full(half, ROUNDS, np.int16)
    learn, test = (
        Half(stops=stops[:, part], scores=f1[part], last=last, costs=stops[:, part].mean(axis=1))
        for part in (slice(0, half), slice(half, None))
    )
    member_tests(learn, test, 0, CertifySettings(only_front=only_front))


def certified_figures() -> dict[str, float]:
    """Seconds beyond making the data, and peak memory, in a process of its own."""
    figures = {}
    for only_front, name in ((True, "front tested"), (False, "all tested")):
        code = (
            "import time, resource\n"
            "import benchmarks.search_speed as s\n"
            "real = s.member_tests\n"
            "spent = []\n"
            "def timed(*a, **k):\n"
            "    t = time.perf_counter(); out = real(*a, **k); spent.append(time.perf_counter() - t)\n"
            "    return out\n"
            "s.member_tests = timed\n"
            f"s.certify_large(only_front={only_front})\n"
            "print(spent[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)\n"
        )
        root = Path(__file__).parent.parent
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root
        )
        seconds, gigabytes = map(float, done.stdout.split())
        figures[f"certified, 10,000 members x 10,000 questions, {name}: seconds (under 5)"] = (
            seconds
        )
        figures[f"the same: peak memory of the process, GB (2), {name}"] = gigabytes
    return figures


def main() -> dict[str, float]:
    return {**exhaustive(), **throughput(), **certified_figures()}

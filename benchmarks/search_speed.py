"""876 formulas with 1,000 resamples each, against a straightforward pandas search."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.timing import best_seconds
from suffice.evaluation.choose.rule_stops import (
    Formula,
    enumerate_formulas,
    pack,
    stop_rounds_of_formulas,
)
from suffice.stats.simultaneous import simultaneous_bands

SIGNALS, QUESTIONS, ROUNDS, RESAMPLES = 6, 300, 5, 1000


def make_data(questions: int = QUESTIONS) -> tuple[np.ndarray, np.ndarray]:
    """Truth values (signals, questions, rounds) and F1 (questions, rounds)."""
    rng = np.random.default_rng(42)
    return rng.random((SIGNALS, questions, ROUNDS)) < 0.3, rng.random((questions, ROUNDS))


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


def main() -> dict[str, float]:
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

"""Replay of a two-signal rule over 1,000,000 questions x 5 rounds, against other ways.

The published scripts use a row loop over a pandas frame and a pandas groupby; a groupby written for
speed stands beside them. They are timed on fewer questions and scaled: their time is linear in
questions.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.timing import best_seconds
from suffice.policies.rules.policy import Rule
from suffice.signals.signal_table import SignalTable, first_stops

QUESTIONS, ROUNDS = 1_000_000, 5
RULE = "answer_stable and answer_token_margin > 4"


def make_table(questions: int) -> SignalTable:
    rng = np.random.default_rng(42)
    stable = (rng.random((ROUNDS, questions)) < 0.5).astype(np.float64).T
    stable[:, 0] = np.nan
    margin = rng.exponential(3.0, (ROUNDS, questions)).T
    return SignalTable(
        values={"answer_stable": stable, "answer_token_margin": margin},
        exists=np.ones((questions, ROUNDS), np.bool_),
    )


def make_frame(table: SignalTable) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "question_id": np.repeat(np.arange(table.n_questions), ROUNDS),
            "round": np.tile(np.arange(1, ROUNDS + 1), table.n_questions),
            "answer_stable": table.signal("answer_stable").ravel(),
            "answer_token_margin": table.signal("answer_token_margin").ravel(),
        }
    )


def row_loop(frame: pd.DataFrame) -> list[int]:
    """A Python loop over questions and their rows."""
    stops = []
    for _, rows in frame.groupby("question_id", sort=True):
        stop = ROUNDS
        for _, row in rows.sort_values("round").iterrows():
            if row["answer_stable"] == 1 and row["answer_token_margin"] > 4:
                stop = int(row["round"])
                break
        stops.append(stop)
    return stops


def groupby(frame: pd.DataFrame) -> pd.Series:
    """A mask, then the first firing row of each question, else the last."""
    fires = (frame["answer_stable"] == 1) & (frame["answer_token_margin"] > 4)
    ordered = frame.sort_values(["question_id", "round"])
    first = ordered[fires.loc[ordered.index]].groupby("question_id").head(1)
    last = ordered.groupby("question_id").tail(1)
    missing = last[~last["question_id"].isin(first["question_id"])]
    chosen = pd.concat([first, missing]).sort_values("question_id")
    return chosen["round"]


def quick_groupby(frame: pd.DataFrame) -> pd.Series:
    """What pandas can do: a minimum over firing rows, no sort, no concatenation."""
    fires = (frame["answer_stable"] == 1) & (frame["answer_token_margin"] > 4)
    first = frame.loc[fires].groupby("question_id", sort=False)["round"].min()
    everyone = frame["question_id"].unique()
    return first.reindex(everyone, fill_value=ROUNDS)


def peak_over_arrays() -> float:
    """Peak memory that deciding adds, in a process of its own, over the size of the arrays."""
    code = (
        "import resource\n"
        "from benchmarks.replay_speed import *\n"
        "table = make_table(QUESTIONS)\n"
        "policy = Rule(rule=RULE)\n"
        "arrays = sum(v.nbytes for v in table.values.values())\n"
        "first_stops(policy, make_table(10))\n"
        "import tracemalloc; tracemalloc.start()\n"
        "first_stops(policy, table)\n"
        "print((arrays + tracemalloc.get_traced_memory()[1]) / arrays)\n"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root
    )
    return float(done.stdout)


def main() -> dict[str, float]:
    policy, table = Rule(rule=RULE), make_table(QUESTIONS)
    arrays = [table.signal(name) for name in policy.signals]
    ours = best_seconds(lambda: first_stops(policy, table), repeats=15)
    read = best_seconds(lambda: [array.T.max() for array in arrays], repeats=15)

    small = make_table(20_000)
    frame = make_frame(small)
    expected = first_stops(policy, small).tolist()
    if groupby(frame).tolist() != expected:
        raise SystemExit("the groupby gives other stop rounds")
    by_groupby = best_seconds(lambda: groupby(frame), repeats=3) * QUESTIONS / 20_000
    if quick_groupby(frame).tolist() != expected:
        raise SystemExit("the quick groupby gives other stop rounds")
    quick = best_seconds(lambda: quick_groupby(frame), repeats=5) * QUESTIONS / 20_000
    few = frame[frame["question_id"] < 1_000]
    if row_loop(few) != expected[:1_000]:
        raise SystemExit("the row loop gives other stop rounds")
    by_rows = best_seconds(lambda: row_loop(few), repeats=2) * QUESTIONS / 1_000
    return {
        "replay over one read of its arrays (at most 3)": ours / read,
        "pandas row loop over replay (at least 1000)": by_rows / ours,
        "pandas groupby over replay (at least 100)": by_groupby / ours,
        "pandas groupby written for speed over replay": quick / ours,
        "peak memory over the arrays (under 3)": peak_over_arrays(),
    }

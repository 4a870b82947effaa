"""Stop-RAG's rewards, targets and threshold, against one sample, state or candidate at a time."""

from __future__ import annotations

import math
import time

import numpy as np
from tests.stop_rag_twins import q_lambda_of_trajectory

from benchmarks.timing import best_seconds
from suffice.policies.stop_rag.states import read_rewards
from suffice.policies.stop_rag.targets import choose_threshold, q_lambda, stop_rounds
from suffice.testing.traces import sampled_records, to_trace_set

ROUNDS, SAMPLES, LAM = 10, 8, 0.7


def target_figures() -> dict[str, float]:
    n, few = 100_000, 2_000
    rng = np.random.default_rng(42)
    rewards = rng.integers(0, SAMPLES + 1, (n, ROUNDS)) / SAMPLES
    q_stop, q_cont = rng.random((2, n, ROUNDS))
    lengths = np.full(n, ROUNDS)
    earned, stop, cont = (column[:few].tolist() for column in (rewards, q_stop, q_cont))
    started = time.perf_counter()
    wanted = [q_lambda_of_trajectory(*row, lam=LAM) for row in zip(earned, stop, cont, strict=True)]
    direct = (time.perf_counter() - started) / few
    ours = q_lambda(rewards, lengths, q_stop, q_cont, LAM)
    np.testing.assert_allclose(ours[:few, :-1], wanted, rtol=1e-12)
    seconds = best_seconds(lambda: q_lambda(rewards, lengths, q_stop, q_cont, LAM), repeats=5)
    return {
        "Q(lambda) targets of 100,000 trajectories x 10 rounds: seconds (under 1)": seconds,
        "one state at a time over ours, a trajectory (at least 100)": direct / (seconds / n),
    }


def threshold_figures() -> dict[str, float]:
    n, few = 10_000, 50
    rng = np.random.default_rng(42)
    rewards = rng.integers(0, SAMPLES + 1, (n, ROUNDS)) / SAMPLES
    differences = rng.normal(size=(n, ROUNDS))
    lengths = np.full(n, ROUNDS)
    chosen = choose_threshold(differences, rewards, lengths, ends=True)

    def earned(threshold: float) -> float:
        stops = stop_rounds(differences, lengths, threshold)
        return float(rewards[np.arange(n), stops - 1].mean())

    assert math.isclose(earned(chosen.threshold), chosen.score)
    started = time.perf_counter()
    best = max(earned(threshold) for threshold in np.quantile(differences, np.linspace(0, 1, few)))
    direct = (time.perf_counter() - started) / few
    assert best <= chosen.score + 1e-12
    seconds = best_seconds(
        lambda: choose_threshold(differences, rewards, lengths, ends=True), repeats=5
    )
    return {
        "threshold among 90,000 candidates, 10,000 x 10 rounds: seconds": seconds,
        "each candidate by numpy over ours, a candidate": direct / (seconds / chosen.candidates),
    }


def reward_figures() -> dict[str, float]:
    few = 500
    records = sampled_records(10_000, rounds=ROUNDS, samples=SAMPLES)
    traces = to_trace_set(records)
    score = "f1"
    rewarded = read_rewards(traces, score)
    started = time.perf_counter()
    wanted = [
        [
            sum(score(s, r.gold.answers) for s in round_.samples or ()) / SAMPLES
            for round_ in r.rounds
        ]
        for r in records[:few]
    ]
    direct = (time.perf_counter() - started) / few
    np.testing.assert_allclose(rewarded.values[:few], wanted, rtol=1e-12)
    seconds = best_seconds(lambda: read_rewards(traces, score), repeats=3)
    return {
        "rewards of 10,000 x 10 rounds x 8 samples, F1: seconds": seconds,
        "one sample at a time over ours, a question": direct / (seconds / len(records)),
    }


def main() -> dict[str, float]:
    return {**target_figures(), **threshold_figures(), **reward_figures()}

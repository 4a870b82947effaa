"""Stop-RAG's targets and threshold once more, slowly: one state, one candidate at a time.

Written from the equations of paper 1. States are numbered as there, s_1 to s_T; a trajectory is a list
of its own T rewards, entry t - 1 for round t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

EQUAL = Fraction(1, 2**40)


# --- targets ----------------------------------------------------------------------------------------
def reward_of_stopping(rewards: Sequence[float], t: int) -> float:
    """r(s_t, STOP), equation 13, for t = 1 to T - 1."""
    assert 1 <= t <= len(rewards) - 1
    return rewards[t - 1]


def reward_of_going_on(rewards: Sequence[float], t: int) -> float:
    """r(s_t, CONT), equation 14."""
    assert 1 <= t <= len(rewards) - 1
    return rewards[-1] if t == len(rewards) - 1 else 0.0


def n_step(
    rewards: Sequence[float], q_stop: Sequence[float], q_cont: Sequence[float], t: int, n: int
) -> float:
    """The n-step target of going on, equation 9, for n = 1 to T - t - 1."""
    assert 1 <= n <= len(rewards) - t - 1
    stopped = {reward_of_stopping(rewards, t + k) for k in range(1, n)}
    return max(stopped | {q_stop[t + n - 1], q_cont[t + n - 1]})


def full_return(rewards: Sequence[float], t: int) -> float:
    """The target that reaches the end, equations 10 and 17."""
    last = len(rewards)
    stopped = {reward_of_stopping(rewards, t + k) for k in range(1, last - t)}
    return max(stopped | {reward_of_going_on(rewards, last - 1)})


def q_lambda_of_state(
    rewards: Sequence[float], q_stop: Sequence[float], q_cont: Sequence[float], t: int, lam: float
) -> float:
    """The target of going on from s_t, equation 11; in Python 0.0 ** 0 is 1."""
    last = len(rewards)
    total = 0.0
    for n in range(1, last - t):
        total += lam ** (n - 1) * n_step(rewards, q_stop, q_cont, t, n)
    return (1 - lam) * total + lam ** (last - t - 1) * full_return(rewards, t)


def q_lambda_of_trajectory(
    rewards: Sequence[float], q_stop: Sequence[float], q_cont: Sequence[float], lam: float
) -> list[float]:
    """The targets of s_1 to s_{T-1}."""
    return [q_lambda_of_state(rewards, q_stop, q_cont, t, lam) for t in range(1, len(rewards))]


# --- the threshold ----------------------------------------------------------------------------------
def stop_round(differences: Sequence[float], threshold: float) -> int:
    """Where a loop of as many rounds stops; the last difference decides nothing."""
    for t in range(1, len(differences)):
        if differences[t - 1] > threshold:
            return t
    return len(differences)


def candidates(differences: Sequence[Sequence[float]], *, ends: bool) -> list[float]:
    """Thresholds to try, from the lowest."""
    observed = sorted({entry for row in differences for entry in row[:-1]})
    tried = []
    for low, high in pairwise(observed):
        middle = float((Fraction(low) + Fraction(high)) / 2)
        tried.append(low if middle == high else middle)
    if ends or not tried:
        below = min(observed[0] - 1.0, math.nextafter(observed[0], -math.inf))
        tried = [below, *tried, observed[-1] + 1.0]
    return tried


def choose(
    differences: Sequence[Sequence[float]], rewards: Sequence[Sequence[float]], *, ends: bool
) -> tuple[float, Fraction, Fraction, int]:
    """The best threshold, its exact mean reward and rounds, and how many were tried."""
    scored = []
    tried = candidates(differences, ends=ends)
    for threshold in tried:
        stops = [stop_round(row, threshold) for row in differences]
        earned = [Fraction(row[stop - 1]) for row, stop in zip(rewards, stops, strict=True)]
        mean = sum(earned, Fraction(0)) / len(earned)
        scored.append((mean, Fraction(sum(stops), len(stops)), threshold))
    best = max(mean for mean, _, _ in scored)
    equal = [entry for entry in scored if best - entry[0] < EQUAL]
    mean, rounds, threshold = min(equal, key=lambda entry: (entry[1], entry[2]))
    return threshold, mean, rounds, len(tried)

"""Stop-RAG's rewards, targets and threshold against slow twins, and what the definitions imply."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.properties import examples

from suffice.policies.stop_rag.states import REWARDS, read_rewards
from suffice.policies.stop_rag.targets import (
    binary_labels,
    choose_threshold,
    informative,
    monte_carlo,
    q_lambda,
    stop_rounds,
)
from suffice.scoring import accuracy, exact_match, f1_score
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord

LAMBDAS = st.one_of(st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.floats(0, 1))
SCORES = st.one_of(st.sampled_from([0.0, 0.1, 0.2, 1 / 3, 2 / 3, 0.5, 1.0]), st.floats(0, 1))
ESTIMATES = st.one_of(st.sampled_from([-0.5, 0.0, 0.5, 1.0]), st.floats(-2, 2))
RUBBISH = st.sampled_from([math.nan, math.inf, -math.inf, -1e308, 1e308, 0.0, 7.0])


# --- targets ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectories:
    """Rows of their own length; whatever must not be read is rubbish."""

    rewards: NDArray[np.float64]
    lengths: NDArray[np.int64]
    q_stop: NDArray[np.float64]
    q_cont: NDArray[np.float64]

    def q(self, lam: float) -> NDArray[np.float64]:
        return q_lambda(self.rewards, self.lengths, self.q_stop, self.q_cont, lam)

    def row(self, index: int) -> tuple[list[float], list[float], list[float]]:
        length = self.lengths[index]
        rewards, q_stop, q_cont = (
            each[index, :length].tolist() for each in (self.rewards, self.q_stop, self.q_cont)
        )
        return rewards, q_stop, q_cont

    @property
    def states(self) -> NDArray[np.int64]:
        return np.arange(1, self.rewards.shape[1] + 1)

    @property
    def decides(self) -> NDArray[np.bool_]:
        return np.asarray(self.states < self.lengths[:, None])


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectories:
    n, rounds = draw(st.integers(1, 5)), draw(st.integers(1, 6))
    lengths = [draw(st.integers(1, rounds)) for _ in range(n)]
    rubbish = draw(RUBBISH)
    rewards = np.full((n, rounds), rubbish)
    q_stop, q_cont = np.full((2, n, rounds), rubbish)
    for row, length in enumerate(lengths):
        for t in range(1, length + 1):
            rewards[row, t - 1] = draw(SCORES)
            if t < length:
                q_stop[row, t - 1], q_cont[row, t - 1] = draw(ESTIMATES), draw(ESTIMATES)
    return Trajectories(rewards=rewards, lengths=np.array(lengths), q_stop=q_stop, q_cont=q_cont)


@settings(deadline=None)
@given(data=trajectories(), lam=LAMBDAS)
def test_targets_are_those_of_the_equations(data: Trajectories, lam: float) -> None:
    found, full = data.q(lam), monte_carlo(data.rewards, data.lengths)
    trained = informative(data.rewards, data.lengths)
    labels = binary_labels(data.rewards, data.lengths)
    for index, length in enumerate(data.lengths.tolist()):
        rewards, q_stop, q_cont = data.row(index)
        wanted = q_lambda_of_trajectory(rewards, q_stop, q_cont, lam)
        np.testing.assert_allclose(found[index, : length - 1], wanted, atol=1e-14)
        returns = [full_return(rewards, t) for t in range(1, length)]
        assert full[index, : length - 1].tolist() == returns
        pairs = list(zip(rewards[:-1], returns, strict=True))
        assert trained[index, : length - 1].tolist() == [now > 0 or on > 0 for now, on in pairs]
        assert labels[index, : length - 1].tolist() == [float(now > on) for now, on in pairs]
    nothing = ~data.decides
    assert np.isnan(found[nothing]).all()
    assert np.isnan(full[nothing]).all()
    assert np.isnan(labels[nothing]).all()
    assert not trained[nothing].any()


# --- the threshold ----------------------------------------------------------------------------------
NEAR_ONE = [math.nextafter(1.0, 0.0), 1.0, math.nextafter(1.0, 2.0), 1.0 + 2**-51]
DIFFERENCES = st.one_of(
    st.sampled_from([-1.0, -0.0, 0.0, 0.25, 0.5, *NEAR_ONE]),
    st.sampled_from([5e-324, -5e-324, 1e300, -1.7e308, 1.7e308]),
    st.floats(-10, 10, width=32),
)


@st.composite
def validation(draw: st.DrawFn) -> Trajectories:
    """Rewards and, as ``q_stop``, differences; with few values, so that there are ties."""
    n, rounds = draw(st.integers(1, 7)), draw(st.integers(2, 5))
    lengths = np.array([draw(st.integers(1, rounds)) for _ in range(n)])
    assume(lengths.max() > 1)
    values = st.sampled_from(draw(st.lists(DIFFERENCES, min_size=1, max_size=6)))
    scores = st.sampled_from(draw(st.lists(SCORES, min_size=1, max_size=4)))
    rubbish = draw(RUBBISH)
    rewards, differences = np.full((2, n, rounds), rubbish)
    for row, length in enumerate(lengths):
        rewards[row, :length] = [draw(scores) for _ in range(length)]
        differences[row, : length - 1] = [draw(values) for _ in range(length - 1)]
    return Trajectories(rewards=rewards, lengths=lengths, q_stop=differences, q_cont=differences)


@settings(deadline=None, max_examples=examples(400))
@given(data=validation(), ends=st.booleans())
def test_the_threshold_is_the_one_found_by_trying_each(data: Trajectories, ends: bool) -> None:
    rows = [data.row(index) for index in range(len(data.lengths))]
    differences, rewards = [row[1] for row in rows], [row[0] for row in rows]
    threshold, mean, rounds, tried = choose(differences, rewards, ends=ends)
    found = choose_threshold(data.q_stop, data.rewards, data.lengths, ends=ends)
    assert found.threshold == threshold
    assert found.candidates == tried
    assert found.score == pytest.approx(float(mean), rel=1e-15)
    assert found.mean_rounds == float(rounds)
    assert math.isfinite(found.threshold)


@settings(deadline=None)
@given(data=validation(), threshold=DIFFERENCES)
def test_stops_are_those_of_the_loop(data: Trajectories, threshold: float) -> None:
    found = stop_rounds(data.q_stop, data.lengths, threshold)
    wanted = [stop_round(data.row(index)[1], threshold) for index in range(len(data.lengths))]
    assert found.tolist() == wanted


# --- rewards ----------------------------------------------------------------------------------------
SCORES_OF: dict[str, Callable[[str, Sequence[str]], float]] = {
    "f1": partial(f1_score, kind="squad"),
    "f1-hotpotqa": partial(f1_score, kind="hotpotqa"),
    "em": exact_match,
    "acc": accuracy,
}
WORDS = st.sampled_from(["Oslo", "the Oslo.", "Oslo and Bergen", "yes", "yes indeed", "no", ""])
DRAWN = st.one_of(
    st.none(), *(st.lists(WORDS, min_size=least, max_size=4).map(tuple) for least in (0, 1))
)


@st.composite
def sampled(draw: st.DrawFn) -> list[QuestionRecord]:
    """Questions with and without gold answers, rounds with and without samples."""
    found = []
    for number in range(draw(st.integers(1, 4))):
        gold = draw(st.lists(st.sampled_from(["Oslo", "yes", "Bergen"]), max_size=2))
        made = make_record(f"q{number}", ["x"] * draw(st.integers(1, 3)), gold=gold)
        rounds = tuple(replace(each, samples=draw(DRAWN)) for each in made.rounds)
        found.append(replace(made, rounds=rounds))
    return found


def reward(record: QuestionRecord, number: int, name: str) -> float:
    samples = record.rounds[number - 1].samples
    if not samples or not record.gold.answers:
        return math.nan
    scored = [SCORES_OF[name](each, record.gold.answers) for each in samples]
    return math.fsum(scored) / len(scored)


@settings(deadline=None)
@given(records=sampled(), name=st.sampled_from(sorted(REWARDS)))
def test_rewards_are_mean_scores(records: list[QuestionRecord], name: str) -> None:
    wanted = [
        [reward(each, number, name) for number in range(1, len(each.rounds) + 1)]
        for each in records
    ]
    usable = [not any(map(math.isnan, row)) for row in wanted]
    assume(any(usable))
    found = read_rewards(to_trace_set(records), name)
    assert found.usable.tolist() == usable
    assert found.lengths.tolist() == [len(row) for row in wanted]
    assert (found.notes == ()) == all(usable)
    for row, values in zip(wanted, found.values, strict=True):
        np.testing.assert_array_equal(values[: len(row)], row)
        assert np.isnan(values[len(row) :]).all()


EQUAL = Fraction(1, 2**40)


# --- targets ----------------------------------------------------------------------------------------
def reward_of_stopping(rewards: Sequence[float], t: int) -> float:
    """r(s_t, STOP), equation 13, for t = 1 to T - 1."""
    assert 1 <= t <= len(rewards) - 1
    return rewards[t - 1]


def reward_of_going_on(rewards: Sequence[float], t: int) -> float:
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
    return [q_lambda_of_state(rewards, q_stop, q_cont, t, lam) for t in range(1, len(rewards))]


# --- the threshold ----------------------------------------------------------------------------------
def stop_round(differences: Sequence[float], threshold: float) -> int:
    """Where a loop of as many rounds stops; the last difference decides nothing."""
    for t in range(1, len(differences)):
        if differences[t - 1] > threshold:
            return t
    return len(differences)


def candidates(differences: Sequence[Sequence[float]], *, ends: bool) -> list[float]:
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

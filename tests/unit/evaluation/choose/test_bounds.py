"""Certified choice on halves made by hand: losses, what is tested, in which order, and why it fell back."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import scipy.stats
from tests.certifying import certify

from suffice.evaluation.choose.bounds import Half, Promise, weighted_losses
from suffice.evaluation.settings import LossName
from suffice.measures.seen import Seen
from suffice.stats.p_values import (
    betting_p_values,
    binomial_p_values,
    hoeffding_bentkus_p_values,
    signed_p_values,
)

ROUNDS = 5


def half(stops: Any, scores: Any, *, costs: Any = None, last: Any = None) -> Half:
    stops, scores = np.asarray(stops, np.int16), np.asarray(scores, float)
    return Half(
        stops=stops,
        scores=scores,
        last=np.full(len(scores), scores.shape[1], np.int16)
        if last is None
        else np.asarray(last, np.int16),
        costs=stops.mean(axis=1) if costs is None else np.asarray(costs, float),
    )


def world(
    seed: int, questions: int = 300, members: int = 12, *, noise: float = 0.5
) -> tuple[Half, Half, int]:
    """Scores that rise with rounds; member m stops where a noisy look says so; the last never does."""
    generator = np.random.default_rng(seed)
    halves = []
    for _ in range(2):
        reached = generator.integers(1, ROUNDS + 2, questions)[:, None]
        scores = (np.arange(1, ROUNDS + 1)[None, :] >= reached).astype(float)
        stops = np.full((members, questions), ROUNDS, np.int16)
        for member in range(members - 1):
            look = scores + noise * generator.normal(size=scores.shape)
            fires = look > 0.2 + 2.2 * member / members
            stops[member] = np.where(fires.any(axis=1), fires.argmax(axis=1) + 1, ROUNDS)
        halves.append(half(stops, scores))
    return halves[0], halves[1], members - 1


def settings(**given: Any) -> Promise:
    return Promise(**{"max_loss": 0.1, "confidence": 0.9, **given})


# --- losses and p-values -------------------------------------------------------------------------
def test_losses_by_hand() -> None:
    """Full budget 0.8, 0.5 and (two rounds recorded) 0.3; stops at rounds 1, 2 and 1."""
    scores = [[0.2, 0.9, 0.8], [0.6, 0.1, 0.5], [1.0, 0.3, np.nan]]
    made = half([[1, 2, 1], [3, 3, 2]], scores, last=[3, 3, 2])
    both = np.array([0, 1])
    drop = [[0.6, 0.0], [0.4, 0.0], [0.0, 0.0]]
    np.testing.assert_allclose(made.losses(both, "drop"), drop)
    signed = np.array([[0.6, 0.0], [0.4, 0.0], [-0.7, 0.0]])
    np.testing.assert_allclose(made.losses(both, "signed"), signed)
    right = half([[1, 1, 1, 1]], [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    assert right.losses(np.array([0]), "wrong-stop").ravel().tolist() == [1.0, 0.0, 0.0, 0.0]


def p_values_by(loss: LossName, losses: np.ndarray, level: float, *, graded: bool) -> np.ndarray:
    """The test of each kind of loss, by its definition."""
    if not graded:
        signed = loss == "signed"
        return (
            signed_p_values(losses, 0.1, delta=level) if signed else binomial_p_values(losses, 0.1)
        )
    if loss == "drop":
        return hoeffding_bentkus_p_values(losses, 0.1)
    scaled = (losses + 1) / 2
    student = scipy.stats.ttest_1samp(losses, 0.1, alternative="less").pvalue
    bets = betting_p_values(scaled, 0.55, delta=level)
    return np.asarray(
        np.where(student > 0.25, 1.0, np.maximum(bets, student))
    )  # a lost bet is not made


@pytest.mark.parametrize("graded", [True, False])
@pytest.mark.parametrize("loss", ["signed", "drop", "wrong-stop"])
@pytest.mark.parametrize("correction", ["fixed-sequence", "holm"])
def test_each_loss_has_its_test_and_each_correction_its_rule(
    loss: Any, graded: bool, correction: Any
) -> None:
    if graded and loss == "wrong-stop":
        return  # it compares what is right
    learn, tested, full = world(1)
    if graded:
        learn, tested = (
            dataclasses.replace(one, scores=one.scores * 0.9 + 0.05) for one in (learn, tested)
        )
    asked = settings(loss=loss, correction=correction)
    outcome = certify(learn, tested, full, asked)
    order = outcome.order.tolist()
    losses = tested.losses(outcome.order, loss)
    level = asked.delta / (len(order) if correction == "holm" else 1)
    p = p_values_by(loss, losses, level, graded=graded)
    np.testing.assert_allclose(outcome.p_values[outcome.order], p)
    expected = []
    if correction == "fixed-sequence":
        for number, value in zip(order, p.tolist(), strict=True):
            if value > asked.delta:
                break
            expected.append(number)
    else:
        for step, place in enumerate(np.argsort(p, kind="stable").tolist()):
            if p[place] > asked.delta / (len(p) - step):
                break
            expected.append(order[place])
    assert sorted(expected) == np.flatnonzero(outcome.certified).tolist()
    assert 0 < len(expected) < len(order)
    assert outcome.costs[outcome.chosen] == min(outcome.costs[expected])
    assert not outcome.fell_back
    untested = sorted(set(range(len(outcome.costs))) - set(order))
    assert np.isnan(outcome.p_values[untested]).all()


# --- what is tested ------------------------------------------------------------------------------
@pytest.mark.parametrize("only_front", [True, False])
def test_the_testing_half_decides_neither_what_is_tested_nor_the_order(only_front: bool) -> None:
    learn, tested, full = world(2)
    asked = settings(only_front=only_front)
    before = certify(learn, tested, full, asked)
    generator = np.random.default_rng(0)
    for _ in range(10):
        changed = dataclasses.replace(
            tested,
            scores=generator.random(tested.scores.shape),
            stops=generator.integers(1, ROUNDS + 1, tested.stops.shape).astype(np.int16),
            costs=generator.random(tested.costs.shape),
        )
        after = certify(learn, changed, full, asked)
        assert after.order.tolist() == before.order.tolist()
        assert after.tested_loss.tolist() != before.tested_loss.tolist()


def test_the_front_by_hand() -> None:
    """Costs 1..5 with losses .3, .1, .2, .1, 0: the third and the fourth are beaten."""
    questions = 100
    scores = np.ones((questions, ROUNDS))
    for number, loss in enumerate((0.3, 0.1, 0.2, 0.1)):
        scores[: int(loss * questions), number] = 0.0
    stops = np.repeat(np.arange(1, ROUNDS + 1)[:, None], questions, axis=1)
    made = half(stops, scores)
    outcome = certify(made, made, 4, settings())
    assert sorted(outcome.order.tolist()) == [0, 1]
    assert outcome.order.tolist() == [1, 0]  # safest first
    everyone = certify(made, made, 4, settings(only_front=False))
    assert sorted(everyone.order.tolist()) == [0, 1, 2, 3]
    np.testing.assert_allclose(everyone.learned_loss, [0.3, 0.1, 0.2, 0.1, 0.0], atol=1e-12)


def test_of_members_that_stop_alike_the_cheapest_is_tested() -> None:
    """Member 0 reads samples and pays four times; member 2 never stops and so is the full budget."""
    learn, tested, _ = world(3, members=4)
    stops = [np.stack([h.stops[1], h.stops[1], h.stops[3], h.stops[3]]) for h in (learn, tested)]
    costs = [np.array([4.0, 1.0, 1.0, 1.0]) * s.mean(axis=1) for s in stops]
    halves = [
        dataclasses.replace(h, stops=s, costs=c)
        for h, s, c in zip((learn, tested), stops, costs, strict=True)
    ]
    outcome = certify(halves[0], halves[1], 3, settings(max_loss=0.5))
    assert outcome.order.tolist() == [1]
    assert outcome.chosen == 1


def test_a_fixed_sequence_stops_at_its_first_failure() -> None:
    """On the second half the member that looked safest fails; the next would have passed."""
    learn, tested, full = world(7)
    order = certify(learn, tested, full, settings()).order
    bad = tested.stops[:].copy()
    bad[order[0]] = 1
    outcome = certify(learn, dataclasses.replace(tested, stops=bad), full, settings())
    assert outcome.order.tolist() == order.tolist()
    assert (outcome.p_values[order[1:]] <= 0.1).any()
    assert outcome.fell_back
    by_holm = certify(
        learn, dataclasses.replace(tested, stops=bad), full, settings(correction="holm")
    )
    assert not by_holm.fell_back


def test_members_in_blocks_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    learn, tested, full = world(1)
    before = certify(learn, tested, full, settings(only_front=False))
    monkeypatch.setattr("suffice.evaluation.choose.bounds._BLOCK_CELLS", 700)
    after = certify(learn, tested, full, settings(only_front=False))
    np.testing.assert_allclose(after.p_values, before.p_values)
    assert after.chosen == before.chosen


# --- records that were cut -----------------------------------------------------------------------
def seen_of_one(last: int, until: int, weight: float, *, unseen: bool = False) -> Seen:
    return Seen(
        budget=ROUNDS,
        last=np.array([last], np.int16),
        until=np.array([until], np.int16),
        weight=np.array([weight]),
        unseen=np.array([unseen]),
        explored=np.array([weight > 1]),
        propensity=np.array([0.05]),
        causes={},
    )


@pytest.mark.parametrize("loss", ["signed", "drop", "wrong-stop"])
@pytest.mark.parametrize("until", [1, 3, 4])
def test_weighted_losses_are_on_average_those_of_the_whole_question(
    loss: LossName, until: int
) -> None:
    """One in twenty is explored, the others are cut; what either counts averages to the loss itself."""
    generator = np.random.default_rng(until)
    for _ in range(20):
        scores = generator.integers(0, 2 if loss == "wrong-stop" else 5, (1, ROUNDS)) / 4.0
        cut = scores.copy()
        cut[:, until:] = np.nan
        explored = weighted_losses(scores, seen_of_one(ROUNDS, until, 20.0), loss)
        stopped = weighted_losses(cut, seen_of_one(until, until, 0.0), loss)
        plain = scores[:, -1:] - scores
        expected = plain if loss == "signed" else np.maximum(plain, 0.0)
        np.testing.assert_allclose(0.05 * explored + 0.95 * stopped, expected, atol=1e-12)
        assert np.abs(explored).max() <= 20.0
        assert np.abs(stopped).max() <= 20.0


@pytest.mark.parametrize("loss", ["signed", "drop"])
def test_of_what_was_not_seen_the_worst_is_assumed(loss: LossName) -> None:
    generator = np.random.default_rng(4)
    scores = generator.random((1, ROUNDS))
    scores[:, 3:] = np.nan
    worst = weighted_losses(scores, seen_of_one(3, ROUNDS, 1.0, unseen=True), loss)
    for _ in range(50):
        whole = np.where(np.isnan(scores), generator.integers(0, 2, scores.shape), scores)
        lost = whole[:, -1:] - whole
        assert (worst >= (lost if loss == "signed" else np.maximum(lost, 0.0)) - 1e-12).all()
    assert worst[0, -1] == 0.0  # the full budget loses nothing against itself


# --- several bounds at once ----------------------------------------------------------------------
def test_a_member_is_certified_where_each_bound_is() -> None:
    """The p-value is the greatest of those that each bound alone would give."""
    learn, tested, full = world(1, questions=600)
    halves = learn, tested
    given = {"max_loss": 0.1, "max_wrong_stops": 0.12}
    outcome = certify(*halves, full, settings(**given, only_front=False))
    order = outcome.order
    alone = [
        certify(*halves, full, settings(only_front=False, **one))
        for one in ({"max_loss": 0.1}, {"max_loss": 0.12, "loss": "wrong-stop"})
    ]
    for number, one in enumerate(alone):
        np.testing.assert_array_equal(outcome.tests.tested_at[number, order], one.p_values[order])
        np.testing.assert_array_equal(outcome.tested(number), one.tested_loss)
    greatest = outcome.tests.tested_at.max(axis=0)
    np.testing.assert_array_equal(outcome.p_values[order], greatest[order])
    assert 0 < outcome.certified.sum() <= min(one.certified.sum() for one in alone)

"""A policy watched in production: luck raises few alarms, changes and broken promises are found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from tests.certifying import most_allowed

from suffice.monitor.production import Production, ProductionSettings
from suffice.monitor.questions import STOP_ROUND, Asked, Promised, Returned, Stopping, significant
from suffice.policies.rules.policy import Rule
from suffice.scoring import METRICS

LEVEL = 0.05
POLICY = Rule(rule="a > 0.5 or b > 0.5", own_signals=("a", "b"))


@dataclass(frozen=True, kw_only=True)
class World:
    """Questions of which a share is stopped early, and of those some lose by it and some gain."""

    early: float = 0.6
    lose: float = 0.05
    gain: float = 0.02
    explore: float = 0.2
    shift: float = 0.0

    @property
    def loss(self) -> float:
        """Per question."""
        return self.early * (self.lose - self.gain)

    def asked(self, rng: np.random.Generator, number: int) -> Asked:
        """One question: tied, correlated signals, of which ``shift`` moves the second."""
        a = float(rng.standard_normal())
        b = 0.8 * a + 0.6 * float(rng.standard_normal()) + self.shift
        early = bool(rng.random() < self.early)
        explored = early and bool(rng.random() < self.explore)
        outcome = float(rng.random())
        right = outcome < self.lose, self.lose < outcome < self.lose + self.gain
        values = {"a in round 1": a, "a at the stop": a + b, "b in round 1": b, "b at the stop": b}
        return Asked(
            id=f"q{number}",
            rounds=3 if explored or not early else 1,
            budget=3,
            stop=1 if early else 3,
            early=early,
            explored=explored,
            propensity=self.explore,
            values={name: significant(round(value, 1)) for name, value in values.items()}
            | {STOP_ROUND: 1.0 if early else 3.0},
            at_stop=Returned(answer="yes" if right[1] else "no"),
            at_end=Returned(answer="yes" if right[0] else "no"),
            gold=("yes",),
        )


def watched(seed: int, length: int, *worlds: World, max_loss: float | None = None) -> Production:
    """So many questions of each world."""
    settings = ProductionSettings(level=LEVEL, first=40, metric="em", max_loss=max_loss, seed=seed)
    production, rng = Production(POLICY, settings), np.random.default_rng(seed)
    for number in range(length * len(worlds)):
        production.take(worlds[number // length].asked(rng, number))
    return production


def test_luck_seldom_raises_an_alarm() -> None:
    world = World()
    streams = [watched(seed, 80, world, max_loss=world.loss) for seed in range(6)]
    for kind in ("drift", "loss", "exploration"):
        raised = sum(any(alarm.kind == kind for alarm in held.alarms) for held in streams)
        assert raised <= 6 * most_allowed(LEVEL, 6), kind


@pytest.mark.slow
def test_luck_seldom_raises_an_alarm_in_thousands_of_streams() -> None:
    world = World(lose=0.06, gain=0.0)
    raised = dict.fromkeys(("drift", "loss", "exploration"), 0)
    for seed in range(2_000):
        for kind in {alarm.kind for alarm in watched(seed, 120, world, max_loss=world.loss).alarms}:
            raised[kind] += 1
    assert max(raised.values()) <= 2_000 * most_allowed(LEVEL, 2_000), raised


def test_changes_and_broken_promises_are_found() -> None:
    shifted = watched(0, 110, World(), World(shift=1.5))
    assert {alarm.kind for alarm in shifted.alarms} == {"drift"}
    assert min(alarm.question for alarm in shifted.alarms) > 110
    broken = watched(1, 250, World(lose=0.6, gain=0.0), max_loss=0.05)
    assert [alarm.kind for alarm in broken.alarms] == ["loss"]


def test_draws_other_than_stated_are_found() -> None:
    stopping = Stopping(Promised(metric=METRICS["em"], score="em"), LEVEL)
    rng = np.random.default_rng(3)
    for _ in range(300):
        explored = bool(rng.random() < 0.05)
        asked = Asked(id="q", rounds=2, stop=1, early=True, explored=explored, propensity=0.2)
        stopping.take(asked)
    assert stopping.draws.alarmed


def missed(world: World, runs: int, length: int, looks: int) -> int:
    """In how many runs the interval of the loss left the truth out at any look."""
    promised = Promised(metric=METRICS["em"], score="em")
    count = 0
    for seed in range(runs):
        rng, stopping = np.random.default_rng(seed), Stopping(promised, LEVEL)
        early = rng.random(length) < world.early
        explored = early & (rng.random(length) < world.explore)
        outcome = rng.random(length)
        losses = np.where(
            outcome < world.lose, 1.0, np.where(outcome < world.lose + world.gain, -1.0, 0.0)
        )
        out = False
        for number in range(length):
            stopping.take(Asked(id="q", rounds=1, stop=1, early=bool(early[number])))
            if explored[number]:
                stopping.lose(float(losses[number]))
            if number % looks == looks - 1:
                found = stopping.loss
                out |= not found.low <= world.loss <= found.high
        count += out
    return count


def test_the_loss_lies_in_its_interval_whenever_one_looks() -> None:
    assert missed(World(), 10, 120, looks=40) <= 10 * most_allowed(LEVEL, 10)


@pytest.mark.slow
@pytest.mark.parametrize("world", [World(explore=0.5), World(lose=0.004, gain=0.0, explore=0.5)])
def test_the_loss_lies_in_its_interval_in_thousands_of_runs(world: World) -> None:
    assert missed(world, 2_000, 200, looks=50) <= 2_000 * most_allowed(LEVEL, 2_000)

"""A policy watched in production: luck raises few alarms, changes and broken promises are found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.certifying import most_allowed
from tests.ending_loops import POLICY as ENDING
from tests.ending_loops import Loops, loops

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
    broken = watched(1, 350, World(lose=0.6, gain=0.0), max_loss=0.05)
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
            said, ran_on = bool(early[number]), bool(explored[number])
            stopping.take(Asked(id="q", rounds=1 + ran_on, stop=1, early=said, explored=ran_on))
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


# --- loops that end by themselves ------------------------------------------------------------------
def told_of(world: Loops, questions: int, seed: int, **log: Any) -> dict[str, Any]:
    """What is told of a log of so many questions, whose promise is just kept."""
    settings = ProductionSettings(
        level=LEVEL, first=40, metric="em", max_rounds=world.budget, max_loss=max(world.loss, 0.0)
    )
    production = Production(ENDING, settings)
    traces = world.log(questions, seed, **log)
    production.read([(traces, traces.question_ids)])
    return production.to_json()


@dataclass
class Told:
    """Of many logs of a world: alarms by kind, intervals that left the truth out, mean errors in errors."""

    alarms: Counter[str]
    missed: Counter[str]
    off: dict[str, float]

    @classmethod
    def of(cls, world: Loops, logs: int, questions: int, **log: Any) -> Told:
        alarms, missed = Counter[str](), Counter[str]()
        explore = 1.0 if log["explore"] is None else log["explore"]
        truth = {"loss": world.loss, "share": world.share_saved}
        truth["rounds"] = world.rounds_saved(explore)
        found: dict[str, list[float]] = {name: [] for name in truth}
        for seed in range(logs):
            told = told_of(world, questions, seed, **log)
            alarms.update({alarm["alarm"] for alarm in told["alarms"]})
            for name, held in {"loss": told["loss"], "share": told["saved"][0]}.items():
                missed[name] += not held["low"] <= truth[name] <= held["high"]
                found[name].append(held["estimate"])
            found["rounds"].append(told["rounds_saved"])
        return cls(
            alarms=alarms,
            missed=missed,
            off={
                name: abs(np.mean(held) - truth[name]) / (np.std(held) / np.sqrt(logs) + 1e-9)
                for name, held in found.items()
            },
        )


WORLDS: dict[str, tuple[Loops, dict[str, Any]]] = {
    "ends": (loops(), {"explore": 0.2}),
    "often": (loops(own=0.5, fires=0.5), {"explore": 0.3}),
    "cut by others": (loops(cuts=0.5), {"explore": 0.3}),
    "labels by arm": (loops(), {"explore": 0.3, "labelled": (0.5, 1.0, 0.1)}),
    "explored labelled": (loops(cuts=0.2), {"explore": 0.2, "labelled": (1.0, 0.0, 0.0)}),
    "never by itself": (loops(own=0.0), {"explore": 0.2}),
    "shadow": (loops(cuts=0.2), {"explore": None}),
}


@pytest.mark.parametrize("name", WORLDS)
def test_loops_that_end_by_themselves_are_told_as_they_are(name: str) -> None:
    world, log = WORLDS[name]
    told = Told.of(world, 12, 250, **log)
    assert all(told.alarms[kind] <= 12 * most_allowed(LEVEL, 12) for kind in told.alarms)
    assert all(told.missed[kind] <= 12 * most_allowed(LEVEL, 12) for kind in told.missed)
    assert max(told.off.values()) < 4.0, told.off


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_loops_that_end_by_themselves_are_told_as_they_are_in_thousands_of_logs(name: str) -> None:
    world, log = WORLDS[name]
    told = Told.of(world, 1_000, 300, **log)
    assert max(told.alarms.values(), default=0) <= 1_000 * most_allowed(LEVEL, 1_000), told
    assert max(told.missed.values(), default=0) <= 1_000 * most_allowed(LEVEL, 1_000), told
    assert max(told.off.values()) < 4.0, told.off


def test_a_healthy_agent_raises_no_alarm_and_draws_other_than_stated_do() -> None:
    world = loops(own=0.4, lose=0.05)
    told = told_of(world, 3_000, 1, explore=0.2)
    assert told["alarms"] == []
    assert told["explored"] / told["early"] == pytest.approx(0.2, abs=0.03)
    assert told["loss"]["estimate"] == pytest.approx(world.loss, abs=0.012)
    assert told["saved"][0]["estimate"] == pytest.approx(world.share_saved, abs=0.03)
    assert told["rounds_saved"] == pytest.approx(world.rounds_saved(0.2), abs=0.03)
    off = told_of(world, 3_000, 1, explore=0.2, drawn=0.1)
    assert [alarm["alarm"] for alarm in off["alarms"]] == ["exploration"]

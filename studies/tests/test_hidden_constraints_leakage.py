"""Stems, the leak check, and the ranking of tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import BenchmarkSettings, PlanningTask
from tests.leakage import (
    leaking_stems,
    token_ranks,
    token_words,
)

from suffice.testing.encoders import HashingEncoder


def with_goal(task: PlanningTask, goal: str) -> PlanningTask:
    constraint = replace(task.constraint, token="disable_plaintext_http_002")
    return replace(task, goal=goal, context="A queue.", constraint=constraint)


def test_a_leak_is_found_in_any_form() -> None:
    task = generate(BenchmarkSettings(tasks=1, hard_small=1, documents=6)).tasks[0]
    assert leaking_stems(with_goal(task, "Set up a queue.")) == ()
    assert leaking_stems(with_goal(task, "Disabling the old HTTP door.")) == ("disabl", "http")
    assert leaking_stems(replace(with_goal(task, "Go."), context="plaintexts")) == ("plaintext",)
    assert token_words("raise_tls13_floor_0042") == ("raise", "tls13", "floor")


@pytest.mark.parametrize("gap", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("seed", [42, 0, 7, 2**40])
def test_nothing_leaks(seed: int, gap: float) -> None:
    benchmark = generate(BenchmarkSettings(seed=seed, gap=gap))
    assert {task.id: leaking_stems(task) for task in benchmark.tasks} == {
        task.id: () for task in benchmark.tasks
    }


def test_ranks_of_tokens_that_are_given_away() -> None:
    tasks = generate(BenchmarkSettings(tasks=12, hard_small=0, documents=72)).tasks
    told = [
        replace(task, context=" ".join(token_words(task.constraint.token)), goal="")
        for task in tasks
    ]
    assert token_ranks(told).tolist() == [1.0] * 12
    assert token_ranks(told, HashingEncoder()).tolist() == [1.0] * 12

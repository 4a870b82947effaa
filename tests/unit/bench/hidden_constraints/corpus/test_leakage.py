"""Stems, the leak check, and the ranking of tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.leakage import (
    leaking_stems,
    stem,
    token_ranks,
    token_words,
)

from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import BenchmarkSettings, PlanningTask
from suffice.testing.encoders import HashingEncoder


@pytest.mark.parametrize(
    "forms",
    [
        ("disable", "disables", "disabled", "disabling"),
        ("rotate", "rotation", "rotating"),
        ("verify", "verified", "verifies"),
        ("isolate", "isolation"),
        ("proxy", "proxies"),
        ("secret", "secrets"),
        ("encrypt", "encryption", "encrypted"),
    ],
)
def test_forms_of_a_word_share_a_stem(forms: tuple[str, ...]) -> None:
    assert len({stem(form) for form in forms}) == 1


def test_stems_tell_words_apart() -> None:
    words = ("disable", "proxy", "subnet", "canary", "secret", "queue", "gateway", "gate", "http")
    assert len({stem(word) for word in words}) == len(words)
    assert stem("is") == "is"


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


def test_nothing_leaks_in_many_tasks() -> None:
    benchmark = generate(BenchmarkSettings(seed=1, tasks=800, hard_small=0, documents=4800))
    assert not [task.id for task in benchmark.tasks if leaking_stems(task)]


def test_ranks_of_tokens_that_are_given_away() -> None:
    tasks = generate(BenchmarkSettings(tasks=12, hard_small=0, documents=72)).tasks
    told = [
        replace(task, context=" ".join(token_words(task.constraint.token)), goal="")
        for task in tasks
    ]
    assert token_ranks(told).tolist() == [1.0] * 12
    assert token_ranks(told, HashingEncoder()).tolist() == [1.0] * 12


def test_equal_scores_share_their_ranks() -> None:
    task = generate(BenchmarkSettings(tasks=1, hard_small=0, documents=6)).tasks[0]
    np.testing.assert_array_equal(token_ranks([task] * 5), np.full(5, 3.0))

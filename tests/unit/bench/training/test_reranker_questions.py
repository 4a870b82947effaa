from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np
import pytest

from studies.training.reranker import split_questions, training_batches
from suffice.datasets.example import Example
from suffice.datasets.registry import load
from suffice.errors import DataError, UsageError
from suffice.trace.rounds.records import Gold, Passage, Question
from suffice.trace.rounds.tokens import passage_text


def example(name: str, passages: str, gold: str) -> Example:
    return Example(
        question=Question(id=name, text=f"question {name}"),
        gold=Gold(answers=("x",), passage_ids=tuple(gold)),
        passages=tuple(Passage(id=letter, text=f"text {letter}") for letter in passages),
    )


MANY = [example(f"q{n}", "abcdef", "ab"[: 1 + n % 2]) for n in range(20)]


def ids(examples: tuple[Example, ...]) -> set[str]:
    return {example.question.id for example in examples}


def test_the_split_keeps_questions_apart_by_seed() -> None:
    split = split_questions(MANY, holdout=0.4, seed=3)
    assert (len(split.train), len(split.held_out), split.unusable) == (12, 8, 0)
    assert not ids(split.train) & ids(split.held_out)
    assert split == split_questions(MANY, holdout=0.4, seed=3)
    assert ids(split.held_out) != ids(split_questions(MANY, holdout=0.4, seed=4).held_out)


def test_questions_without_gold_or_without_others_are_left_out() -> None:
    lacking = [example("no gold", "ab", ""), example("all gold", "ab", "ab")]
    lacking += [example("gold elsewhere", "ab", "z"), example("no passages", "", "a")]
    split = split_questions([*MANY, *lacking])
    assert split.unusable == 4
    assert ids(split.train) | ids(split.held_out) == ids(tuple(MANY))
    with pytest.raises(DataError, match="1 of 5 questions have both a gold paragraph"):
        split_questions([MANY[0], *lacking])


@pytest.mark.parametrize("holdout", [0, 1, -0.1, float("nan")])
def test_a_share_that_is_none(holdout: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        split_questions(MANY, holdout=holdout)


@pytest.mark.parametrize(("holdout", "held_out"), [(0.001, 1), (0.999, 19)])
def test_both_sides_keep_one(holdout: float, held_out: int) -> None:
    assert len(split_questions(MANY, holdout=holdout).held_out) == held_out


def test_batches_hold_every_gold_paragraph_and_drawn_others() -> None:
    batches = training_batches(
        MANY, batch_size=4, most_passages=4, generator=np.random.default_rng(1)
    )
    first_epoch = [group for batch in islice(batches, 5) for group in batch]
    assert Counter(group.question for group in first_epoch) == {
        example.question.text: 1 for example in MANY
    }
    second_epoch = [group for batch in islice(batches, 5) for group in batch]
    by_question = {group.question: group for group in second_epoch}
    drawn = set()
    for group in first_epoch:
        (source,) = [example for example in MANY if example.question.text == group.question]
        gold = {passage_text(p) for p in source.passages if p.id in source.gold.passage_ids}
        assert len(set(group.texts)) == len(group.texts) == len(group.gold) == 4
        assert {t for t, right in zip(group.texts, group.gold, strict=True) if right} == gold
        drawn.add(set(group.texts) == set(by_question[group.question].texts))
    assert False in drawn  # others are drawn anew


def test_gold_paragraphs_leave_room_for_another() -> None:
    batches = training_batches(
        [example("q", "abcdef", "abcde")],
        batch_size=1,
        most_passages=3,
        generator=np.random.default_rng(1),
    )
    for batch in islice(batches, 10):
        assert batch[0].gold == (True, True, False)


def test_generated_questions_can_be_trained_on() -> None:
    split = split_questions(load("generated", limit=40))
    assert split.unusable == 0

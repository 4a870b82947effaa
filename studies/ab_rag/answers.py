"""Answers to look at one by one: wrong by exact match with the gold answer in them, and loops at work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from studies.ab_rag.record_results import ABRagStudy
from suffice.numbers.intervals.bootstrap import Interval
from suffice.replay.diagnose.reliability import wilson
from suffice.replay.run.results import PolicyResult
from suffice.scoring import normalize_answer
from suffice.trace.rounds.records import QuestionRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class LongAnswer:
    """An answer that is no exact match and holds a gold answer word for word."""

    question_id: str
    question: str
    gold: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LongAnswers:
    """Those of one policy: how many, of how many that are no exact match, and the first of them."""

    policy: str
    labelled: int
    wrong: int
    holding: int
    examples: tuple[LongAnswer, ...]

    @property
    def share(self) -> Interval | None:
        """The share of the wrong answers that hold gold, with its Wilson interval."""
        if not self.wrong:
            return None
        low, high = wilson(self.holding, self.wrong)
        return Interval(estimate=self.holding / self.wrong, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopExample:
    """A question through the loop: answer and confidence of every round up to the stop."""

    question_id: str
    question: str
    gold: str
    answers: tuple[str, ...]
    confidence: tuple[float | None, ...] = field(default=())
    first_em: float = 0.0
    last_em: float = 0.0


def held_gold(answer: str, gold_answers: Sequence[str]) -> str | None:
    """The first gold answer that stands in the answer as whole words, both normalised.

    Yes and no are left out: an answer holds them by chance.

    >>> held_gold("Wichita, Kansas", ["Wichita"]), held_gold("I know", ["no"])
    ('Wichita', None)
    """
    words = f" {normalize_answer(answer)} "
    for gold in gold_answers:
        form = normalize_answer(gold)
        if form not in ("", "yes", "no") and f" {form} " in words:
            return gold
    return None


def long_answers(study: ABRagStudy, policy: PolicyResult, examples: int) -> LongAnswers:
    """The answers of a policy that hold gold and are no exact match, in the record's order."""
    labelled = wrong = 0
    found = []
    for record, taken, em in _returned(study, policy):
        labelled += 1
        wrong += em == 0.0
        answer = record.rounds[taken - 1].answer or ""
        gold = held_gold(answer, record.gold.answers) if em == 0.0 else None
        if gold is not None:
            question = record.question
            found.append(
                LongAnswer(
                    question_id=question.id, question=question.text, gold=gold, answer=answer
                )
            )
    return LongAnswers(
        policy=policy.name,
        labelled=labelled,
        wrong=wrong,
        holding=len(found),
        examples=tuple(found[:examples]),
    )


def loop_examples(study: ABRagStudy, policy: PolicyResult, number: int) -> tuple[LoopExample, ...]:
    """Questions on which the loop went on, those that it put right first, then some that stop at once."""
    confidence = study.comparison.measures.signals(policy.policy.specs if policy.policy else ())
    own = getattr(policy.policy, "confidence")(confidence)  # noqa: B009 - only some policies have it
    em = study.comparison.measures.score("em")
    rows = {question: row for row, question in enumerate(study.comparison.traces.question_ids)}
    made = []
    for record, taken, last_em in _returned(study, policy):
        row = rows[record.question.id]
        made.append(
            LoopExample(
                question_id=record.question.id,
                question=record.question.text,
                gold=record.gold.answers[0],
                answers=tuple(round_.answer or "" for round_ in record.rounds[:taken]),
                confidence=tuple(
                    None if np.isnan(value) else float(value) for value in own[row, :taken]
                ),
                first_em=float(em[row, 0]),
                last_em=last_em,
            )
        )
    going = [one for one in made if len(one.answers) > 1]
    going.sort(key=lambda one: one.first_em - one.last_em)
    stopping = [one for one in made if len(one.answers) == 1]
    first = going[: number - number // 2]
    return (*first, *stopping[: number - len(first)])


def _returned(
    study: ABRagStudy, policy: PolicyResult
) -> Iterator[tuple[QuestionRecord, int, float]]:
    """Every labelled question with the round whose answer is returned and its exact match."""
    em = study.comparison.measures.score("em")
    records = study.comparison.traces.records()
    for row, (record, taken) in enumerate(zip(records, policy.answers.tolist(), strict=True)):
        score = float(em[row, taken - 1])
        if record.gold.answers and not np.isnan(score):
            yield record, taken, score

"""Small traces for tests, made by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from suffice.trace.rounds.records import (
    Gold,
    Passage,
    Question,
    QuestionRecord,
    Round,
    Token,
    TopToken,
    Usage,
)
from suffice.trace.rounds.trace_set import TraceSet


def answer_tokens(answer: str, margin: float) -> tuple[Token, ...]:
    """Return tokens of ``Answer: ...``; the answer has one token of this margin, in nats."""
    marker = (Token("Answer", -0.1, (TopToken("Answer", -0.1), TopToken("The", -4.0))),)
    colon = (Token(":", -0.1, (TopToken(":", -0.1), TopToken("s", -4.0))),)
    text = f" {answer}"
    own = min(margin, 0.0) - 0.2
    first = Token(text, own, (TopToken(text, own), TopToken(" other", own - margin)))
    return (*marker, *colon, first)


def make_record(
    question_id: str,
    answers: Sequence[str],
    *,
    gold: Sequence[str] = (),
    gold_passages: Sequence[str] = (),
    split: str | None = None,
    margins: Sequence[float] | None = None,
    samples: Sequence[Sequence[str] | None] | None = None,
    signals: Sequence[Mapping[str, float]] | None = None,
    passages: Sequence[Sequence[Passage] | None] | None = None,
    closed_book: Round | None = None,
) -> QuestionRecord:
    """Return a question; round t answered ``answers[t - 1]`` and added one passage.

    ``margins``, ``samples``, ``signals`` and ``passages`` have an entry a round.
    """
    rounds = []
    for t, answer in enumerate(answers):
        seen: Sequence[Passage] | None = (
            Passage(id=f"{question_id}-{t}", title=f"Page {t}", text=f"text number {t}"),
        )
        if passages is not None:
            seen = passages[t]
        drawn = None if samples is None else samples[t]
        rounds.append(
            Round(
                answer=answer,
                passages=None if seen is None else tuple(seen),
                response=f"Answer: {answer}",
                tokens=None if margins is None else answer_tokens(answer, margins[t]),
                samples=None if drawn is None else tuple(drawn),
                usage=Usage(llm_calls=1, prompt_tokens=100 * (t + 1), cached_tokens=80 * t),
                signals={} if signals is None else signals[t],
            )
        )
    return QuestionRecord(
        question=Question(id=question_id, text=f"What is {question_id}?", split=split),
        gold=Gold(answers=tuple(gold), passage_ids=tuple(gold_passages)),
        rounds=tuple(rounds),
        closed_book=closed_book,
    )


def random_records(count: int, *, seed: int = 0) -> list[QuestionRecord]:
    """Return labeled questions of three rounds, right half of the time, with margins in [0, 1).

    They alternate between the splits eval and tune.
    """
    rng = random.Random(seed)  # noqa: S311
    return [
        make_record(
            f"q{number:02d}",
            [rng.choice(["Oslo", "Rome"]) for _ in range(3)],
            gold=["Oslo"],
            margins=[rng.random() for _ in range(3)],
            split="tune" if number % 2 else "eval",
        )
        for number in range(count)
    ]


def sampled_records(
    count: int,
    *,
    rounds: int = 3,
    samples: int = 5,
    splits: Sequence[str] = ("optimize", "calibrate", "eval"),
    seed: int = 0,
) -> list[QuestionRecord]:
    """Return labeled questions whose sampled answers agree more often where they are right.

    Easy questions are answered from round 1, others in a later round or never. Each round adds a
    passage with a retriever's score, higher for the two right ones. They take the splits in turn.
    """
    rng = random.Random(seed)  # noqa: S311
    return [
        _sampled_record(rng, f"q{number:05d}", rounds, samples, splits[number % len(splits)])
        for number in range(count)
    ]


def _sampled_record(
    rng: random.Random, name: str, rounds: int, samples: int, split: str
) -> QuestionRecord:
    known_from = rng.choice([1, 1, 2, 3, rounds + 1])
    made = []
    for number in range(1, rounds + 1):
        right = 0.7 if number >= known_from else 0.05
        drawn = tuple(
            "Oslo" if rng.random() < right else rng.choice(["Rome", "Bergen", "the Hague", ""])
            for _ in range(samples)
        )
        relevance = rng.gauss(4.0 if number <= 2 else 1.0, 1.0)
        passage = Passage(id=f"{name}-{number}", title=f"Page {number}", text="x", score=relevance)
        made.append(
            Round(
                answer=max(drawn, key=drawn.count),
                passages=(passage,),
                samples=drawn,
                usage=Usage(llm_calls=1 + samples, sample_calls=samples),
            )
        )
    return QuestionRecord(
        question=Question(id=name, text=f"What is {name}?", split=split),
        gold=Gold(answers=("Oslo",), passage_ids=(f"{name}-1", f"{name}-2")),
        rounds=tuple(made),
    )


def to_trace_set(records: Sequence[QuestionRecord]) -> TraceSet:
    """Return records as a trace set, through the columns of a file."""
    from suffice.trace.rounds.schema import records_to_table

    table = records_to_table(records)
    table = table.sort_by([("question_id", "ascending"), ("round", "ascending")])
    closed_book = [number == 0 for number in table.column("round").to_pylist()]
    return TraceSet(
        table=table.filter([not is_closed_book for is_closed_book in closed_book]),
        closed_book=table.filter(closed_book),
    )

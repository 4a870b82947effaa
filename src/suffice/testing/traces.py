"""Small traces for tests: by hand, and as Hypothesis strategies.

The strategies need the package ``hypothesis``; the makers need nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from suffice._optional import require
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
from suffice.trace.rounds.table import TraceSet

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def answer_tokens(answer: str, margin: float) -> tuple[Token, ...]:
    """Tokens of ``Answer: ...`` whose answer has one token with the given margin, in nats."""
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
    """A question whose round t answered ``answers[t - 1]`` and saw one new passage each round.

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
    """Labelled questions of three rounds, right half of the time, margins in [0, 1).

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
    """Labelled questions with sampled answers that agree more often where they are right.

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
    """Records as a trace set, through the same columns a file has."""
    from suffice.trace.rounds.schema import records_to_table

    table = records_to_table(records)
    table = table.sort_by([("question_id", "ascending"), ("round", "ascending")])
    closed_book = [number == 0 for number in table.column("round").to_pylist()]
    return TraceSet(
        table=table.filter([not is_closed_book for is_closed_book in closed_book]),
        closed_book=table.filter(closed_book),
    )


_WORDS = ("Oslo", "A", "oslo.", "the Oslo", "Bergen", "no", "yes", "unknown", "", "A-ha", "ha")


def question_records(
    *, max_questions: int = 6, max_rounds: int = 5
) -> SearchStrategy[list[QuestionRecord]]:
    """Lists of records with everything a real trace may show.

    Repeated, empty and abstaining answers, missing tokens, single alternatives, -inf rivals, repeated
    passages, stored and undefined signals, unlabelled questions, records that end early.
    """
    st = require("hypothesis.strategies", package="hypothesis", purpose="a test strategy")
    logprobs = st.one_of(
        st.floats(-12.0, 0.0, width=32), st.just(-math.inf), st.sampled_from([-0.5, -1.0])
    )
    tops = st.lists(
        st.builds(TopToken, st.sampled_from([" Oslo", " Ber", " no"]), logprobs), max_size=3
    )
    token = st.builds(
        Token,
        st.sampled_from(["Answer:", "Ans", "wer", ": O", " Oslo", "\n", " ", "Conf"]),
        st.floats(-12.0, 0.0, width=32),
        tops.map(tuple),
    )
    passage = st.builds(
        Passage,
        id=st.sampled_from("abcdefg"),
        title=st.sampled_from(["", "Oslo", "Bergen"]),
        text=st.sampled_from([None, "", "Oslo is a city", "Bergen is another city of rain"]),
        score=st.one_of(st.none(), st.floats(0, 50, width=32)),
        rerank_score=st.one_of(st.none(), st.floats(-5, 5, width=32)),
    )
    stored = st.dictionaries(
        st.sampled_from(["overlap", "answer_stable", "judge_support", "self_consistency"]),
        st.one_of(st.just(math.nan), st.sampled_from([0.0, 0.25, 1.0])),
        max_size=3,
    )
    one_round = st.builds(
        Round,
        answer=st.sampled_from(_WORDS),
        query=st.sampled_from([None, "Who?", "who", "where"]),
        refound=st.sampled_from([None, (), (Passage(id="a"),)]),
        answer_starts=st.sampled_from([None, None, 0, 2]),
        passages=st.one_of(st.none(), st.lists(passage, max_size=2)),
        tokens=st.one_of(st.none(), st.lists(token, max_size=8)),
        samples=st.one_of(st.none(), st.lists(st.sampled_from(_WORDS), max_size=5)),
        verbalized_confidence=st.one_of(st.none(), st.sampled_from([1.0, 3.0, 5.0, 7.0])),
        candidate_scores=st.one_of(st.none(), st.lists(st.floats(0, 50, width=32), max_size=6)),
        usage=st.builds(
            Usage, llm_calls=st.sampled_from([1, 4]), sample_calls=st.sampled_from([0, None])
        ),
        signals=stored,
    )
    record = st.builds(
        lambda rounds, answers, split: (rounds, answers, split),
        st.lists(one_round, min_size=1, max_size=max_rounds),
        st.lists(st.sampled_from(["Oslo", "yes", "none"]), max_size=2),
        st.sampled_from(["tune", "eval"]),
    )
    return st.lists(record, min_size=1, max_size=max_questions).map(_numbered)  # type: ignore[no-any-return]


def _numbered(
    parts: Sequence[tuple[Sequence[Round], Sequence[str], str]],
) -> list[QuestionRecord]:
    return [
        QuestionRecord(
            question=Question(id=f"q{number:03d}", text=f"Question {number}?", split=split),
            gold=Gold(answers=tuple(answers)),
            rounds=tuple(rounds),
        )
        for number, (rounds, answers, split) in enumerate(parts)
    ]

"""Records of questions with everything a real trace may show, as a Hypothesis strategy."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import strategies as st

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

_WORDS = ("Oslo", "A", "oslo.", "the Oslo", "Bergen", "no", "yes", "unknown", "", "A-ha", "ha")


def question_records(
    *, max_questions: int = 6, max_rounds: int = 5
) -> st.SearchStrategy[list[QuestionRecord]]:
    """Lists of records with everything a real trace may show.

    Repeated, empty and abstaining answers, missing tokens, single alternatives, -inf rivals, repeated
    passages, stored and undefined signals, unlabelled questions, records that end early.
    """
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
    return st.lists(record, min_size=1, max_size=max_questions).map(_numbered)


def _numbered(parts: Sequence[tuple[Sequence[Round], Sequence[str], str]]) -> list[QuestionRecord]:
    return [
        QuestionRecord(
            question=Question(id=f"q{number:03d}", text=f"Question {number}?", split=split),
            gold=Gold(answers=tuple(answers)),
            rounds=tuple(rounds),
        )
        for number, (rounds, answers, split) in enumerate(parts)
    ]

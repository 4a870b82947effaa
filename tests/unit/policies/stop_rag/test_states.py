"""What the network sees: the same from a record and from a live loop, and no more than it should."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings

from suffice.errors import UsageError
from suffice.policies.stop_rag.states import StateTexts, texts_of_traces, texts_of_view
from suffice.testing.traces import make_record, question_records, to_trace_set
from suffice.trace.records import LoopView, Passage, Round


def view(*rounds: tuple[Passage, ...] | None, question: str = "Where is Oslo?") -> LoopView:
    return LoopView(question, tuple(Round(answer="x", passages=each) for each in rounds))


OSLO = Passage(id="o", title="Oslo", text="A  city\nin Norway.")
RAIN = Passage(id="r", title="Rain", text=None)


def test_titles_and_texts_by_round() -> None:
    found = texts_of_view(view((OSLO,), None, (RAIN, Passage(id="e"))))
    assert found == StateTexts(
        question="Where is Oslo?", documents=(("Oslo A city in Norway.",), (), ("Rain",))
    )
    assert found.seen(1) == ("Oslo A city in Norway.",)
    assert found.seen(3) == ("Oslo A city in Norway.", "Rain")
    assert found.n_rounds == 3


def test_a_passage_counts_once_by_id() -> None:
    again = Passage(id="o", title="Oslo", text="other words")
    same_words = dataclasses.replace(OSLO, id="o2")
    found = texts_of_view(view((OSLO, OSLO), (again, RAIN), (same_words,)))
    assert found.documents == (("Oslo A city in Norway.",), ("Rain",), ("Oslo A city in Norway.",))


def test_long_texts_are_cut() -> None:
    found = texts_of_view(view((Passage(id="l", text="w " * 9000),), question="q " * 9000))
    assert len(found.documents[0][0]) <= 4000
    assert len(found.question) <= 4000


@settings(deadline=None)
@given(question_records())
def test_a_record_shows_what_the_loop_showed(records: list[Any]) -> None:
    traces = to_trace_set(records)
    if not traces.has("passages"):
        with pytest.raises(UsageError, match="holds no column passages"):
            texts_of_traces(traces)
        return
    found = texts_of_traces(traces)
    assert len(found) == len(records)
    for states, record in zip(found, records, strict=True):
        assert states == texts_of_view(LoopView(record.question.text, record.rounds))
        for number in range(1, len(record.rounds) + 1):
            live = texts_of_view(LoopView(record.question.text, record.rounds[:number]))
            assert live.documents == states.documents[:number]


def test_gold_answers_queries_and_answers_change_nothing() -> None:
    one = make_record("q1", ["Oslo", "Rome"], gold=["Oslo"])
    other = make_record("q1", ["Bergen", "x"], gold=["y"])
    rounds = tuple(dataclasses.replace(each, query="secret") for each in other.rounds)
    other = dataclasses.replace(other, rounds=rounds)
    assert texts_of_traces(to_trace_set([one])) == texts_of_traces(to_trace_set([other]))

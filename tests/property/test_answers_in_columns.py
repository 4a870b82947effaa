"""Forms and scores of answers by columns equal those of one answer, bit for bit, on hostile texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties import examples

from suffice.measures.measures import Measures
from suffice.scoring import (
    F1Kind,
    ScoreName,
    accuracy,
    answer_form,
    exact_match,
    f1_score,
    normalize_answer,
    published_normalizer,
    token_f1,
)
from suffice.signals.answer_stability import as_published
from suffice.signals.columns.answer_columns import (
    GoldAnswers,
    ScoredAnswers,
    answer_forms,
    normal_forms,
)
from suffice.signals.columns.arrays import Texts
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.labels import labelled, names_passages
from suffice.trace.rounds.records import Gold, Question, QuestionRecord, Round
from suffice.trace.rounds.trace_set import TraceSet

# what normalising takes away, what ends a word for Arrow and not for Python, and the other way round
_PIECES = (
    *("a", "an", "the", "A", "The", "AN", "yes", "no", "noanswer", "oslo", "Oslo", "9", "know"),
    *(" ", " ", " ", "  ", "\t", "\n", "\v", "\x1c", "\x1f", "\0", "\x01", "\x1b", "\x7f"),
    *("_", "-", "'", ".", "\\", "`", "{", "^", "]", "/", " the ", " a "),
    *("é", "İ", "ß", "K", "\x85", "\xa0", "\u3000", "\u0301", "—", "“", "\U0001f600"),
    *("Σ", "Ⱥ", "Ｔhe", "ſ", "\ufffe", "\uffff"),
    *("0", "00", "5", "50", "000", "123", ".", ",", "$", "%", "+", "#", "<", "- ", "e", "٣"),
)
texts = st.lists(st.sampled_from(_PIECES), max_size=9).map("".join)

Form = Callable[[str], str]
Forms = Callable[[pa.Array], pa.Array]
_FORMS: list[tuple[Forms, Form]] = [
    (normal_forms, normalize_answer),
    (answer_forms, answer_form),
    (as_published, published_normalizer),
]
_SCORES: list[tuple[ScoreName, F1Kind]] = [
    ("em", "hotpotqa"),
    ("f1", "hotpotqa"),
    ("f1", "squad"),
    ("acc", "hotpotqa"),
]


@pytest.mark.parametrize(("forms", "form"), _FORMS)
@given(kind=st.sampled_from((pa.string(), pa.large_string())), column=st.lists(texts, max_size=40))
@settings(max_examples=examples(60), deadline=None)
def test_forms_are_those_of_one_text(
    forms: Forms, form: Form, kind: pa.DataType, column: list[str]
) -> None:
    found = forms(pa.array(column, kind))
    assert found.type == kind
    assert found.to_pylist() == [form(text) for text in column]


def agreeing(answer: str, gold: str, name: ScoreName, kind: F1Kind) -> float:
    """Agreement with one answer, in the form that compares answers."""
    one, other = answer_form(answer), answer_form(gold)
    if one == other:
        return 1.0
    if name == "f1":
        special = kind == "hotpotqa" and {one, other} & {"yes", "no", "noanswer"}
        return 0.0 if special else token_f1(one, other)
    return float(name == "acc" and other != "" and other in one)


def scored_one_by_one(
    answer: str | None, gold: tuple[str, ...], name: ScoreName, kind: F1Kind, metric: str = "f1"
) -> float:
    if answer is None or not gold:
        return np.nan
    if metric == "agreement":
        return agreeing(answer, gold[0], name, kind)
    if name == "f1":
        return f1_score(answer, gold, kind)
    return exact_match(answer, gold) if name == "em" else accuracy(answer, gold)


@st.composite
def _asked(draw: st.DrawFn) -> tuple[list[list[str | None] | None], list[tuple[int, str | None]]]:
    """Gold answers of questions, and answers to them, of which some are gold answers."""
    pool = st.one_of(
        st.none(), *[st.sampled_from(draw(st.lists(texts, min_size=6, max_size=6)))] * 5
    )
    gold = draw(st.lists(st.one_of(st.none(), st.lists(pool, max_size=4)), min_size=1, max_size=6))
    question = st.integers(0, len(gold) - 1)
    return gold, draw(st.lists(st.tuples(question, pool), max_size=30))


@given(asked=_asked())
@settings(max_examples=examples(100), deadline=None)
def test_scores_are_those_of_one_answer(
    asked: tuple[list[list[str | None] | None], list[tuple[int, str | None]]],
) -> None:
    """In any order of rows, with aliases, unlabelled questions and null answers, offsets of either width."""
    gold, rows = asked
    kind = pa.large_string() if len(rows) % 2 else pa.string()
    halves = [pa.array(part, pa.list_(kind)) for part in (gold[:2], gold[2:])]
    accepted = [tuple(answer for answer in answers or () if answer) for answers in gold]
    column = GoldAnswers.of(pa.chunked_array(halves))
    assert column.labelled.tolist() == [bool(answers) for answers in accepted]
    answers = Texts.of(pa.array([answer for _, answer in rows], kind))
    scored = ScoredAnswers(answers, column, np.array([place for place, _ in rows], np.int64))
    for name, f1_kind in _SCORES:
        expected = [scored_one_by_one(text, accepted[at], name, f1_kind) for at, text in rows]
        assert scored.score(name, f1_kind).tobytes() == np.array(expected, float).tobytes()


def assert_scored(traces: TraceSet) -> None:
    """Every score of every round, against gold answers and against the full budget's own."""
    for metric in ("f1", "agreement"):
        for kind in ("hotpotqa", "squad"):
            measures = Measures(traces).by(metric)
            outcomes = measures.scores(kind)
            labels = measures.traces
            has_gold = [bool(gold.answers) for gold in labels.gold]
            named = [bool(gold.passage_ids) for gold in labels.gold]
            assert names_passages(labels).tolist() == named
            assert labelled(labels).tolist() == outcomes.labelled.tolist() == has_gold
            for question, record in enumerate(labels.records()):
                gold = record.gold.answers
                for name in ("em", "f1", "acc"):
                    found = getattr(outcomes, name)[question]
                    for number, played in enumerate(record.rounds):
                        value = scored_one_by_one(played.answer, gold, name, kind, metric)
                        assert np.array_equal(found[number], value, equal_nan=True)
                    assert np.isnan(found[len(record.rounds) :]).all()


@given(
    recorded=st.lists(
        st.tuples(
            st.lists(texts, max_size=3),
            st.lists(st.one_of(st.none(), texts), min_size=1, max_size=4),
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=examples(15), deadline=None)
def test_rounds_are_scored_where_they_stand(
    recorded: list[tuple[list[str], list[str | None]]],
) -> None:
    """Ragged rounds of labelled and unlabelled questions."""
    records = [
        QuestionRecord(
            question=Question(id=f"q{number}", text="?"),
            gold=Gold(answers=tuple(filter(None, gold)), passage_ids=tuple(gold[1:])),
            rounds=tuple(Round(answer=answer) for answer in answers),
        )
        for number, (gold, answers) in enumerate(recorded)
    ]
    traces = to_trace_set(records)
    assert_scored(traces)
    assert_scored(replace(traces, table=traces.table.drop_columns("gold_answers")))

"""Column views of a trace set against its records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray
from tests.properties import examples
from tests.question_records import question_records

from suffice.errors import DataError, UsageError
from suffice.measures.measures import Measures
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord, Round, StoppedBy, sampled_ids
from suffice.trace.rounds.trace_set import TraceSet


def sample() -> TraceSet:
    """Questions of three rounds, one, and two with a closed book."""
    return to_trace_set(
        [
            make_record("b", ["x", "y", "z"], gold=["x"], split="eval"),
            make_record("a", ["x"], split="tune"),
            make_record("c", ["x", "y"], gold=["y"], closed_book=Round(answer="closed")),
        ]
    )


def test_shapes_and_dense_columns() -> None:
    traces = sample()
    assert traces.question_ids == ("a", "b", "c")
    assert (traces.n_questions, traces.n_rounds) == (3, 3)
    assert traces.last_rounds.tolist() == [1, 3, 2]
    assert traces.exists.tolist() == [[True, False, False], [True] * 3, [True, True, False]]
    assert traces.splits == {"eval": 1, "tune": 1}
    tokens = traces.column("prompt_tokens")
    assert tokens is not None
    expected = [[100, math.nan, math.nan], [100, 200, 300], [100, 200, math.nan]]
    np.testing.assert_array_equal(tokens, expected)
    assert tokens.flags.f_contiguous
    assert traces.column("latency_s") is None
    assert not traces.has("samples")


@pytest.mark.parametrize(
    ("ends", "stated", "columns", "full"),
    [
        ((None, "policy"), 5, 5, 5),  # cut in the longest question: nobody ran to the full budget
        ((None, "end"), 5, 3, 5),
        (("policy", None), 5, 3, 5),  # one ran further, to an end of its own
        ((None, "policy"), 2, 3, 3),
        ((None, "policy"), None, 3, 3),
        ((None, "policy"), "5", 3, 3),
        ((None, "policy"), 10**9, 3, 3),
    ],
)
def test_the_full_budget_is_the_stated_one(
    ends: tuple[StoppedBy, StoppedBy], stated: object, columns: int, full: int
) -> None:
    records = [make_record("a", ["x", "y"]), make_record("b", ["x", "y", "z"])]
    traces = to_trace_set(
        [replace(r, stopped_by=end) for r, end in zip(records, ends, strict=True)]
    )
    run = {} if stated is None else {"rounds": stated}
    told = replace(traces, origin=replace(traces.origin, run=run))
    assert (told.n_rounds, told.full_budget) == (columns, full)


def test_taking_questions_keeps_closed_book_rows_with_them() -> None:
    traces = sample()
    some = traces.take(np.array([True, False, True]))
    for kept in (some, traces.only_questions(each for each in ("c", "a", "never recorded"))):
        assert [(r.question.id, r.closed_book is not None) for r in kept.records()] == [
            *(("a", False), ("c", True))
        ]
        assert kept.n_rounds == 2
    assert traces.only_questions(["b"]).closed_book.num_rows == 0
    assert traces.only_questions([]).n_questions == 0


@settings(max_examples=examples(60))
@given(records=question_records())
def test_columns_say_what_the_records_say(records: list[QuestionRecord]) -> None:
    traces = to_trace_set(records)
    found = list(traces.records())
    assert [len(each.rounds) for each in found] == traces.last_rounds.tolist()
    names = sorted({name for each in found for r in each.rounds for name in r.signals})
    assert list(traces.signal_names) == names
    for name in names:
        values, stored = traces.stored_signal(name)
        for index, record in enumerate(found):
            for number in range(traces.n_rounds):
                signals = record.rounds[number].signals if number < len(record.rounds) else {}
                assert stored[index, number] == (name in signals)
                np.testing.assert_equal(values[index, number], signals.get(name, math.nan))
    for views, record in zip(traces.views(["samples"]), found, strict=True):
        assert [len(view.rounds) for view in views] == list(range(1, len(record.rounds) + 1))
        assert views[-1].current.answer == record.rounds[-1].answer
        assert [r.samples for r in views[-1].rounds] == [r.samples for r in record.rounds]
        assert all(r.tokens is None for r in views[-1].rounds)


def test_signals_of_sliced_chunks() -> None:
    """Arrow slices share buffers with what lies before them."""
    whole = to_trace_set(
        [make_record(f"q{n}", ["x"], signals=[{"s": n, f"only{n}": 1.0}]) for n in range(6)]
    )
    sliced = pa.concat_tables([whole.table.slice(1, 2), whole.table.slice(4, 2)])
    traces = TraceSet(table=sliced, closed_book=whole.closed_book)
    assert traces.signal_names == ("only1", "only2", "only4", "only5", "s")
    values, stored = traces.stored_signal("s")
    assert values.ravel().tolist() == [1.0, 2.0, 4.0, 5.0]
    assert stored.all()
    assert traces.stored_signal("only4")[1].ravel().tolist() == [False, False, True, False]


def test_a_sample_says_what_it_is_of() -> None:
    traces = sample()
    drawn = traces.sample(2, seed=7)
    assert drawn.question_ids == tuple(sorted(sampled_ids(["a", "b", "c"], 2, seed=7)))
    assert drawn.origin.source == "memory (a sample of 2 of 3 questions, seed 7)"
    assert set(drawn.closed_book.column("question_id").to_pylist()) <= set(drawn.question_ids)
    assert traces.sample(9, seed=7).question_ids == traces.question_ids


def test_it_is_shown_by_what_it_holds_and_a_near_split_is_not_drawn_anew() -> None:
    traces = to_trace_set([make_record(f"q{n}", ["a", "b"], split="eval") for n in range(2)])
    assert repr(traces) == "<TraceSet memory: questions 2, rounds 4, eval 2>"
    with pytest.raises(DataError, match=r"did you mean 'eval'\?$"):
        traces.only_split("evl")
    with pytest.raises(DataError, match="draw others with: suffice traces split"):
        traces.only_split("calibrate")


# --- which questions count as one -----------------------------------------------------------------
def traces_of(*texts: str | None, groups: Sequence[str | None] = ()) -> TraceSet:
    """A question of two rounds for each text, perhaps with groups."""
    named = [*groups, *[None] * (len(texts) - len(groups))]
    records = [make_record(f"q{number}", ["Oslo", "Oslo"]) for number in range(len(texts))]
    return to_trace_set(
        [
            replace(record, question=replace(record.question, text=text or "", group=group))
            for record, text, group in zip(records, texts, named, strict=True)
        ]
    )


@pytest.mark.parametrize(
    ("texts", "groups", "units"),
    [
        *(
            (("Who wrote Hamlet?", "Who wrote Lear?", same), [], [0, 1, 0])
            for same in ("Who wrote HAMLET?", " who  wrote\tHamlet", "Who wrote Hamlet ?!")
        ),
        (("What is C?", "What is C++?", "What is C#?", "q1-2", "q12"), [], [0, 1, 2, 3, 4]),
        (("", "Who?", " ?", None, "who"), [], [0, 1, 2, 3, 1]),  # without a text: by itself
        (
            ("Who?", "Who?", "When?", "Who?", "Who?"),
            ["anna", None, "anna", "", "bert"],
            [0, 1, 0, 1, 2],
        ),
        (("When?", "Who?"), ["who", None], [0, 1]),
    ],
)
def test_which_questions_count_as_one(
    texts: tuple[str | None, ...], groups: list[str | None], units: list[int]
) -> None:
    assert Measures(traces_of(*texts, groups=groups)).units.tolist() == units


def test_parts_number_their_own_units() -> None:
    measures = Measures(traces_of("a", "b", "b", "c", "a", "c"))
    assert measures.units.tolist() == [0, 1, 1, 2, 0, 2]
    some = np.array([False, True, True, True, False, True])
    assert measures.take(some).units.tolist() == [0, 0, 1, 1]
    assert measures.take(np.zeros(6, bool)).units.tolist() == []


@pytest.mark.parametrize("which", [np.ones(3, bool), np.ones((4, 1), bool)])
def test_what_chooses_no_questions_is_refused(which: NDArray[np.bool_]) -> None:
    measures = Measures(traces_of("a", "b", "c", "d"))
    for take in (measures.take, measures.traces.take):
        with pytest.raises(UsageError, match=r"\(4,\)"):
            take(which)

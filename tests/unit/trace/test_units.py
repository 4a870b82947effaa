"""Which questions count as one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import ArrayLike

from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.table import TraceSet


def traces_of(*texts: str | None, groups: list[str | None] | None = None) -> TraceSet:
    """A question of two rounds for each text, perhaps with groups."""
    records = [make_record(f"q{number}", ["Oslo", "Oslo"]) for number in range(len(texts))]
    records = [
        replace(record, question=replace(record.question, text=text or ""))
        for record, text in zip(records, texts, strict=True)
    ]
    traces = to_trace_set(records)
    if groups is None:
        return traces
    table = traces.table
    if "group" in table.column_names:
        table = table.drop_columns("group")
    column = pa.array([group for group in groups for _ in range(2)], pa.string())
    return replace(traces, table=table.append_column("group", column))


@pytest.mark.parametrize(
    "other",
    ["Who wrote HAMLET?", " who  wrote\tHamlet", "Who wrote Hamlet ?!", "Who wrote Hamlet..."],
)
def test_case_white_space_and_closing_punctuation_make_no_other_question(other: str) -> None:
    units = Measures(traces_of("Who wrote Hamlet?", "Who wrote Lear?", other)).units
    assert units.tolist() == [0, 1, 0]


def test_punctuation_within_a_text_tells_questions_apart() -> None:
    texts = ("What is C?", "What is C++?", "What is C#?", "question q1-2", "question q12")
    assert Measures(traces_of(*texts)).units.tolist() == [0, 1, 2, 3, 4]


def test_questions_without_a_text_are_units_of_their_own() -> None:
    assert Measures(traces_of("", "Who?", " ?", None, "who")).units.tolist() == [0, 1, 2, 3, 1]


def test_a_group_is_one_unit_whatever_its_questions_are() -> None:
    groups = ["anna", None, "anna", "", "bert", None]
    texts = ("Who?", "Who?", "When?", "Who?", "Who?", "When?")
    assert Measures(traces_of(*texts, groups=groups)).units.tolist() == [0, 1, 0, 1, 2, 3]


def test_a_text_is_no_group_of_that_name() -> None:
    groups = ["who", None]
    assert Measures(traces_of("When?", "Who?", groups=groups)).units.tolist() == [0, 1]


def test_parts_number_their_own_units() -> None:
    measures = Measures(traces_of("a", "b", "b", "c", "a", "c"))
    assert measures.units.tolist() == [0, 1, 1, 2, 0, 2]
    assert measures.take([1, 2, 3, 5]).units.tolist() == [0, 0, 1, 1]
    assert measures.by("agreement").units.tolist() == measures.units.tolist()
    assert measures.take([]).units.tolist() == []


def test_some_questions_are_taken_by_a_mask_or_by_their_numbers() -> None:
    measures = Measures(traces_of("a", "b", "c", "d"))
    numbers, mask = np.array([3, 1]), np.array([False, True, False, True])
    for which in (numbers, mask, [1, 3], numbers.astype(np.int8)):
        assert measures.take(which).traces.question_ids == ("q1", "q3")
        assert measures.traces.take(which).question_ids == ("q1", "q3")
    empty: list[ArrayLike] = [[], np.zeros(4, bool), np.array([], np.intp)]
    for none in empty:
        part = measures.take(none)
        assert part.traces.n_questions == 0
        assert part.scores().em.shape == (0, 0)
    assert measures.take(np.arange(4)) is measures


@pytest.mark.parametrize(
    "which",
    [
        np.ones(3, bool),
        np.ones((4, 1), bool),
        np.array([0, 4]),
        np.array([-1]),
        np.array([1, 1]),
        np.array([0.0, 1.0]),
        np.array(["q0"]),
        2,
        [[0], [1]],
    ],
)
def test_what_chooses_no_questions_is_refused(which: object) -> None:
    measures = Measures(traces_of("a", "b", "c", "d"))
    with pytest.raises(UsageError, match=r"\(4,\)"):
        measures.take(which)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"\(4,\)"):
        measures.traces.take(which)  # type: ignore[arg-type]

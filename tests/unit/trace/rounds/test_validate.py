"""Checks over columns find what building the records would refuse."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.errors import DataError
from suffice.trace.rounds.records import Round
from suffice.trace.rounds.schema import SCHEMA
from suffice.trace.rounds.validate import find_problems

Lists = list[list[int | None] | None]


def table(samples: list[list[str] | None] | None, clusters: Lists) -> pa.Table:
    rows = len(clusters)
    columns = {
        "question_id": [f"q{row}" for row in range(rows)],
        "round": [1] * rows,
        "question": [""] * rows,
        "answer": [""] * rows,
        "sample_clusters": clusters,
    }
    if samples is not None:
        columns["samples"] = samples
    return pa.table(
        {name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()}
    )


def refused(samples: list[str] | None, clusters: list[int | None] | None) -> str | None:
    """What building the round says of them."""
    given = None if clusters is None else tuple(-1 if each is None else each for each in clusters)
    try:
        Round(answer="", samples=samples, sample_clusters=given)  # type: ignore[arg-type]
    except DataError as error:
        return error.message
    return None


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(0, 4).map(lambda count: ["x"] * count),
            st.none() | st.lists(st.none() | st.integers(-1, 5), max_size=4),
        ),
        max_size=8,
    ),
    st.integers(0, 8),
    st.booleans(),
)
def test_clusters_that_do_not_fit_are_found_where_a_round_refuses_them(
    rows: list[tuple[list[str] | None, list[int | None] | None]], cut: int, sliced: bool
) -> None:
    whole = table([samples for samples, _ in rows], [clusters for _, clusters in rows])
    if sliced:  # as files are read: in chunks, and parts of larger ones
        whole = pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])
    found = {problem.position: problem for problem in find_problems(whole)}
    want = {row for row, each in enumerate(rows) if refused(*each) is not None}
    assert set(found) == want
    assert {problem.column for problem in found.values()} <= {"sample_clusters"}
    assert len(list(find_problems(whole))) == len(want)  # each row once
    for row in want:
        # a null is said as such, and a round knows it as -1
        said = str(refused(*rows[row])).replace("-1", "None").replace("(", "[")[:50]
        assert found[row].message.replace("-1", "None")[:50] == said


@pytest.mark.parametrize("samples", [None, [None, None]])
def test_clusters_without_samples(samples: list[list[str] | None] | None) -> None:
    problems = list(find_problems(table(samples, [[], [0]])))
    assert [(each.position, each.message) for each in problems] == [
        (1, "must have one number a sample, found 1 for 0 samples")
    ]

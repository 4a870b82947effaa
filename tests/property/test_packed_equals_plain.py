"""The packed evaluation of many rules against a loop over rules, questions and rounds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties import examples

from suffice.evaluation.choose.rule_stops import pack, stop_rounds_of


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.random.Generator, int, int, int, tuple[int, ...], int]:
    seed = draw(st.integers(0, 2**32 - 1))
    sizes = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    return (
        np.random.default_rng(seed),
        draw(st.integers(1, 140)),
        draw(st.integers(1, 6)),
        draw(st.integers(1, 5)),
        sizes,
        draw(st.integers(1, len(sizes))),
    )


@settings(max_examples=examples(60), deadline=None)
@given(problems())
def test_packed_equals_plain(
    problem: tuple[np.random.Generator, int, int, int, tuple[int, ...], int],
) -> None:
    generator, n_questions, n_rounds, n_conditions, sizes, votes = problem
    fires = generator.random((n_conditions, n_questions, n_rounds)) < 0.4
    last = generator.integers(1, n_rounds + 1, n_questions).astype(np.int16)
    conditions = generator.integers(0, n_conditions, (7, sum(sizes)))
    packed = pack(fires)
    stops = stop_rounds_of(packed, conditions, sizes, votes, last)
    for rule in range(7):
        expected = []
        for question in range(n_questions):
            stop = int(last[question])
            for t in range(int(last[question])):
                if _holds(fires[:, question, t], conditions[rule].tolist(), sizes, votes):
                    stop = t + 1
                    break
            expected.append(stop)
        assert stops[rule].tolist() == expected


def _holds(
    row: np.ndarray[tuple[int], np.dtype[np.bool_]],
    conditions: list[int],
    sizes: tuple[int, ...],
    votes: int,
) -> bool:
    held, position = 0, 0
    for size in sizes:
        held += all(row[each] for each in conditions[position : position + size])
        position += size
    return held >= votes

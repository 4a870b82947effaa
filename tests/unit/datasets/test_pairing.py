"""Results of tools find their calls, whatever ids a server gives."""

from __future__ import annotations

from typing import Any

import pytest

from suffice.datasets.pairing import Named, paired

SEARCH, CALC = "search", "calc"


@pytest.mark.parametrize(
    ("calls", "results", "places"),
    [
        ([("a", SEARCH), ("b", CALC)], [("b", None), ("a", None)], [1, 0]),
        ([("a", SEARCH), ("b", CALC)], [("b", SEARCH), ("a", CALC)], [1, 0]),  # the id says more
        ([(None, SEARCH), (None, CALC)], [(None, None), (None, None)], [0, 1]),
        ([("", SEARCH), ("", CALC)], [("", CALC), ("", SEARCH)], [1, 0]),
        ([("x", SEARCH), ("x", CALC)], [("x", None), ("x", None)], [0, 1]),
        ([("x", SEARCH), ("x", CALC)], [("x", CALC), ("x", SEARCH)], [1, 0]),
        ([("x", SEARCH), ("x", SEARCH)], [("x", SEARCH), ("x", SEARCH)], [0, 1]),
        ([("x", SEARCH), ("x", SEARCH), ("y", CALC)], [("y", None), ("x", None)], [2, 0]),
        ([("", SEARCH), ("", CALC)], [("", None), ("", SEARCH)], [1, 0]),  # a name goes first
        ([("", SEARCH), ("", CALC)], [("made-1", None), ("made-2", None)], [0, 1]),
        ([("a", SEARCH), ("b", CALC)], [(None, None), (None, None)], [0, 1]),
        ([("a", SEARCH), ("b", CALC)], [("b", None), ("", None)], [1, 0]),
        ([("a", SEARCH), ("b", CALC)], [("b", None)], [1]),
        ([("", SEARCH), ("", CALC)], [("", CALC)], [1]),
        ([("a", SEARCH)], [("a", None), ("other", None)], [0, None]),
        ([("", SEARCH)], [("", CALC)], [None]),
        ([("a", SEARCH), ("b", CALC)], [("a", None), ("a", None)], [0, 0]),
        ([("", SEARCH)], [("", None), ("", None)], [0, 0]),
        ([(0, SEARCH), (1, CALC)], [("1", None), ("0", None)], [1, 0]),
        ([(["a"], SEARCH), (" ", CALC)], [(["a"], None), (None, None)], [0, 1]),
        ([], [("a", SEARCH), (None, None)], [None, None]),
        ([("a", SEARCH)], [], []),
    ],
)
def test_a_result_belongs_to_a_call(
    calls: list[Named], results: list[Named], places: list[Any]
) -> None:
    assert paired(calls, results) == places

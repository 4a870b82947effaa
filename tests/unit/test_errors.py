"""What is told of a foreign error, and which name a slip was meant for."""

from __future__ import annotations

import pytest

from suffice.errors import did_you_mean, first_line, near_misses


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("cannot load\nTraceback: ...", "cannot load"),
        ("\n\n  too large \nmore", "too large"),
        ("", "KeyError"),
        (" \n\t", "KeyError"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_the_first_line_with_text(message: str, told: str) -> None:
    class KeyError(Exception):  # noqa: A001 - its name is told; Python's own quotes its text
        pass

    assert first_line(KeyError(message)) == told


@pytest.mark.parametrize(
    ("word", "meant"),
    [("splt", "split"), ("Gold-Answer", "gold_answers"), ("SPLIT", "split"), ("notes", None)],
)
def test_the_name_a_slip_was_meant_for(word: str, meant: str | None) -> None:
    near = near_misses(word, ["split", "gold_answers", "query"])
    assert near[:1] == ([] if meant is None else [meant])
    assert did_you_mean(word, ["split", "gold_answers"]) == (
        "" if meant is None else f"; did you mean {meant!r}?"
    )

"""What is told of a foreign error."""

from __future__ import annotations

import pytest

from suffice.errors import first_line


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

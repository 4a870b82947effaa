"""The house only shrinks: no room has more lines or modules than its row, and no row is slack."""

from __future__ import annotations

import pytest
from tools.sizes import budget, sizes

NOW, MOST = sizes(), budget()
_SLACK = 200  # lines that a room may lie below its row


@pytest.mark.parametrize("room", sorted(NOW))
def test_no_room_grows(room: str) -> None:
    lines, modules = NOW[room]
    most_lines, most_modules = MOST.get(room, (0, 0))
    assert lines <= most_lines, f"{room}: {lines} lines, at most {most_lines}"
    assert modules <= most_modules, f"{room}: {modules} modules, at most {most_modules}"
    assert most_lines - lines <= _SLACK, "it shrank: python tools/sizes.py --lower"


def test_every_row_is_a_room() -> None:
    assert set(MOST) == set(NOW)

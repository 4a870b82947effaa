"""Aligned plain-text tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap

WIDTH = 100


def titled(text: str) -> list[str]:
    """A table's title, wrapped."""
    return wrap(text, WIDTH)


def text_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1, gap: int = 2
) -> list[str]:
    """Aligned columns, the first ``left`` to the left; those empty throughout are left out."""
    grid = [list(head), *(list(row) for row in rows)]
    kept = [c for c in range(len(head)) if c == 0 or any(row[c] for row in grid[1:])]
    widths = [max(len(row[c]) for row in grid) for c in kept]
    lines = [
        (" " * gap)
        .join(
            row[c].ljust(width) if c < left else row[c].rjust(width)
            for c, width in zip(kept, widths, strict=True)
        )
        .rstrip()
        for row in grid
    ]
    return [lines[0], "-" * (sum(widths) + gap * (len(widths) - 1)), *lines[1:]]

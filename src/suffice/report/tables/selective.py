"""Selective prediction as plain-text tables."""

from __future__ import annotations

from collections.abc import Sequence

from suffice.replay.diagnose.selective import SelectiveResult, selective_tables


def selective_table(found: Sequence[SelectiveResult]) -> list[str]:
    """The lines of every table."""
    blocks = [table.text().split("\n") for table in selective_tables(found)]
    return [line for block in blocks for line in ("", *block)][1:]

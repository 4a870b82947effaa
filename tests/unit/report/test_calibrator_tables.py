"""The study of calibrators as plain text."""

from __future__ import annotations

from typing import Any

from suffice.results.formats import fraction, percent


def test_a_row_a_kind_in_both_tables(gathered: Any) -> None:
    study = gathered.parts["calibrators"]
    probabilities, rules = (table.text().splitlines() for table in study.tables())
    for each in study.results:
        line = next(row for row in probabilities if row.startswith(f"{each.kind} "))
        assert fraction(each.eval.brier.estimate) in line
        line = next(row for row in rules if row.startswith(f"{each.kind} "))
        assert percent(each.f1.estimate) in line
    assert study.rule in " ".join(rules)
    assert all(len(line) <= 100 for line in (*probabilities, *rules))

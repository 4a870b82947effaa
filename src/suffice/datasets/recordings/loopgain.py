"""LoopGain's benchmark files: runs over a fixed budget with the loop's error in every round."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suffice.datasets.files import Row, json_lines
from suffice.errors import DataError
from suffice.trace.rounds.records import Question, QuestionRecord, Round, Usage


def read_loopgain(path: Path) -> tuple[QuestionRecord, ...]:
    """Records of the condition with the largest fixed budget (B20), which nothing stopped.

    Only the last round has an answer. Signal ``error`` is the loop's own; the score is 1 - error where the
    file's errors lie in 0 to 1, and else 1 where the cell's target was reached and 0 before.
    """
    rows = list(json_lines(path))
    trials = [row for row in rows if not row.values.get("_header")]
    cell = next((row.values.get("cell") for row in rows if row.values.get("_header")), None)
    if not trials:
        raise DataError("holds no trial", file=str(path))
    target = cell.get("target_error") if isinstance(cell, dict) else None
    errors = [_errors(row, _budget(row)) for row in trials]
    shares = all(error <= 1.0 for history in errors for error in history)
    reached = float(target) if isinstance(target, int | float) else 0.0
    return tuple(
        QuestionRecord(
            question=Question(
                id=row.required("trial_id"),
                text=row.text("prompt", default=""),
                type=row.text("loop_type", default="") or None,
            ),
            rounds=tuple(
                Round(
                    answer=_output(row) if number == len(history) else None,
                    usage=Usage(llm_calls=1),
                    signals={"error": error},
                )
                for number, error in enumerate(history, start=1)
            ),
            scores={
                number: 1.0 - error if shares else float(error <= reached)
                for number, error in enumerate(history, start=1)
            },
        )
        for row, history in zip(trials, errors, strict=True)
    )


def _budget(row: Row) -> Mapping[str, Any]:
    """The condition with the largest budget."""
    conditions = row.values.get("conditions")
    named = conditions if isinstance(conditions, dict) else {}
    budgets = [name for name in named if re.fullmatch(r"B\d{1,4}", name)]
    budget = named[max(budgets, key=lambda name: int(name[1:]))] if budgets else None
    if not isinstance(budget, dict):
        found = ", ".join(map(repr, list(named or row.values)[:12])) or "nothing"
        raise row.error(
            f"is no trial of LoopGain's benchmark: no condition of a fixed budget (B5, B10, B20); it has "
            f"{found}; a table with a row per round is read by --format columns",
            "conditions",
        )
    return budget


def _errors(row: Row, budget: Mapping[str, Any]) -> list[float]:
    history = budget.get("error_history")
    if not isinstance(history, list) or not history:
        raise row.error(f"must be a list of numbers, found {history!r:.60}", "error_history")
    for error in history:
        if isinstance(error, bool) or not isinstance(error, int | float) or not error >= 0:
            raise row.error(
                f"an error must be a number of at least 0, found {error!r:.60}", "error_history"
            )
    return [float(error) for error in history]


def _output(row: Row) -> str | None:
    output = _budget(row).get("final_output")
    return output if output is None or isinstance(output, str) else str(output)

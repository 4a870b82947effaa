"""Between rows of a plan trace and records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from suffice.errors import DataError
from suffice.trace.convert import (
    USAGE_COLUMNS,
    passage_row,
    passages_from_rows,
    signal_pairs,
    strings,
    usage_from_row,
)
from suffice.trace.plan import (
    Candidate,
    ConstraintDecision,
    PlanGold,
    PlanKey,
    PlanOutcome,
    PlanRecord,
    PlanStep,
    PlanTask,
)
from suffice.trace.plan_schema import OUTCOME_PREFIX, PLANS
from suffice.trace.records import Usage
from suffice.trace.writer import RowSet

__all__ = [
    "PLAN_ROWS",
    "RUN_COLUMNS",
    "RUN_KEY_COLUMNS",
    "gold_from_row",
    "outcome_from_row",
    "plan_to_rows",
    "step_from_row",
    "task_from_row",
]

RUN_KEY_COLUMNS = ("task_id", "agent", "retriever", "seed")
# the same in every row of a run
RUN_COLUMNS = ("goal", "context", "total_steps", "gold_constraints", "gold_passage_ids")
_STEP_COLUMNS = (
    *("action", "reason", "k", "query", "chosen", "dropped", "sampled_again", "blocked"),
    *("question", "reply", "verdict"),
)
_OUTCOME_COLUMNS = (
    *("plan", "response", "attempts", "parsed"),
    *("parse_failure", "ended", "semantic"),
)


def _key_row(key: PlanKey) -> dict[str, Any]:
    return dict(zip(RUN_KEY_COLUMNS, key, strict=True))


def _step_row(step: PlanStep) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(step, name) for name in _STEP_COLUMNS}
    row.update({name: getattr(step.usage, name) for name in USAGE_COLUMNS})
    row["step"] = step.number
    for name in ("candidates", "redrawn"):
        row[name] = [{"text": each.text, "response": each.response} for each in getattr(step, name)]
    row["signals"] = signal_pairs(step.values)
    row["passages"] = [passage_row(passage) for passage in step.passages]
    return row


def _outcome_row(outcome: PlanOutcome) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(outcome, name) for name in _OUTCOME_COLUMNS}
    row.update({OUTCOME_PREFIX + name: getattr(outcome.usage, name) for name in USAGE_COLUMNS})
    row["semantic_verdict"] = outcome.verdict
    row["constraints"] = list(outcome.constraints)
    row["decisions"] = [
        {"constraint": each.constraint, "enforced": each.enforced, "reason": each.reason}
        for each in outcome.decisions
    ]
    return row


def plan_to_rows(record: PlanRecord) -> list[dict[str, Any]]:
    """Rows of one run in step order, keyed by column; the outcome stands in the last."""
    task, gold = record.task, record.gold
    shared = {
        **_key_row(record.key),
        "goal": task.goal,
        "context": task.context,
        "total_steps": task.total_steps,
        "gold_constraints": None if gold is None else list(gold.constraints),
        "gold_passage_ids": None if gold is None else list(gold.passage_ids),
    }
    rows = [shared | _step_row(step) for step in record.steps] or [shared | {"step": 0}]
    rows[-1] |= _outcome_row(record.outcome)
    return rows


PLAN_ROWS = RowSet(
    schema=PLANS,
    rows=plan_to_rows,
    key=RUN_KEY_COLUMNS,
    place=lambda row: f"task {row['task_id']!r}, agent {row['agent']!r}, step {row['step']}",
)


def _items(row: Mapping[str, Any], column: str) -> Sequence[Mapping[str, Any]]:
    """The structs of a cell."""
    found: Sequence[Mapping[str, Any] | None] = row.get(column) or ()
    if None in found:
        raise DataError("a null among its items", column=column)
    return found  # type: ignore[return-value]


def _given(row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """Those that are not null; for the others a record has its own default."""
    return {name: row[name] for name in columns if row.get(name) is not None}


def step_from_row(row: Mapping[str, Any]) -> PlanStep:
    """The step of one row; columns the row lacks read as null.

    Raises
    ------
    DataError
        Naming the column whose value cannot be.
    """
    if row.get("action") is None:
        raise DataError("null where a value is required", column="action")
    values = {
        name: value
        for name, value in row.get("signals") or ()
        if value is not None and not math.isnan(value)
    }
    return PlanStep(
        number=row["step"],
        candidates=_candidates(row, "candidates"),
        redrawn=_candidates(row, "redrawn"),
        values=values,
        passages=passages_from_rows(_items(row, "passages")) or (),
        usage=usage_from_row(row),
        **_given(row, _STEP_COLUMNS),
    )


def _candidates(row: Mapping[str, Any], column: str) -> tuple[Candidate, ...]:
    return tuple(Candidate(item["text"] or "", item["response"]) for item in _items(row, column))


def outcome_from_row(row: Mapping[str, Any]) -> PlanOutcome:
    """The outcome in a run's last row.

    Raises
    ------
    DataError
        Naming the column whose value cannot be; the outcome may be missing altogether.
    """
    for name in ("ended", "plan"):
        if row.get(name) is None:
            raise DataError("null in the last row of a run, which holds its outcome", column=name)
    return PlanOutcome(
        constraints=strings(row.get("constraints")) or (),
        decisions=tuple(_decision(item) for item in _items(row, "decisions")),
        usage=_outcome_usage(row),
        verdict=row.get("semantic_verdict"),
        **_given(row, _OUTCOME_COLUMNS),
    )


def _decision(item: Mapping[str, Any]) -> ConstraintDecision:
    return ConstraintDecision(
        constraint=item["constraint"] or "",
        enforced=item["enforced"],
        reason=item["reason"] or "",
    )


def _outcome_usage(row: Mapping[str, Any]) -> Usage:
    try:
        return usage_from_row({name: row.get(OUTCOME_PREFIX + name) for name in USAGE_COLUMNS})
    except DataError as error:
        raise DataError(error.message, column=f"{OUTCOME_PREFIX}{error.column}") from error


def task_from_row(row: Mapping[str, Any]) -> PlanTask:
    """The task of any row of a run."""
    return PlanTask(
        id=row["task_id"],
        goal=row["goal"],
        context=row.get("context") or "",
        total_steps=row["total_steps"],
    )


def gold_from_row(row: Mapping[str, Any]) -> PlanGold | None:
    """The gold of any row of a run; ``None`` when it is unlabelled."""
    constraints, ids = row.get("gold_constraints"), row.get("gold_passage_ids")
    if constraints is None and ids is None:
        return None
    return PlanGold(constraints=strings(constraints) or (), passage_ids=strings(ids) or ())

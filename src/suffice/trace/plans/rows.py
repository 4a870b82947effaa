"""Between rows of a plan trace and records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from suffice.errors import DataError
from suffice.trace.plans.records import (
    Candidate,
    ConstraintDecision,
    PlanGold,
    PlanKey,
    PlanOutcome,
    PlanRecord,
    PlanStep,
    PlanTask,
)
from suffice.trace.rounds.convert import (
    USAGE_COLUMNS,
    passage_row,
    passages_from_rows,
    signal_pairs,
    strings,
    usage_from_row,
)
from suffice.trace.rounds.records import Usage
from suffice.trace.rounds.schema import COLUMNS, PASSAGE, TableSchema, TraceColumn
from suffice.trace.writer import RowSet

PLAN_SCHEMA_VERSION = 1
PLAN_SCHEMA_KEY = b"suffice.plan_schema"
# of the columns that say what the final generation cost
OUTCOME_PREFIX = "outcome_"

_TEXTS = pa.list_(pa.string())
_CANDIDATE = pa.struct([("text", pa.string()), ("response", pa.string())])
_DECISION = pa.struct(
    [("constraint", pa.string()), ("enforced", pa.bool_()), ("reason", pa.string())]
)

_RUN = (
    TraceColumn(
        "task_id", pa.string(), True, "task key; with agent, retriever and seed the run's key"
    ),
    TraceColumn("agent", pa.string(), True, "which agent ran"),
    TraceColumn("retriever", pa.string(), False, "which retriever it asked; null: none"),
    TraceColumn("seed", pa.int64(), True, "of its random numbers"),
    TraceColumn("step", pa.int16(), True, "1-based; 0 is the only row of a run that made no step"),
    TraceColumn("goal", pa.string(), True, "what the plan is to reach"),
    TraceColumn("context", pa.string(), False, "what is known of the situation"),
    TraceColumn("total_steps", pa.int16(), True, "steps a plan is expected to take"),
    TraceColumn("gold_constraints", _TEXTS, False, "hidden constraint tokens; null: unlabelled"),
    TraceColumn("gold_passage_ids", _TEXTS, False, "the documents that carry them"),
)
_STEP = (
    TraceColumn(
        "action", pa.string(), True, "EXECUTE, RETRIEVE, REPLAN, ASK or STOP; null at step 0"
    ),
    TraceColumn("reason", pa.string(), False, "why this action"),
    TraceColumn("candidates", pa.list_(_CANDIDATE), False, "next steps the model proposed"),
    TraceColumn(
        "signals", pa.map_(pa.string(), pa.float64()), False, "the step's values by name, finite"
    ),
    TraceColumn("k", pa.int16(), False, "passages asked for; 0: no retrieval"),
    TraceColumn("query", pa.string(), False, "what was sent to the retriever at this step"),
    TraceColumn(
        "passages", pa.list_(PASSAGE), False, "passages retrieved at this step, repeats included"
    ),
    TraceColumn("redrawn", pa.list_(_CANDIDATE), False, "next steps drawn after the decision"),
    TraceColumn("chosen", pa.string(), False, "the step appended to the plan"),
    TraceColumn("dropped", pa.string(), False, "the step a REPLAN took out"),
    TraceColumn("sampled_again", pa.int16(), False, "empty candidates that were drawn again"),
    TraceColumn("blocked", pa.string(), False, "budget or cool-down: why no retrieval was made"),
    TraceColumn("question", pa.string(), False, "what an ASK asked"),
    TraceColumn("reply", pa.string(), False, "what the user answered"),
    TraceColumn("verdict", pa.string(), False, "a model's raw word on whether it needs evidence"),
)
# one cost means the same in a round and in a step
_COSTS = tuple(
    each
    for each in COLUMNS
    if each.type in (pa.int16(), pa.int32(), pa.float32())
    and each.name not in ("round", "verbalized_confidence")
)
_OF_A_STEP = {
    "llm_calls": "calls to the model at this step, one a candidate",
    "prompt_tokens": "prompt tokens of those calls",
    "completion_tokens": "generated tokens of those calls",
    "latency_s": "wall seconds of the step",
}
_STEP_COSTS = tuple(
    TraceColumn(each.name, each.type, False, _OF_A_STEP.get(each.name, each.meaning))
    for each in _COSTS
)
_OUTCOME = (
    TraceColumn(
        "plan", pa.string(), True, "the final plan; may be empty; null before the last step"
    ),
    TraceColumn("constraints", _TEXTS, False, "constraints the agent names"),
    TraceColumn("decisions", pa.list_(_DECISION), False, "what it does about them"),
    TraceColumn("response", pa.string(), False, "the raw generation"),
    TraceColumn("attempts", pa.int16(), False, "how often it was asked for"),
    TraceColumn("parsed", pa.string(), False, "json, repaired or salvaged; null: unreadable"),
    TraceColumn("parse_failure", pa.string(), False, "why it could not be parsed"),
    TraceColumn(
        "ended", pa.string(), True, "complete, stop or max-steps; null before the last step"
    ),
    TraceColumn("semantic", pa.bool_(), False, "a judge's verdict on the plan; null: not judged"),
    TraceColumn("semantic_verdict", pa.string(), False, "what the judge said"),
)
_OUTCOME_COSTS = tuple(
    TraceColumn(
        OUTCOME_PREFIX + each.name, each.type, False, f"`{each.name}` of the final generation alone"
    )
    for each in _COSTS
)
PLAN_COLUMNS: tuple[TraceColumn, ...] = (*_RUN, *_STEP, *_STEP_COSTS, *_OUTCOME, *_OUTCOME_COSTS)
PLANS = TableSchema(
    name="plan trace",
    rows="one row per run and step",
    reader="suffice.read_plans",
    key=PLAN_SCHEMA_KEY,
    version=PLAN_SCHEMA_VERSION,
    columns=PLAN_COLUMNS,
)


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
    key_of=lambda record: record.key,
    place=lambda row: f"task {row['task_id']!r}, agent {row['agent']!r}, step {row['step']}",
    noun="run",
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

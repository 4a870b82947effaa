"""The plan trace's schema, version 1: one row per run and step; between its rows and records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from suffice.trace.parquet import RowSet
from suffice.trace.plans.records import (
    Candidate,
    ConstraintDecision,
    PlanGold,
    PlanOutcome,
    PlanRecord,
    PlanStep,
    PlanTask,
)
from suffice.trace.rounds.schema import PASSAGES, USAGE_COLUMNS
from suffice.trace.schema import (
    BOOL,
    INT16,
    INT64,
    SIGNALS,
    TEXT,
    TEXT_OR_NONE,
    TEXTS,
    Column,
    TableSchema,
    columns_of,
    sequence_of,
    to_cells,
)

PLAN_SCHEMA_VERSION = 1
PLAN_SCHEMA_KEY = b"suffice.plan_schema"
# of the columns that say what the final generation cost
OUTCOME_PREFIX = "outcome_"


def _defined(pairs: Sequence[tuple[str, float | None]]) -> dict[str, float]:
    return {name: value for name, value in pairs if value is not None and not math.isnan(value)}


_CANDIDATES = sequence_of(Candidate, text=TEXT_OR_NONE, response=TEXT)
_DECISIONS = sequence_of(
    ConstraintDecision, constraint=TEXT_OR_NONE, enforced=BOOL, reason=TEXT_OR_NONE
)
_VALUES = replace(SIGNALS, read=_defined)

_RUN = (
    Column(
        PlanTask,
        "task_id",
        TEXT,
        "task key; with agent, retriever and seed the run's key",
        required=True,
        field="id",
    ),
    Column(PlanRecord, "agent", TEXT, "which agent ran", required=True),
    Column(PlanRecord, "retriever", TEXT, "which retriever it asked; null: none"),
    Column(PlanRecord, "seed", INT64, "of its random numbers", required=True),
    Column(
        PlanStep,
        "step",
        INT16,
        "1-based; 0 is the only row of a run that made no step",
        required=True,
        field="number",
    ),
    Column(PlanTask, "goal", TEXT, "what the plan is to reach", required=True),
    Column(PlanTask, "context", TEXT, "what is known of the situation"),
    Column(PlanTask, "total_steps", INT16, "steps a plan is expected to take", required=True),
    Column(
        PlanGold,
        "gold_constraints",
        TEXTS,
        "hidden constraint tokens; null: unlabelled",
        field="constraints",
    ),
    Column(
        PlanGold, "gold_passage_ids", TEXTS, "the documents that carry them", field="passage_ids"
    ),
)
_STEP = (
    Column(
        PlanStep,
        "action",
        TEXT,
        "EXECUTE, RETRIEVE, REPLAN, ASK or STOP; null at step 0",
        required=True,
    ),
    Column(PlanStep, "reason", TEXT, "why this action"),
    Column(PlanStep, "candidates", _CANDIDATES, "next steps the model proposed"),
    Column(PlanStep, "signals", _VALUES, "the step's values by name, finite", field="values"),
    Column(PlanStep, "k", INT16, "passages asked for; 0: no retrieval"),
    Column(PlanStep, "query", TEXT, "what was sent to the retriever at this step"),
    Column(PlanStep, "passages", PASSAGES, "passages retrieved at this step, repeats included"),
    Column(PlanStep, "redrawn", _CANDIDATES, "next steps drawn after the decision"),
    Column(PlanStep, "chosen", TEXT, "the step appended to the plan"),
    Column(PlanStep, "dropped", TEXT, "the step a REPLAN took out"),
    Column(PlanStep, "sampled_again", INT16, "empty candidates that were drawn again"),
    Column(PlanStep, "blocked", TEXT, "budget or cool-down: why no retrieval was made"),
    Column(PlanStep, "question", TEXT, "what an ASK asked"),
    Column(PlanStep, "reply", TEXT, "what the user answered"),
    Column(PlanStep, "verdict", TEXT, "a model's raw word on whether it needs evidence"),
)
_OF_A_STEP = {
    "llm_calls": "calls to the model at this step, one a candidate",
    "prompt_tokens": "prompt tokens of those calls",
    "completion_tokens": "generated tokens of those calls",
    "latency_s": "wall seconds of the step",
}
# one cost means the same in a round and in a step
STEP_COSTS = tuple(
    replace(column, meaning=_OF_A_STEP.get(column.name, column.meaning)) for column in USAGE_COLUMNS
)
OUTCOME_COLUMNS = (
    Column(
        PlanOutcome,
        "plan",
        TEXT,
        "the final plan; may be empty; null before the last step",
        required=True,
    ),
    Column(PlanOutcome, "constraints", TEXTS, "constraints the agent names"),
    Column(PlanOutcome, "decisions", _DECISIONS, "what it does about them"),
    Column(PlanOutcome, "response", TEXT, "the raw generation"),
    Column(PlanOutcome, "attempts", INT16, "how often it was asked for"),
    Column(PlanOutcome, "parsed", TEXT, "json, repaired or salvaged; null: unreadable"),
    Column(PlanOutcome, "parse_failure", TEXT, "why it could not be parsed"),
    Column(
        PlanOutcome,
        "ended",
        TEXT,
        "complete, stop or max-steps; null before the last step",
        required=True,
    ),
    Column(PlanOutcome, "semantic", BOOL, "a judge's verdict on the plan; null: not judged"),
    Column(PlanOutcome, "semantic_verdict", TEXT, "what the judge said", field="verdict"),
)
OUTCOME_COSTS = tuple(
    replace(
        column,
        name=OUTCOME_PREFIX + column.name,
        field=column.name,
        meaning=f"`{column.name}` of the final generation alone",
    )
    for column in USAGE_COLUMNS
)
PLAN_COLUMNS: tuple[Column, ...] = (*_RUN, *_STEP, *STEP_COSTS, *OUTCOME_COLUMNS, *OUTCOME_COSTS)
PLANS = TableSchema(
    name="plan trace",
    rows="one row per run and step",
    reader="suffice.read_plans",
    key=PLAN_SCHEMA_KEY,
    version=PLAN_SCHEMA_VERSION,
    columns=PLAN_COLUMNS,
)

RUN_KEY_COLUMNS = ("task_id", "agent", "retriever", "seed")
# without these in every row a run cannot be told
NEVER_NULL = tuple(column.name for column in _RUN if column.required)
# the same in every row of a run
RUN_COLUMNS = tuple(column.name for column in _RUN if column.name not in (*RUN_KEY_COLUMNS, "step"))
TASK_COLUMNS = columns_of(PlanTask, PLAN_COLUMNS)
_RECORD_COLUMNS = columns_of(PlanRecord, PLAN_COLUMNS)
GOLD_COLUMNS = columns_of(PlanGold, PLAN_COLUMNS)
STEP_COLUMNS = columns_of(PlanStep, PLAN_COLUMNS)


def plan_to_rows(record: PlanRecord) -> list[dict[str, Any]]:
    """Rows of one run in step order, keyed by column; the outcome stands in the last."""
    shared = to_cells(record.task, TASK_COLUMNS) | to_cells(record, _RECORD_COLUMNS)
    if record.gold is not None:
        shared |= to_cells(record.gold, GOLD_COLUMNS)
    rows = [
        shared | to_cells(step, STEP_COLUMNS) | to_cells(step.usage, STEP_COSTS)
        for step in record.steps
    ] or [shared | {"step": 0}]
    outcome = record.outcome
    rows[-1] |= to_cells(outcome, OUTCOME_COLUMNS) | to_cells(outcome.usage, OUTCOME_COSTS)
    return rows


PLAN_ROWS = RowSet(
    schema=PLANS,
    rows=plan_to_rows,
    key=RUN_KEY_COLUMNS,
    key_of=lambda record: record.key,
)

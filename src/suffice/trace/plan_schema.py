"""The plan trace's schema, version 1: one row per run and step."""

from __future__ import annotations

import pyarrow as pa

from suffice.trace.schema import COLUMNS, PASSAGE, Column, TableSchema

__all__ = ["OUTCOME_PREFIX", "PLANS", "PLAN_COLUMNS", "PLAN_SCHEMA_KEY", "PLAN_SCHEMA_VERSION"]

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
    Column("task_id", pa.string(), True, "task key; with agent, retriever and seed the run's key"),
    Column("agent", pa.string(), True, "which agent ran"),
    Column("retriever", pa.string(), False, "which retriever it asked; null: none"),
    Column("seed", pa.int64(), True, "of its random numbers"),
    Column("step", pa.int16(), True, "1-based; 0 is the only row of a run that made no step"),
    Column("goal", pa.string(), True, "what the plan is to reach"),
    Column("context", pa.string(), False, "what is known of the situation"),
    Column("total_steps", pa.int16(), True, "steps a plan is expected to take"),
    Column("gold_constraints", _TEXTS, False, "hidden constraint tokens; null: unlabelled"),
    Column("gold_passage_ids", _TEXTS, False, "the documents that carry them"),
)
_STEP = (
    Column("action", pa.string(), True, "EXECUTE, RETRIEVE, REPLAN, ASK or STOP; null at step 0"),
    Column("reason", pa.string(), False, "why this action"),
    Column("candidates", pa.list_(_CANDIDATE), False, "next steps the model proposed"),
    Column(
        "signals", pa.map_(pa.string(), pa.float64()), False, "the step's values by name, finite"
    ),
    Column("k", pa.int16(), False, "passages asked for; 0: no retrieval"),
    Column("query", pa.string(), False, "what was sent to the retriever at this step"),
    Column(
        "passages", pa.list_(PASSAGE), False, "passages retrieved at this step, repeats included"
    ),
    Column("redrawn", pa.list_(_CANDIDATE), False, "next steps drawn after the decision"),
    Column("chosen", pa.string(), False, "the step appended to the plan"),
    Column("dropped", pa.string(), False, "the step a REPLAN took out"),
    Column("sampled_again", pa.int16(), False, "empty candidates that were drawn again"),
    Column("blocked", pa.string(), False, "budget or cool-down: why no retrieval was made"),
    Column("question", pa.string(), False, "what an ASK asked"),
    Column("reply", pa.string(), False, "what the user answered"),
    Column("verdict", pa.string(), False, "a model's raw word on whether it needs evidence"),
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
    Column(each.name, each.type, False, _OF_A_STEP.get(each.name, each.meaning)) for each in _COSTS
)
_OUTCOME = (
    Column("plan", pa.string(), True, "the final plan; may be empty; null before the last step"),
    Column("constraints", _TEXTS, False, "constraints the agent names"),
    Column("decisions", pa.list_(_DECISION), False, "what it does about them"),
    Column("response", pa.string(), False, "the raw generation"),
    Column("attempts", pa.int16(), False, "how often it was asked for"),
    Column("parsed", pa.string(), False, "json, repaired or salvaged; null: unreadable"),
    Column("parse_failure", pa.string(), False, "why it could not be parsed"),
    Column("ended", pa.string(), True, "complete, stop or max-steps; null before the last step"),
    Column("semantic", pa.bool_(), False, "a judge's verdict on the plan; null: not judged"),
    Column("semantic_verdict", pa.string(), False, "what the judge said"),
)
_OUTCOME_COSTS = tuple(
    Column(
        OUTCOME_PREFIX + each.name, each.type, False, f"`{each.name}` of the final generation alone"
    )
    for each in _COSTS
)
PLAN_COLUMNS: tuple[Column, ...] = (*_RUN, *_STEP, *_STEP_COSTS, *_OUTCOME, *_OUTCOME_COSTS)
PLANS = TableSchema(
    name="plan trace",
    rows="one row per run and step",
    reader="suffice.trace.plan_file.read_plans",
    key=PLAN_SCHEMA_KEY,
    version=PLAN_SCHEMA_VERSION,
    columns=PLAN_COLUMNS,
)

"""The trace schema, version 1: one row per question and round."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

__all__ = ["COLUMNS", "REQUIRED", "RUN_KEY", "SCHEMA", "SCHEMA_KEY", "SCHEMA_VERSION", "Column"]

SCHEMA_VERSION = 1
SCHEMA_KEY = b"suffice.schema"
RUN_KEY = b"suffice.run"

_PASSAGE = pa.struct(
    [
        ("id", pa.string()),
        ("title", pa.string()),
        ("text", pa.string()),
        ("score", pa.float32()),
        ("rerank_score", pa.float32()),
    ]
)
_TOP = pa.struct([("token", pa.string()), ("logprob", pa.float32())])
_TOKEN = pa.struct([("token", pa.string()), ("logprob", pa.float32()), ("top", pa.list_(_TOP))])


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the schema."""

    name: str
    type: pa.DataType
    required: bool
    meaning: str


COLUMNS: tuple[Column, ...] = (
    Column("question_id", pa.string(), True, "unique question key"),
    Column("round", pa.int16(), True, "1-based; 0 is the closed-book answer"),
    Column("question", pa.string(), True, "the question's text; may be empty"),
    Column("gold_answers", pa.list_(pa.string()), False, "accepted answers; none: unlabelled"),
    Column("gold_passage_ids", pa.list_(pa.string()), False, "supporting passages"),
    Column("question_type", pa.string(), False, "for example bridge or 2hop"),
    Column("split", pa.string(), False, "tune, eval or a name of the user's"),
    Column("query", pa.string(), False, "what was sent to the retriever this round"),
    Column("action", pa.string(), False, "what the agent generated to choose the query"),
    Column("passages", pa.list_(_PASSAGE), False, "passages added this round, in rank order"),
    Column("answer", pa.string(), True, "the answer if the loop stopped here"),
    Column("response", pa.string(), False, "the raw generation"),
    Column("tokens", pa.list_(_TOKEN), False, "generated tokens with top alternatives"),
    Column("samples", pa.list_(pa.string()), False, "stochastic answers, parsed"),
    Column("sample_clusters", pa.list_(pa.int16()), False, "which samples mean the same"),
    Column("verbalized_confidence", pa.float32(), False, "the model's own 1-5"),
    Column("intermediate_answer", pa.string(), False, "answer to the round's query"),
    Column(
        "llm_calls", pa.int16(), False, "answering calls, samples and an agent's calls included"
    ),
    Column("sample_calls", pa.int16(), False, "of which samples"),
    Column("judge_calls", pa.int16(), False, "calls to a judge"),
    Column("rerank_calls", pa.int16(), False, "calls to a reranker"),
    Column("retrievals", pa.int16(), False, "queries sent to the retriever"),
    Column("candidate_scores", pa.list_(pa.float32()), False, "scores of all that was retrieved"),
    Column("parse_failure", pa.string(), False, "why no answer could be parsed"),
    Column("prompt_tokens", pa.int32(), False, "prompt tokens of the answering call"),
    Column("cached_tokens", pa.int32(), False, "of which the server reused"),
    Column("completion_tokens", pa.int32(), False, "generated tokens of the answering call"),
    Column("sample_prompt_tokens", pa.int32(), False, "prompt tokens of the sample calls"),
    Column("sample_cached_tokens", pa.int32(), False, "of which the server reused"),
    Column("sample_completion_tokens", pa.int32(), False, "generated tokens of the samples"),
    Column("judge_prompt_tokens", pa.int32(), False, "prompt tokens of the judge calls"),
    Column("judge_cached_tokens", pa.int32(), False, "of which the server reused"),
    Column("judge_completion_tokens", pa.int32(), False, "generated tokens of the judge calls"),
    Column("latency_s", pa.float32(), False, "wall seconds of the round"),
    Column("signals", pa.map_(pa.string(), pa.float64()), False, "per-round values by name"),
)
REQUIRED = tuple(column.name for column in COLUMNS if column.required)
SCHEMA = pa.schema([(column.name, column.type) for column in COLUMNS])

"""The trace schema, version 1: one row per question and round."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 1
SCHEMA_KEY = b"suffice.schema"
RUN_KEY = b"suffice.run"

PASSAGE = pa.struct(
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
class TraceColumn:
    """One column of the schema."""

    name: str
    type: pa.DataType
    required: bool
    meaning: str


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One kind of trace file: its columns, and what its metadata says.

    Parameters
    ----------
    name
        What such a file is called in messages.
    rows
        What a row is.
    reader
        The function that reads it.
    key
        Where the metadata states the version.
    version
        The newest version.
    columns
        Its columns.
    """

    name: str
    rows: str
    reader: str
    key: bytes
    version: int
    columns: tuple[TraceColumn, ...]

    @property
    def required(self) -> tuple[str, ...]:
        """Columns every file has."""
        return tuple(column.name for column in self.columns if column.required)

    @property
    def arrow(self) -> pa.Schema:
        """The columns as Arrow has them, without metadata."""
        return pa.schema([(column.name, column.type) for column in self.columns])


COLUMNS: tuple[TraceColumn, ...] = (
    TraceColumn("question_id", pa.string(), True, "unique question key"),
    TraceColumn("round", pa.int16(), True, "1-based; 0 is the closed-book answer"),
    TraceColumn("question", pa.string(), True, "the question's text; may be empty"),
    TraceColumn("gold_answers", pa.list_(pa.string()), False, "accepted answers; none: unlabelled"),
    TraceColumn("gold_passage_ids", pa.list_(pa.string()), False, "supporting passages"),
    TraceColumn("question_type", pa.string(), False, "for example bridge or 2hop"),
    TraceColumn("split", pa.string(), False, "tune, eval or a name of the user's"),
    TraceColumn("query", pa.string(), False, "what was sent to the retriever this round"),
    TraceColumn("action", pa.string(), False, "what the agent generated to choose the query"),
    TraceColumn("passages", pa.list_(PASSAGE), False, "passages added this round, in rank order"),
    TraceColumn("answer", pa.string(), True, "the answer if the loop stopped here"),
    TraceColumn("response", pa.string(), False, "the raw generation"),
    TraceColumn("tokens", pa.list_(_TOKEN), False, "generated tokens with top alternatives"),
    TraceColumn("samples", pa.list_(pa.string()), False, "stochastic answers, parsed"),
    TraceColumn("sample_clusters", pa.list_(pa.int16()), False, "which samples mean the same"),
    TraceColumn("verbalized_confidence", pa.float32(), False, "the model's own 1-5"),
    TraceColumn("intermediate_answer", pa.string(), False, "answer to the round's query"),
    TraceColumn(
        "llm_calls", pa.int16(), False, "answering calls, samples and an agent's calls included"
    ),
    TraceColumn("sample_calls", pa.int16(), False, "of which samples"),
    TraceColumn("judge_calls", pa.int16(), False, "calls to a judge"),
    TraceColumn("rerank_calls", pa.int16(), False, "calls to a reranker"),
    TraceColumn("retrievals", pa.int16(), False, "queries sent to the retriever"),
    TraceColumn(
        "candidate_scores", pa.list_(pa.float32()), False, "scores of all that was retrieved"
    ),
    TraceColumn("parse_failure", pa.string(), False, "why no answer could be parsed"),
    TraceColumn("prompt_tokens", pa.int32(), False, "prompt tokens of the answering call"),
    TraceColumn("cached_tokens", pa.int32(), False, "of which the server reused"),
    TraceColumn("completion_tokens", pa.int32(), False, "generated tokens of the answering call"),
    TraceColumn("sample_prompt_tokens", pa.int32(), False, "prompt tokens of the sample calls"),
    TraceColumn("sample_cached_tokens", pa.int32(), False, "of which the server reused"),
    TraceColumn("sample_completion_tokens", pa.int32(), False, "generated tokens of the samples"),
    TraceColumn("judge_prompt_tokens", pa.int32(), False, "prompt tokens of the judge calls"),
    TraceColumn("judge_cached_tokens", pa.int32(), False, "of which the server reused"),
    TraceColumn(
        "judge_completion_tokens", pa.int32(), False, "generated tokens of the judge calls"
    ),
    TraceColumn("latency_s", pa.float32(), False, "wall seconds of the round"),
    TraceColumn("signals", pa.map_(pa.string(), pa.float64()), False, "per-round values by name"),
)
QUESTIONS = TableSchema(
    name="trace",
    rows="one row per question and round",
    reader="suffice.read_traces",
    key=SCHEMA_KEY,
    version=SCHEMA_VERSION,
    columns=COLUMNS,
)
REQUIRED = QUESTIONS.required
SCHEMA = QUESTIONS.arrow

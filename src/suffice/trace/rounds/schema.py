"""The trace schema, version 2, one row per question and round, and conversion to records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from suffice.errors import DataError, UsageError
from suffice.trace.parquet import (
    BOOL,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    SIGNALS,
    TEXT,
    TIME,
    Column,
    RowSet,
    TableSchema,
    columns_of,
    from_cells,
    to_cells,
)
from suffice.trace.rounds.records import Gold, Question, QuestionRecord, Round, Usage

SCHEMA_VERSION = 2
SCHEMA_KEY = b"suffice.schema"

_SCORED = {"score": FLOAT32, "rerank_score": FLOAT32}
PASSAGES = pa.list_(pa.struct({"id": TEXT, "title": TEXT, "text": TEXT, **_SCORED}))
_REFOUND = pa.list_(pa.struct({"id": TEXT, **_SCORED}))
_TOP = pa.list_(pa.struct({"token": TEXT, "logprob": FLOAT32}))
_TOKENS = pa.list_(pa.struct({"token": TEXT, "logprob": FLOAT32, "top": _TOP}))
_TEXTS, _FLOATS = pa.list_(TEXT), pa.list_(FLOAT32)

COLUMNS: tuple[Column, ...] = (
    Column(Question, "question_id", TEXT, "unique question key", required=True, field="id"),
    Column(QuestionRecord, "round", INT16, "1-based; 0 is the closed-book answer", required=True),
    Column(
        Question, "question", TEXT, "the question's text; may be empty", required=True, field="text"
    ),
    Column(Gold, "gold_answers", _TEXTS, "accepted answers; none: unlabeled", field="answers"),
    Column(Gold, "gold_passage_ids", _TEXTS, "supporting passages", field="passage_ids"),
    Column(Question, "question_type", TEXT, "for example bridge or 2hop", field="type"),
    Column(Question, "split", TEXT, "tune, eval or a name of the user's"),
    Column(Question, "group", TEXT, "what is drawn as one unit, as a conversation or a document"),
    Column(Round, "query", TEXT, "what was sent to the retriever this round"),
    Column(Round, "action", TEXT, "what the agent generated to choose the query"),
    Column(Round, "passages", PASSAGES, "passages added this round, in rank order"),
    Column(Round, "refound", _REFOUND, "passages of earlier rounds that its query found again"),
    Column(
        Round,
        "answer",
        TEXT,
        "the answer if the loop stopped here; empty: it gave none; null: it was asked for none",
        required=True,
    ),
    Column(Round, "response", TEXT, "the raw generation"),
    Column(Round, "tokens", _TOKENS, "generated tokens with top alternatives"),
    Column(Round, "answer_starts", INT16, "the token at which the answer starts, from 0"),
    Column(Round, "samples", _TEXTS, "stochastic answers, parsed"),
    Column(Round, "sample_clusters", pa.list_(INT16), "which samples mean the same"),
    Column(Round, "verbalized_confidence", FLOAT32, "the model's own 1-5"),
    Column(Round, "intermediate_answer", TEXT, "answer to the round's query"),
    Column(Usage, "llm_calls", INT16, "calls of the loop and its answers, samples included"),
    Column(Usage, "answer_calls", INT16, "of which for this round's answer alone"),
    Column(Usage, "draft_calls", INT16, "of which for an answer that was replaced"),
    Column(Usage, "sample_calls", INT16, "of which samples"),
    Column(Usage, "judge_calls", INT16, "calls to a judge"),
    Column(Usage, "look_calls", INT16, "one-token looks at the round"),
    Column(Usage, "rerank_calls", INT16, "calls to a reranker"),
    Column(Usage, "retrievals", INT16, "queries sent to the retriever"),
    Column(Round, "candidate_scores", _FLOATS, "scores of all that was retrieved"),
    Column(Round, "parse_failure", TEXT, "why no answer could be parsed"),
    Column(Usage, "prompt_tokens", INT32, "prompt tokens of the loop's calls and the answer's"),
    Column(Usage, "cached_tokens", INT32, "of which the server reused"),
    Column(Usage, "completion_tokens", INT32, "generated tokens of those calls"),
    Column(Usage, "answer_prompt_tokens", INT32, "of prompt_tokens those of the answer alone"),
    Column(Usage, "answer_cached_tokens", INT32, "of cached_tokens those of the answer alone"),
    Column(Usage, "answer_completion_tokens", INT32, "of completion_tokens the answer's"),
    Column(Usage, "draft_prompt_tokens", INT32, "of prompt_tokens the draft's"),
    Column(Usage, "draft_cached_tokens", INT32, "of cached_tokens the draft's"),
    Column(Usage, "draft_completion_tokens", INT32, "of completion_tokens the draft's"),
    Column(Usage, "sample_prompt_tokens", INT32, "prompt tokens of the sample calls"),
    Column(Usage, "sample_cached_tokens", INT32, "of which the server reused"),
    Column(Usage, "sample_completion_tokens", INT32, "generated tokens of the samples"),
    Column(Usage, "judge_prompt_tokens", INT32, "prompt tokens of the judge calls"),
    Column(Usage, "judge_cached_tokens", INT32, "of which the server reused"),
    Column(Usage, "judge_completion_tokens", INT32, "generated tokens of the judge calls"),
    Column(Usage, "look_prompt_tokens", INT32, "prompt tokens of the looks"),
    Column(Usage, "look_cached_tokens", INT32, "of which the server reused"),
    Column(Usage, "look_completion_tokens", INT32, "generated tokens of the looks"),
    Column(Usage, "latency_s", FLOAT32, "wall seconds of the round"),
    Column(Usage, "answer_latency_s", FLOAT32, "of which the answer took"),
    Column(Usage, "draft_latency_s", FLOAT32, "of which the draft took"),
    Column(Usage, "sample_latency_s", FLOAT32, "of which the samples took"),
    Column(Usage, "judge_latency_s", FLOAT32, "of which the judge took"),
    Column(Usage, "look_latency_s", FLOAT32, "of which the looks took"),
    Column(Usage, "usd", FLOAT64, "what the round cost as billed, in US dollars"),
    Column(Usage, "answer_usd", FLOAT64, "of which the answer cost"),
    Column(Round, "probed", BOOL, "the answer was asked for the record only"),
    Column(
        QuestionRecord,
        "score",
        FLOAT32,
        "the user's own score in 0 to 1 of what would be returned here; no policy sees it",
        field="scores",
    ),
    Column(QuestionRecord, "propensity", FLOAT32, "chance to run to the full budget; null: 1"),
    Column(
        QuestionRecord,
        "stopped_by",
        TEXT,
        "in the last round: policy, budget, end, error, gold or user; null: the full budget",
    ),
    Column(QuestionRecord, "policy_hash", TEXT, "of the policy that ran"),
    Column(Round, "time", TIME, "when the round ended"),
    Column(Round, "signals", SIGNALS, "per-round values by name"),
)
QUESTIONS = TableSchema(
    name="trace",
    rows="one row per question and round",
    reader="suffice.read",
    key=SCHEMA_KEY,
    version=SCHEMA_VERSION,
    columns=COLUMNS,
)
REQUIRED = QUESTIONS.required
SCHEMA = QUESTIONS.arrow
USAGE_COLUMNS = columns_of(Usage, COLUMNS)
QUESTION_COLUMNS = columns_of(Question, COLUMNS)
_GOLD_COLUMNS = columns_of(Gold, COLUMNS)
ROUND_COLUMNS = columns_of(Round, COLUMNS)


def record_to_rows(record: QuestionRecord) -> list[dict[str, Any]]:
    """Return the rows of one question, in round order, keyed by column."""
    if not isinstance(record, QuestionRecord):
        said = f"write takes a TraceSet or suffice.QuestionRecords, found {type(record).__name__}; of a file"
        raise UsageError(f"{said} of rows: suffice traces import --format columns FILE --out NEW")
    if not record.rounds:
        raise DataError(f"question {record.question.id!r} has no rounds; a record has at least one")
    shared = to_cells(record.question, QUESTION_COLUMNS) | to_cells(record.gold, _GOLD_COLUMNS)
    numbered = list(enumerate(record.rounds, start=1))
    if record.closed_book is not None:
        numbered.insert(0, (0, record.closed_book))
    shared |= {"propensity": record.propensity, "policy_hash": record.policy_hash}
    return [
        {
            **shared,
            "round": number,
            **round_cells(round_),
            "score": record.scores.get(number),
            "stopped_by": record.stopped_by if number == len(record.rounds) else None,
        }
        for number, round_ in numbered
    ]


QUESTION_ROWS = RowSet(
    schema=QUESTIONS,
    rows=record_to_rows,
    key=("question_id",),
    key_of=lambda record: (record.question.id,),
)


def records_to_table(
    records: Iterable[QuestionRecord], run: Mapping[str, Any] | None = None
) -> pa.Table:
    return QUESTION_ROWS.table(records, run or {})


def round_cells(round_: Round) -> dict[str, Any]:
    return to_cells(round_, ROUND_COLUMNS) | to_cells(round_.usage, USAGE_COLUMNS)


def round_from_row(row: Mapping[str, Any]) -> Round:
    """Return the round of one row; missing columns read as null."""
    usage = Usage(**from_cells(row, USAGE_COLUMNS))
    return Round(**{"answer": None, **from_cells(row, ROUND_COLUMNS)}, usage=usage)


def record_from_rows(
    question: Question,
    gold: Gold,
    rows: Sequence[Mapping[str, Any]],
    closed_book: Mapping[str, Any] | None,
) -> QuestionRecord:
    """Return the record of a question's rows in round order, and of its round 0."""
    last = rows[-1]
    numbered = enumerate(([] if closed_book is None else [closed_book]) + [*rows])
    first = 1 if closed_book is None else 0
    return QuestionRecord(
        question=question,
        gold=gold,
        rounds=tuple(round_from_row(row) for row in rows),
        closed_book=None if closed_book is None else round_from_row(closed_book),
        scores={
            first + number: score
            for number, row in numbered
            if (score := row.get("score")) is not None and not math.isnan(score)
        },
        propensity=last.get("propensity"),
        stopped_by=last.get("stopped_by"),
        policy_hash=last.get("policy_hash"),
    )

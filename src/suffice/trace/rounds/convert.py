"""Between Arrow rows and records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from suffice.errors import DataError
from suffice.trace.rounds.records import Passage, QuestionRecord, Round, Token, TopToken, Usage

USAGE_COLUMNS = tuple(field.name for field in fields(Usage))
_PLAIN_COLUMNS = (
    "query",
    "action",
    "response",
    "verbalized_confidence",
    "intermediate_answer",
    "parse_failure",
)


def passage_row(passage: Passage) -> dict[str, Any]:
    """A passage as its column holds it."""
    return {
        "id": passage.id,
        "title": passage.title,
        "text": passage.text,
        "score": passage.score,
        "rerank_score": passage.rerank_score,
    }


def _token_row(token: Token) -> dict[str, Any]:
    return {
        "token": token.token,
        "logprob": token.logprob,
        "top": [{"token": top.token, "logprob": top.logprob} for top in token.top],
    }


def signal_pairs(signals: Mapping[str, float]) -> list[tuple[str, float | None]] | None:
    """An undefined value keeps its key, so that reading it back does not compute it anew."""
    pairs = [
        (name, None if math.isnan(value) else float(value))
        for name, value in sorted(signals.items())
    ]
    return pairs or None


def _round_row(number: int, record: Round) -> dict[str, Any]:
    row: dict[str, Any] = {"round": number, "answer": record.answer}
    row.update({name: getattr(record, name) for name in _PLAIN_COLUMNS})
    row.update({name: getattr(record.usage, name) for name in USAGE_COLUMNS})
    row["passages"] = (
        None if record.passages is None else [passage_row(passage) for passage in record.passages]
    )
    row["tokens"] = (
        None if record.tokens is None else [_token_row(token) for token in record.tokens]
    )
    row["samples"] = None if record.samples is None else list(record.samples)
    row["sample_clusters"] = (
        None if record.sample_clusters is None else list(record.sample_clusters)
    )
    row["candidate_scores"] = (
        None if record.candidate_scores is None else list(record.candidate_scores)
    )
    row["signals"] = signal_pairs(record.signals)
    return row


def record_to_rows(record: QuestionRecord) -> list[dict[str, Any]]:
    """Rows of one question, in round order, keyed by column."""
    question, gold = record.question, record.gold
    shared = {
        "question_id": question.id,
        "question": question.text,
        "question_type": question.type,
        "split": question.split,
        "gold_answers": list(gold.answers),
        "gold_passage_ids": list(gold.passage_ids),
    }
    numbered = list(enumerate(record.rounds, start=1))
    if record.closed_book is not None:
        numbered.insert(0, (0, record.closed_book))
    return [shared | _round_row(number, each) for number, each in numbered]


def passages_from_rows(items: Sequence[Mapping[str, Any]] | None) -> tuple[Passage, ...] | None:
    """The passages of one cell."""
    if items is None:
        return None
    return tuple(
        Passage(
            id=item["id"] or "",
            title=item["title"] or "",
            text=item["text"],
            score=item["score"],
            rerank_score=item["rerank_score"],
        )
        for item in items
    )


def _tokens(items: Sequence[Mapping[str, Any]] | None) -> tuple[Token, ...] | None:
    if items is None:
        return None
    return tuple(
        Token(
            item["token"] or "",
            _logprob(item["logprob"], "tokens.logprob"),
            tuple(
                TopToken(top["token"] or "", _logprob(top["logprob"], "tokens.top.logprob"))
                for top in item["top"] or ()
            ),
        )
        for item in items
    )


def _logprob(value: float | None, column: str) -> float:
    if value is None:
        raise DataError("a token without a log-probability", column=column)
    return value


def usage_from_row(row: Mapping[str, Any]) -> Usage:
    """What the row says it cost."""
    return Usage(**{name: row.get(name) for name in USAGE_COLUMNS})


def round_from_row(row: Mapping[str, Any]) -> Round:
    """The record of one row; columns the row lacks read as null."""
    signals = {
        name: math.nan if value is None else value for name, value in row.get("signals") or ()
    }
    return Round(
        answer=row.get("answer") or "",
        passages=passages_from_rows(row.get("passages")),
        tokens=_tokens(row.get("tokens")),
        samples=strings(row.get("samples")),
        sample_clusters=_integers(row.get("sample_clusters")),
        candidate_scores=_floats(row.get("candidate_scores")),
        usage=usage_from_row(row),
        signals=signals,
        **{name: row.get(name) for name in _PLAIN_COLUMNS},
    )


def strings(items: Sequence[str | None] | None) -> tuple[str, ...] | None:
    """The texts of one cell, a null an empty one."""
    return None if items is None else tuple(item or "" for item in items)


def _integers(items: Sequence[int | None] | None) -> tuple[int, ...] | None:
    # a null names no sample: refused with the others that do not
    return None if items is None else tuple(-1 if item is None else item for item in items)


def _floats(items: Sequence[float | None] | None) -> tuple[float, ...] | None:
    return None if items is None else tuple(math.nan if item is None else item for item in items)

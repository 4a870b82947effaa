"""A record written again without its texts, to be shown to others."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError
from suffice.live.privacy import Privacy, Veiled, stays, without_secrets
from suffice.scoring import accuracy, exact_match, f1
from suffice.signals.registry import computed_signals
from suffice.signals.table import signal_columns
from suffice.trace.durable import check_free
from suffice.trace.rounds.derive import Written
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord, Round
from suffice.trace.rounds.schema import COLUMNS
from suffice.trace.rounds.table import TraceSet
from suffice.trace.rounds.writer import write_new

RedactedScore = Literal["f1", "em", "acc"]
_SCORES = {"f1": f1, "em": exact_match, "acc": accuracy}


def redact_traces(
    source: str | Path,
    out: str | Path,
    *,
    texts: Literal["no-texts", "hashes"] = "hashes",
    score: RedactedScore = "f1",
    skip_invalid: bool = False,
) -> Written:
    """Write a record again without its texts: names or hashes in their place, all signals stored.

    What reads signals, scores and costs finds on the copy what it finds on the record, by
    ``metric="score"``. What reads texts or tokens themselves (Stop-RAG's network on text, signals that ask a
    model) needs the record.

    Parameters
    ----------
    source
        A Parquet file or a directory of them; left as it is.
    out
        A ``.parquet`` file or a directory, neither of which may be there yet.
    texts
        ``hashes``: equal texts have equal names over the whole copy, under a key that is thrown away;
        ``no-texts``: within a question only, and no gold answers, so that ``score`` alone is left of them.
    score
        What an answer scores against its gold answers, kept in the column ``score`` where the record has
        no score of its own.
    skip_invalid
        Leave out invalid files and questions.

    Raises
    ------
    DataError
        For an invalid trace set.
    UsageError
        For a place that is taken.
    """
    if texts not in ("no-texts", "hashes") or score not in _SCORES:
        raise UsageError(
            "texts is 'no-texts' or 'hashes', score 'f1', 'em' or 'acc'; "
            f"found {texts!r:.40}, {score!r:.40}"
        )
    check_free(Path(out))
    traces = read_traces(source, skip_invalid=skip_invalid)
    if not traces.n_questions:
        raise DataError("holds no question", file=str(source))
    privacy = Privacy(texts, secrets.token_bytes(32))
    run = without_secrets(traces.origin.run)
    done = run.get("derived")
    step = {"by": "redact", "from": Path(source).name, "texts": texts, "score": score}
    run["derived"] = [*(done if isinstance(done, list) else []), step]
    write_new(_redacted(traces, privacy, score), Path(out), run)
    own = sorted(set(traces.table.column_names) - {column.name for column in COLUMNS})
    lost = f"columns of its own may hold texts and were left out: {', '.join(own)}"
    return Written.of(traces, out, notes=(lost,) if own else (), stays=stays(texts))


def _redacted(traces: TraceSet, privacy: Privacy, score: RedactedScore) -> Iterator[QuestionRecord]:
    specs = computed_signals()
    columns = signal_columns(traces, specs)
    computed = {spec.name: values for spec, values in zip(specs, columns, strict=True)}
    for number, record in enumerate(traces.records()):
        veiled = privacy.question(record.question, record.gold)
        yield replace(
            record,
            question=veiled.question,
            gold=veiled.gold,
            scores={**_scores(record, score), **record.scores},
            rounds=tuple(_rounds(record, veiled, {n: v[number] for n, v in computed.items()})),
            closed_book=None if record.closed_book is None else veiled.named(record.closed_book),
        )


def _rounds(
    record: QuestionRecord, veiled: Veiled, computed: Mapping[str, NDArray[np.float64]]
) -> Iterator[Round]:
    for index, held in enumerate(record.rounds):
        named = veiled.named(held)
        signals = {name: float(values[index]) for name, values in computed.items()}
        yield replace(named, signals={**signals, **named.signals})


def _scores(record: QuestionRecord, score: RedactedScore) -> dict[int, float]:
    """Of every answer that was asked for, where there are gold answers."""
    if not record.gold.answers:
        return {}
    answers = enumerate((held.answer for held in record.rounds), start=1)
    scored = {n: _SCORES[score](a, record.gold.answers) for n, a in answers if a is not None}
    if record.closed_book is not None and record.closed_book.answer is not None:
        scored[0] = _SCORES[score](record.closed_book.answer, record.gold.answers)
    return scored

"""Fitting on large records: time and peak memory a question, at growing numbers of questions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.trace.rounds.schema import SCHEMA
from suffice.trace.rounds.table import TraceSet

ROUNDS, SAMPLES, ANSWERS = 5, 5, 20_000
_SPLITS = ("tune", "eval")


def narrow_record(
    n_questions: int,
    *,
    signals: Mapping[str, NDArray[np.float64]] | None = None,
    samples: int = 0,
    seed: int = 42,
) -> TraceSet:
    """A record of so many questions, all of split tune, without an object of Python for any of them.

    Answers are right more often in later rounds, and tend to stay. ``signals`` (n_questions * ROUNDS,) go
    into the map of stored ones; ``samples`` are as many answers a round, right about as often as it is.
    """
    rng = np.random.default_rng(seed)
    rows = n_questions * ROUNDS
    question = np.repeat(np.arange(n_questions), ROUNDS)
    names = _named("q", n_questions)
    words = _named("Town of ", ANSWERS, 5)
    gold = rng.integers(0, ANSWERS, n_questions)
    columns = {
        "question_id": names.take(pa.array(question)),
        "round": pa.array(np.tile(np.arange(1, ROUNDS + 1, dtype=np.int16), n_questions)),
        "question": _named("What is ", n_questions).take(pa.array(question)),
        "gold_answers": _lists(words.take(pa.array(gold[question])), np.ones(rows, np.int32)),
        "split": pa.array(np.zeros(rows, np.int32)).dictionary_encode().indices,
    }
    columns["split"] = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(rows, np.int32)), pa.array(_SPLITS[:1])
    ).cast(pa.string())
    known = _known(rng, n_questions)
    columns["answer"] = words.take(pa.array(np.where(known, gold[question], _other(rng, rows))))
    if samples:
        right = np.repeat(known, samples) ^ (rng.random(rows * samples) < 0.25)
        drawn = np.where(right, np.repeat(gold[question], samples), _other(rng, rows * samples))
        columns["samples"] = _lists(words.take(pa.array(drawn)), np.full(rows, samples, np.int32))
    if signals:
        columns["signals"] = _map(signals)
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    table = pa.table(list(columns.values()), schema=schema)
    return TraceSet(table=table, closed_book=table.slice(0, 0))


def _known(rng: np.random.Generator, n_questions: int) -> NDArray[np.bool_]:
    """Whether each round is right, (n_questions * ROUNDS,)."""
    first = rng.integers(0, ROUNDS + 2, n_questions)
    return (np.arange(ROUNDS) >= first[:, None]).ravel()


def _other(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """A few wrong answers, so that they repeat."""
    return rng.integers(0, 3, count)


def _named(start: str, count: int, width: int = 9) -> pa.Array:
    numbers = pc.utf8_lpad(pa.array(np.arange(count)).cast(pa.string()), width, "0")
    return pc.binary_join_element_wise(start, numbers, "")


def _lists(values: pa.Array, lengths: NDArray[np.int32]) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(_offsets(lengths)), values)


def _offsets(lengths: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])


def _map(signals: Mapping[str, NDArray[np.float64]]) -> pa.Array:
    count = len(next(iter(signals.values())))
    keys = pa.DictionaryArray.from_arrays(
        pa.array(np.tile(np.arange(len(signals), dtype=np.int32), count)), pa.array(list(signals))
    ).cast(pa.string())
    values = np.stack(list(signals.values()), axis=1).ravel()
    lengths = np.full(count, len(signals), np.int32)
    return pa.MapArray.from_arrays(
        pa.array(_offsets(lengths)), keys, pa.array(values, from_pandas=True)
    )

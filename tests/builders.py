"""Traces that several test files build."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Gold, Question, QuestionRecord, Round
from suffice.trace.rounds.table import TraceSet
from suffice.trace.rounds.writer import write_traces


def of_rounds(*rounds: Round) -> TraceSet:
    """One question without gold answers, with these rounds."""
    question = Question(id="q", text="Where?", type="", split="")
    return to_trace_set([QuestionRecord(question=question, gold=Gold(), rounds=rounds)])


def eval_and_tune(number: int) -> str:
    """The splits by turns."""
    return "tune" if number % 2 else "eval"


def drawn_records(
    count: int,
    answers: Sequence[str],
    *,
    seed: int,
    rounds: int = 3,
    widest: float | None = 1.0,
    split: Callable[[int], str | None] = eval_and_tune,
) -> list[QuestionRecord]:
    """Answers drawn at random, the first of them right; margins in [0, ``widest``) tell nothing.

    ``widest=None``: without margins.
    """
    generator = np.random.default_rng(seed)
    return [
        make_record(
            f"q{number:03d}",
            generator.choice(answers, rounds).tolist(),
            gold=[answers[0]],
            margins=None if widest is None else (generator.random(rounds) * widest).tolist(),
            split=split(number),
        )
        for number in range(count)
    ]


def written_traces(folder: Path, records: Iterable[QuestionRecord]) -> Path:
    """The file in the folder that these questions were written to."""
    path = folder / "traces.parquet"
    write_traces(records, path)
    return path

"""What recorded answers scored: read by fitting and by replay, never by a decision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.protocols import Score
from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Scores of every recorded answer, each (n_questions, n_rounds), NaN: unlabelled or not recorded."""

    em: NDArray[np.float64]
    f1: NDArray[np.float64]
    acc: NDArray[np.float64]
    labelled: NDArray[np.bool_]  # (n_questions,)


def score_rounds(traces: TraceSet, score: Score) -> NDArray[np.float64]:
    """One score of every recorded answer, (n_questions, n_rounds)."""
    answers = traces.table.column("answer").to_pylist()
    accepted = [
        gold.answers
        for gold, count in zip(traces.gold, traces.last_rounds.tolist(), strict=True)
        for _ in range(count)
    ]
    values = [
        score(answer, golds) if golds else np.nan
        for answer, golds in zip(answers, accepted, strict=True)
    ]
    return traces.dense(np.array(values, np.float64))

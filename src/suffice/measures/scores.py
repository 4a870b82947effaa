"""What recorded answers scored: read by fitting and by replay, never by a decision."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.protocols import Score
from suffice.scoring import METRICS, Metric, ScoreName, exact_match
from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Scores of every recorded answer, each (n_questions, n_rounds), NaN: unlabelled or no answer.

    ``metric`` says which of them policies are compared by and what they were taken against. Where that
    is the full budget's own answer, questions with one count as labelled; where it is the record's own
    score, those with any.
    """

    em: NDArray[np.float64]
    f1: NDArray[np.float64]
    acc: NDArray[np.float64]
    labelled: NDArray[np.bool_]  # (n_questions,)
    metric: Metric = METRICS["f1"]

    @property
    def compared(self) -> NDArray[np.float64]:
        """The score that policies are compared by, (n_questions, n_rounds)."""
        scores: NDArray[np.float64] = getattr(self, self.metric.score)
        return scores


def score_rounds(traces: TraceSet, score: Score) -> NDArray[np.float64]:
    """One score of every recorded answer, (n_questions, n_rounds); NaN where none was asked for."""
    answers = traces.table.column("answer").to_pylist()
    accepted = [
        gold.answers
        for gold, count in zip(traces.gold, traces.last_rounds.tolist(), strict=True)
        for _ in range(count)
    ]
    values = [
        score(answer, golds) if golds and answer is not None else np.nan
        for answer, golds in zip(answers, accepted, strict=True)
    ]
    return traces.dense(np.array(values, np.float64))


def own_scores(traces: TraceSet, name: ScoreName) -> NDArray[np.float64]:
    """The record's own scores in place of one of those of answers, see :class:`suffice.scoring.Metric`.

    (n_questions, n_rounds); NaN: no score.
    """
    scores = traces.column("score")
    if scores is None:
        return np.full((traces.n_rounds, traces.n_questions), np.nan).T
    if name == "f1":
        return scores
    holds = scores == 1.0 if name == "em" else scores > 0.0
    return np.where(np.isnan(scores), np.nan, holds)


def agreement(score: Score) -> Score:
    """The score against another answer of the loop, which an equal one has in full.

    An answer of which normalising leaves nothing ("A", "the") equals itself too, where the official F1
    and containment score 0.
    """

    def agreeing(prediction: str, gold_answers: Iterable[str]) -> float:
        answers = tuple(gold_answers)
        return 1.0 if exact_match(prediction, answers) else score(prediction, answers)

    return agreeing

"""What recorded answers scored: read by fitting and by replay, never by a decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from suffice.scoring import METRICS, F1Kind, Metric, ScoreName
from suffice.signals.columns.answers import GoldAnswers, ScoredAnswers
from suffice.signals.columns.arrays import Texts
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

    def take(self, rows: NDArray[np.bool_]) -> Outcomes:
        """Of some of the questions."""
        em, f1, acc = (values[rows] for values in (self.em, self.f1, self.acc))
        return replace(self, em=em, f1=f1, acc=acc, labelled=self.labelled[rows])


def score_rounds(
    traces: TraceSet,
    names: Sequence[ScoreName],
    f1_kind: F1Kind = "hotpotqa",
    *,
    agreement: bool = False,
) -> list[NDArray[np.float64]]:
    """Scores of every recorded answer, each (n_questions, n_rounds); NaN where none was asked for.

    Under ``agreement`` the gold answers are those of the loop itself, and an equal answer has the score
    in full: one of which normalising leaves nothing ("A", "the") equals itself too, where the official F1
    and containment score 0.
    """
    question = np.repeat(np.arange(traces.n_questions), traces.last_rounds)
    answers = ScoredAnswers(Texts.of(traces.table.column("answer")), gold_answers(traces), question)
    scores = [answers.score(name, f1_kind) for name in names]
    if agreement:
        same = answers.score("em") == 1.0
        scores = [np.where(same, 1.0, values) for values in scores]
    return [traces.dense(values) for values in scores]


def gold_answers(traces: TraceSet) -> GoldAnswers:
    """The gold answers of every question, as round 1 states them."""
    return GoldAnswers.of(traces.first_rounds("gold_answers"))


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

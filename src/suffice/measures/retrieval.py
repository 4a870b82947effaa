"""Precision and recall of what was retrieved up to each round, against the gold passages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.signals.columns.rounds import RoundColumns, gold_passages, listings
from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalQuality:
    """Shares in [0, 1], high is good, each (n_questions, n_rounds)."""

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]

    def at(
        self, stops: NDArray[np.int16], weights: NDArray[np.float64] | None = None
    ) -> tuple[float | None, float | None]:
        """Mean precision and recall at each question's stop round (n_questions,), 1-based, weighted or not.

        Each is over the questions where it is defined there; ``None``: nowhere.
        """
        rows = np.arange(len(stops))
        weights = np.ones(len(stops)) if weights is None else weights
        return (
            _mean(self.precision[rows, stops - 1], weights),
            _mean(self.recall[rows, stops - 1], weights),
        )


def _mean(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float | None:
    defined = np.isfinite(values)
    return float(np.average(values[defined], weights=weights[defined])) if defined.any() else None


def retrieval_quality(traces: TraceSet) -> RetrievalQuality:
    """Precision and recall of the passages of rounds 1 to t, by their ids; one named twice counts once.

    Notes
    -----
    Paper 1, table 2, gives no formula; this is our reading. Passages are told apart by id alone: where
    a corpus holds a paragraph under several ids, both figures come out too low.
    """
    if not (traces.has("gold_passage_ids") and traces.has("passages")):
        unknown = np.full((traces.n_questions, traces.n_rounds), np.nan)
        return RetrievalQuality(precision=unknown, recall=unknown)
    rounds = RoundColumns(traces)
    listed, gold = rounds.once(listings), gold_passages(rounds)
    gold_new = np.bincount(listed.rows[gold.listed], minlength=rounds.n_rows)
    distinct, right = (
        np.cumsum(traces.dense(np.where(listed.lists.valid, counted, np.nan)), axis=1)
        for counted in (listed.new, gold_new)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        recall = right / np.where(gold.named > 0, gold.named, np.nan)[:, None]
        precision = np.where(np.isnan(recall), np.nan, right / distinct)
    return RetrievalQuality(precision=precision, recall=recall)

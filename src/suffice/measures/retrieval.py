"""Precision and recall of what was retrieved up to each round, against the gold passages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalQuality:
    """Shares in [0, 1], high is good, each (n_questions, n_rounds).

    Parameters
    ----------
    precision
        Distinct gold passages among those of rounds 1 to t, as a share of the distinct passages there.
        NaN: none was retrieved by then, or recall is NaN.
    recall
        The same as a share of the question's gold passages. NaN: it names none, the round was not
        recorded, or a round up to it does not say what it retrieved.
    """

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]

    def at(self, stops: NDArray[np.int16]) -> tuple[float | None, float | None]:
        """Mean precision and recall at each question's stop round (n_questions,), 1-based.

        Each is over the questions where it is defined there; ``None``: nowhere.
        """
        rows = np.arange(len(stops))
        return _mean(self.precision[rows, stops - 1]), _mean(self.recall[rows, stops - 1])


def _mean(values: NDArray[np.float64]) -> float | None:
    defined = values[np.isfinite(values)]
    return float(defined.mean()) if defined.size else None


def retrieval_quality(traces: TraceSet) -> RetrievalQuality:
    """Precision and recall of the passages of rounds 1 to t, by their ids; one named twice counts once.

    Notes
    -----
    Paper 1, table 2, gives no formula; this is our reading. Passages are told apart by id alone: where
    a corpus holds a paragraph under several ids, both figures come out too low.
    """
    gold = [frozenset(question_gold.passage_ids) for question_gold in traces.gold]
    if not any(gold) or not traces.has("passages"):
        unknown = np.full((traces.n_questions, traces.n_rounds), np.nan)
        return RetrievalQuality(precision=unknown, recall=unknown)
    sizes = np.array([len(passages) or np.nan for passages in gold], np.float64)[:, None]
    distinct, right = (np.cumsum(traces.dense(counted), axis=1) for counted in _new(traces, gold))
    with np.errstate(divide="ignore", invalid="ignore"):
        recall = right / sizes
        precision = np.where(np.isnan(recall), np.nan, right / distinct)
    return RetrievalQuality(precision=precision, recall=recall)


def _new(traces: TraceSet, gold: list[frozenset[str]]) -> list[NDArray[np.float64]]:
    """Passages of every row that no earlier one of its question holds, and how many of them are gold.

    Both are (n_rows,), NaN where none are recorded, which a sum over rounds then keeps.
    """
    column = traces.table.column("passages").combine_chunks()
    counts = column.value_lengths()
    recorded = counts.is_valid().to_numpy(zero_copy_only=False)
    row = np.repeat(np.arange(len(counts)), counts.fill_null(0).to_numpy())
    words = column.flatten().field("id").fill_null("").dictionary_encode()
    code_of = {name: code for code, name in enumerate(words.dictionary.to_pylist())}
    question_of = np.repeat(np.arange(traces.n_questions), traces.last_rounds)[row]
    shown = question_of * len(code_of) + words.indices.to_numpy()
    wanted = [
        question * len(code_of) + code_of[name]
        for question, names in enumerate(gold)
        for name in names
        if name in code_of
    ]
    passages, firsts = np.unique(shown, return_index=True)
    is_gold = np.isin(passages, np.array(wanted, np.int64))
    return [
        np.where(recorded, np.bincount(row[firsts_of], minlength=len(counts)), np.nan)
        for firsts_of in (firsts, firsts[is_gold])
    ]

"""What the retrieval study found, as data and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from suffice.numbers.intervals.bootstrap import Interval
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.formats import count
from suffice.results.table import Column, Kind, Table, notes_table
from suffice.results.tabular import Tabular
from suffice.retrieval.retrievers import RetrieverName

DEPTHS = (5, 10, 20, 50)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrieverRecall:
    """One retriever's recall.

    ``recall[k]`` is the mean over questions of the share of gold passages, by title, among the first k;
    ``gold_hits[k]`` their number in all; ``against_bm25[k]`` the paired difference (``None`` for BM25).
    """

    retriever: RetrieverName
    recall: dict[int, Interval]
    gold_hits: dict[int, int]
    against_bm25: dict[int, Interval] | None

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        against = self.against_bm25
        return {
            "retriever": self.retriever,
            **{f"recall@{k}": interval.estimate for k, interval in self.recall.items()},
            "gold_hits": as_json(self.gold_hits),
            "intervals": _by_depth(self.recall),
            "against_bm25": None if against is None else _by_depth(against),
        }


def _by_depth(intervals: dict[int, Interval]) -> dict[str, Any]:
    return {f"recall@{k}": as_json(interval) for k, interval in intervals.items()}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RetrievalStudy(Tabular):
    """Every retriever on the same questions over the same corpus."""

    questions: int
    passages: int
    gold_passages: int
    results: tuple[RetrieverRecall, ...]
    notes: tuple[str, ...] = ()

    def tables(self) -> Sequence[Table]:
        """Recall with its intervals, the differences to BM25, and notes."""
        recalls = Table(
            name="recall",
            title=f"{count(self.questions)} questions with {count(self.gold_passages)} gold passages over "
            f"{count(self.passages)} pooled passages; the share of gold titles among the first k, in "
            "percent.",
            columns=[Column(name="retriever"), *_depths("recall@", "percent")],
            rows=[
                (result.retriever, *(result.recall[k] for k in DEPTHS)) for result in self.results
            ],
        )
        differences = Table(
            name="differences",
            title="Differences to BM25 in points, paired by question.",
            columns=[Column(name="retriever"), *_depths("@", "points")],
            rows=[
                (result.retriever, *(result.against_bm25[k] for k in DEPTHS))
                for result in self.results
                if result.against_bm25 is not None
            ],
        )
        tables = tuple(table for table in (recalls, differences) if table.rows)
        return (*tables, *notes_table(f"{note}." for note in self.notes))

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return fields_as_json(self)


def _depths(head: str, kind: Kind) -> Iterator[Column]:
    for k in DEPTHS:
        yield Column(name=f"recall@{k}", head=f"{head}{k} [95%]", kind=kind, interval=True)

"""Recall of retrievers as tables."""

from __future__ import annotations

from collections.abc import Iterator

from suffice.bench.retrieval.results import DEPTHS, RetrievalStudy
from suffice.results.formats import count
from suffice.results.table import Column, Kind, Table


def tables_of(study: RetrievalStudy) -> tuple[Table, ...]:
    """Recall with its intervals, then the differences to BM25, then notes."""
    recalls = Table(
        name="recall",
        title=f"{count(study.questions)} questions with {count(study.gold_passages)} gold passages over "
        f"{count(study.passages)} pooled passages; the share of gold titles among the first k, in percent.",
        columns=[Column(name="retriever"), *_depths("recall@", "percent")],
        rows=[(result.retriever, *(result.recall[k] for k in DEPTHS)) for result in study.results],
    )
    differences = Table(
        name="differences",
        title="Differences to BM25 in points, paired by question.",
        columns=[Column(name="retriever"), *_depths("@", "points")],
        rows=[
            (result.retriever, *(result.against_bm25[k] for k in DEPTHS))
            for result in study.results
            if result.against_bm25 is not None
        ],
    )
    notes = Table(name="notes", notes=[f"Note: {note}." for note in study.notes])
    return tuple(table for table in (recalls, differences, notes) if table.rows or table.notes)


def _depths(head: str, kind: Kind) -> Iterator[Column]:
    for k in DEPTHS:
        yield Column(name=f"recall@{k}", head=f"{head}{k} [95%]", kind=kind, interval=True)

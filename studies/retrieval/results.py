"""What the retrievers find on one data set or several, as data and as tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from suffice.numbers.intervals.bootstrap import Interval
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.formats import count
from suffice.results.table import Column, Kind, Table, notes_table
from suffice.results.tabular import Tabular

DEPTHS = (5, 10, 20, 50)
NO_TRIVIAQA = (
    "TriviaQA is not among these data sets: no file of it comes with this project. Its row: take a file with "
    "evidence from the authors (triviaqa-rc, or unfiltered with its search results) or the Parquet of the "
    "Hub's 'rc', then: python -m studies.retrieval --set triviaqa=FILE"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrieverRecall:
    """One retriever's recall.

    ``recall[k]`` is the mean over questions of the share of gold passages, by title, among the first k;
    ``gold_hits[k]`` their number in all; ``against_bm25[k]`` the paired difference (``None`` for BM25).
    """

    retriever: str
    recall: dict[int, Interval]
    gold_hits: dict[int, int]
    against_bm25: dict[int, Interval] | None

    def to_json(self) -> dict[str, Any]:
        def by_depth(values: dict[int, Interval] | None) -> Any:
            return (
                None if values is None else {f"recall@{k}": as_json(v) for k, v in values.items()}
            )

        return {
            "retriever": self.retriever,
            **{f"recall@{k}": interval.estimate for k, interval in self.recall.items()},
            "gold_hits": as_json(self.gold_hits),
            "intervals": by_depth(self.recall),
            "against_bm25": by_depth(self.against_bm25),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSetRecall:
    """Every retriever on the questions of a data set over the same corpus."""

    questions: int
    passages: int
    gold_passages: int
    results: tuple[RetrieverRecall, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RetrievalStudy(Tabular):
    """What was found on each data set by its name; ``alone``: one was asked for by ``--dataset``."""

    sets: tuple[tuple[str, DataSetRecall], ...]
    alone: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        told = [f"{name}: {note}" for name, found in self.sets for note in found.notes]
        if not self.alone and all(name != "triviaqa" for name, _ in self.sets):
            told.append(NO_TRIVIAQA)
        return tuple(told)

    def tables(self) -> Sequence[Table]:
        tables = (recall_table(self), differences_table(self))
        return (*(table for table in tables if table.rows), *notes_table(self.notes))

    def to_json(self) -> dict[str, Any]:
        if self.alone:
            return fields_as_json(self.sets[0][1])
        sets = [{"dataset": name, **fields_as_json(found)} for name, found in self.sets]
        return {"sets": sets, "notes": list(self.notes)}


def recall_table(study: RetrievalStudy) -> Table:
    """The paper's Table V."""
    held = "; ".join(
        f"{name}: {count(one.questions)} questions, {count(one.passages)} passages"
        for name, one in study.sets
    )
    title = f"Table V: share of the gold titles among the first k, in percent. {held}."
    return _by_depth(study, "recall", title, "percent", lambda result: result.recall)


def differences_table(study: RetrievalStudy) -> Table:
    """Every retriever against BM25."""
    title = "Differences to BM25 in points, paired by question."
    return _by_depth(study, "difference", title, "points", lambda result: result.against_bm25)


def _by_depth(
    study: RetrievalStudy,
    name: str,
    title: str,
    kind: Kind,
    values: Callable[[RetrieverRecall], dict[int, Interval] | None],
) -> Table:
    depths = [
        Column(name=f"{name}@{k}", head=f"@{k} [95%]", kind=kind, interval=True) for k in DEPTHS
    ]
    return Table(
        name=name,
        title=title,
        columns=[Column(name="dataset", once=True), Column(name="retriever"), *depths],
        rows=[
            (dataset, result.retriever, *(found[k] for k in DEPTHS))
            for dataset, one in study.sets
            for result in one.results
            if (found := values(result)) is not None
        ],
        names=2,
    )

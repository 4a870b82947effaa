"""What the retrievers find on several data sets, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from studies.retrieval.recall import DEPTHS, RetrievalStudy
from suffice.results.formats import count
from suffice.results.table import Column, Table, notes_table
from suffice.results.tabular import Tabular

NO_TRIVIAQA = (
    "TriviaQA is not among these data sets: no file of it comes with this project. Its row: take a file with "
    "evidence from the authors (triviaqa-rc, or unfiltered with its search results) or the Parquet of the "
    "Hub's 'rc', then: python -m studies.retrieval --set triviaqa=FILE"
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RetrievalSets(Tabular):
    """Every data set's study by its name."""

    sets: tuple[tuple[str, RetrievalStudy], ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know, the data set before each note."""
        told = [f"{name}: {note}" for name, study in self.sets for note in study.notes]
        if all(name != "triviaqa" for name, _ in self.sets):
            told.append(NO_TRIVIAQA)
        return tuple(told)

    def tables(self) -> Sequence[Table]:
        """Recall, the differences to BM25, and notes."""
        tables = (recall_table(self), differences_table(self))
        return (*(table for table in tables if table.rows), *notes_table(self.notes))

    def to_json(self) -> dict[str, Any]:
        """Strict JSON by data set."""
        return {
            "sets": [{"dataset": name, **study.to_json()} for name, study in self.sets],
            "notes": list(self.notes),
        }


def recall_table(study: RetrievalSets) -> Table:
    """The paper's Table V."""
    held = "; ".join(
        f"{name}: {count(one.questions)} questions, {count(one.passages)} passages"
        for name, one in study.sets
    )
    return Table(
        name="recall",
        title=f"Table V: share of the gold titles among the first k, in percent. {held}.",
        columns=[
            Column(name="dataset", once=True),
            Column(name="retriever"),
            *(
                Column(name=f"recall@{k}", head=f"@{k} [95%]", kind="percent", interval=True)
                for k in DEPTHS
            ),
        ],
        rows=[
            (name, result.retriever, *(result.recall[k] for k in DEPTHS))
            for name, one in study.sets
            for result in one.results
        ],
        names=2,
    )


def differences_table(study: RetrievalSets) -> Table:
    """Every retriever against BM25."""
    return Table(
        name="differences",
        title="Differences to BM25 in points, paired by question.",
        columns=[
            Column(name="dataset", once=True),
            Column(name="retriever"),
            *(
                Column(name=f"difference@{k}", head=f"@{k} [95%]", kind="points", interval=True)
                for k in DEPTHS
            ),
        ],
        rows=[
            (name, result.retriever, *(result.against_bm25[k] for k in DEPTHS))
            for name, one in study.sets
            for result in one.results
            if result.against_bm25 is not None
        ],
        names=2,
    )

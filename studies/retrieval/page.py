"""Recall of every retriever as one page: a figure a data set, and the differences to BM25."""

from __future__ import annotations

from string import ascii_uppercase

from studies.retrieval.results import (
    DEPTHS,
    DataSetRecall,
    RetrievalStudy,
    differences_table,
    recall_table,
)
from suffice.report.draw.bars import Bar, BarRow, Bars, Segment, bars
from suffice.report.draw.forest import Estimated, Forest, ForestRow, forest
from suffice.report.draw.svg import Family
from suffice.report.page.frame import study_page
from suffice.report.page.section import Chart, listed, plain, stacked
from suffice.results.formats import counted, percent, points
from suffice.results.markup import Html, element, visible

_COMPARED = (5, 10)


def retrieval_page(study: RetrievalStudy) -> str:
    """One self-contained HTML document."""
    return study_page(
        "Retrieval: recall by method",
        "python -m studies.retrieval",
        "Retrieval: what each method finds",
        plain(
            "For whoever chooses a retriever: the share of a question's gold passages, by title, among the "
            "first k, when the passages of all questions are searched together. Intervals are 95%, over "
            "resampled questions; differences are paired by question."
        ),
        main=[
            *(_set(name, one) for name, one in study.sets),
            element("section", element("h2", "Every number"), recall_table(study).html()),
            element("section", listed(map(visible, study.notes), small=True)),
        ],
    )


def _set(name: str, one: DataSetRecall) -> Html:
    size = (
        f"{counted(one.questions, 'question')} with {one.gold_passages:,} gold passages over "
        f"{one.passages:,} pooled passages."
    )
    charts = [_recall(name, one), *([_against(name, one)] if len(one.results) > 1 else [])]
    return element("section", element("h2", name), plain(size), stacked(charts))


def _family(retriever: str) -> Family:
    return "fixed" if retriever == "bm25" else "adaptive"


def _recall(name: str, one: DataSetRecall) -> Chart:
    heading = f"Figure 6: recall on {name}"
    rows = []
    for mark, result in zip(ascii_uppercase, one.results, strict=False):
        family = _family(result.retriever)
        shares = {k: percent(result.recall[k].estimate) for k in DEPTHS}
        parts = [
            Bar(
                label=f"{share}%",
                segments=[
                    Segment(
                        size=result.recall[k].estimate,
                        class_=family,
                        hint=f"{result.retriever}, recall@{k} {share}%",
                    )
                ],
            )
            for k, share in shares.items()
        ]
        who = result.retriever
        rows.append(BarRow(mark=mark, family=family, name=who, hint=who, bars=parts))
    picture = bars(
        Bars(
            title=heading,
            description="One row a retriever; the numbers are in the table below.",
            rows=rows,
            heads=[f"@{k}" for k in DEPTHS],
            x_name="recall among the first k",
        )
    )
    caption = "Share of the gold titles among the first k passages, mean over questions."
    table = recall_table(RetrievalStudy(sets=((name, one),))).html()
    return Chart(heading=heading, pictures=[picture], caption=caption, table=table)


def _against(name: str, one: DataSetRecall) -> Chart:
    heading = f"Against BM25 on {name}"
    rows = []
    for k in _COMPARED:
        for result in one.results:
            if result.against_bm25 is None:
                continue
            gain = result.against_bm25[k]
            mark = Estimated(
                family="adaptive",
                value=100 * gain.estimate,
                interval=(100 * gain.low, 100 * gain.high),
                hint=f"{result.retriever}, recall@{k}: {points(gain)} points",
            )
            rows.append(ForestRow(name=f"@{k} {result.retriever}", estimates=[mark]))
    picture = forest(
        Forest(
            title=heading,
            description="The numbers are in the table below.",
            rows=rows,
            none=(0.0, "BM25"),
            x_name="recall, points above BM25",
        )
    )
    caption = "Paired by question. An interval that holds 0 shows no difference."
    table = differences_table(RetrievalStudy(sets=((name, one),))).html()
    return Chart(heading=heading, pictures=[picture], caption=caption, table=table)

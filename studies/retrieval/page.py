"""Recall of every retriever as one page: a figure a data set, and the differences to BM25."""

from __future__ import annotations

from string import ascii_uppercase

from studies.retrieval.results import RetrievalSets, differences_table, recall_table
from studies.retrieval.recall import DEPTHS, RetrievalStudy
from suffice.report.draw.bars import Bar, BarRow, Bars, Segment, bars
from suffice.report.draw.forest import Estimated, Forest, ForestRow, forest
from suffice.report.draw.svg import Family
from suffice.report.page.frame import study_page
from suffice.report.page.section import Chart, listed, plain, stacked
from suffice.results.formats import counted, percent, points
from suffice.results.markup import Html, element, visible

_COMPARED = (5, 10)


def retrieval_page(study: RetrievalSets) -> str:
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


def _set(name: str, one: RetrievalStudy) -> Html:
    size = (
        f"{counted(one.questions, 'question')} with {one.gold_passages:,} gold passages over "
        f"{one.passages:,} pooled passages."
    )
    own = RetrievalSets(sets=((name, one),))
    charts = [
        _recall(name, one, own),
        *([_against(name, one, own)] if len(one.results) > 1 else []),
    ]
    return element("section", element("h2", name), plain(size), stacked(charts))


def _family(retriever: str) -> Family:
    return "fixed" if retriever == "bm25" else "adaptive"


def _recall(name: str, one: RetrievalStudy, own: RetrievalSets) -> Chart:
    heading = f"Figure 6: recall on {name}"
    rows = [
        BarRow(
            mark=mark,
            family=_family(result.retriever),
            name=result.retriever,
            hint=result.retriever,
            bars=[
                Bar(
                    label=f"{percent(result.recall[k].estimate)}%",
                    segments=[
                        Segment(
                            size=result.recall[k].estimate,
                            class_=_family(result.retriever),
                            hint=f"{result.retriever}, recall@{k} {percent(result.recall[k].estimate)}%",
                        )
                    ],
                )
                for k in DEPTHS
            ],
        )
        for mark, result in zip(ascii_uppercase, one.results, strict=False)
    ]
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
    table = recall_table(own).html()
    return Chart(heading=heading, pictures=[picture], caption=caption, table=table)


def _against(name: str, one: RetrievalStudy, own: RetrievalSets) -> Chart:
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
    table = differences_table(own).html()
    return Chart(heading=heading, pictures=[picture], caption=caption, table=table)

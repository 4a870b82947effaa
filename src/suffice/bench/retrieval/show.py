"""Recall of retrievers as plain-text tables."""

from __future__ import annotations

from suffice.bench.retrieval.run import DEPTHS, RetrievalBench
from suffice.numbers.intervals.bootstrap import Interval
from suffice.report.tables.text import text_table, titled
from suffice.results.formats import count, percent, points


def retrieval_tables(found: RetrievalBench) -> str:
    """Recall with its intervals, then the differences to BM25, then notes."""
    head = ["retriever", *(f"recall@{k} [95%]" for k in DEPTHS)]
    recalls = [
        [each.retriever, *(_share(each.recall[k]) for k in DEPTHS)] for each in found.results
    ]
    differences = [
        [each.retriever, *(points(each.against_bm25[k]) for k in DEPTHS)]
        for each in found.results
        if each.against_bm25 is not None
    ]
    caption = (
        f"{count(found.questions)} questions with {count(found.gold_passages)} gold passages over "
        f"{count(found.passages)} pooled passages; the share of gold titles among the first k, in percent."
    )
    blocks = [
        [*titled(caption), *text_table(head, recalls)],
        [
            *titled("Differences to BM25 in points, paired by question."),
            *text_table(["retriever", *(f"@{k} [95%]" for k in DEPTHS)], differences),
        ]
        if differences
        else [],
        [line for note in found.notes for line in titled(f"Note: {note}.")],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _share(found: Interval) -> str:
    return f"{percent(found.estimate)} [{percent(found.low)}, {percent(found.high)}]"

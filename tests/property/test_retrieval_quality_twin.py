"""Precision and recall against a slow twin that reads the definition question by question."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties import examples
from tests.question_records import question_records

from suffice.measures.scores import retrieval_quality
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import QuestionRecord


def of_question(record: QuestionRecord) -> tuple[list[float], list[float]]:
    """(precision, recall) after each round."""
    gold, shown = set(record.gold.passage_ids), set[str]()
    precision, recall = [], []
    known = bool(gold)
    for each in record.rounds:
        known = known and each.passages is not None
        shown |= {passage.id for passage in each.passages or ()}
        right = len(shown & gold)
        recall.append(right / len(gold) if known else math.nan)
        precision.append(right / len(shown) if known and shown else math.nan)
    return precision, recall


@settings(max_examples=examples(100))
@given(
    records=question_records(),
    gold=st.lists(st.lists(st.sampled_from("abcdxyz"), max_size=4), min_size=6, max_size=6),
)
def test_every_cell_is_the_twins(records: list[QuestionRecord], gold: list[list[str]]) -> None:
    records = [
        replace(each, gold=replace(each.gold, passage_ids=tuple(ids)))
        for each, ids in zip(records, gold, strict=False)
    ]
    traces = to_trace_set(records)
    found = retrieval_quality(traces)
    for number, record in enumerate(records):
        count = len(record.rounds)
        for values, expected in zip(
            (found.precision, found.recall), of_question(record), strict=True
        ):
            np.testing.assert_array_equal(values[number, :count], expected)
            assert np.isnan(values[number, count:]).all()

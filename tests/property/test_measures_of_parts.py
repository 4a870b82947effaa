"""What a part reads of its trace set's measures against measures of the part alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties import examples
from tests.question_records import question_records

from suffice.measures.measures import Measures
from suffice.measures.scores import retrieval_quality
from suffice.policies.rules.policy import Rule
from suffice.signals.abstained import abstained_signal
from suffice.signals.signal_table import given_signals
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.trace_set import TraceSet

RULE = Rule(rule="answer_stable or overlap > 0.4")


def assert_alike(part: Measures, traces: TraceSet) -> None:
    alone = Measures(traces)
    assert part.traces.question_ids == traces.question_ids
    for kind in ("hotpotqa", "squad"):
        ours, theirs = part.scores(kind), alone.scores(kind)
        for name in ("em", "f1", "acc", "labelled"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    names = given_signals(traces)
    table, expected = part.signals(names), alone.signals(names)
    assert tuple(table.values) == tuple(expected.values) == names
    np.testing.assert_array_equal(table.exists, expected.exists)
    for name in names:
        np.testing.assert_array_equal(table.signal(name), expected.signal(name))
        assert table.signal(name).T.flags.c_contiguous == (table.n_questions > 0)
    own = abstained_signal(["oslo"])
    np.testing.assert_array_equal(
        part.signals([own]).signal("abstained"), alone.signals([own]).signal("abstained")
    )
    for name in ("precision", "recall"):
        np.testing.assert_array_equal(
            getattr(part.retrieval(), name), getattr(alone.retrieval(), name)
        )
    if {"answer_stable", "overlap"} <= set(names):
        np.testing.assert_array_equal(part.stop_rounds(RULE), alone.stop_rounds(RULE))


@settings(max_examples=examples(60), deadline=None)
@given(
    records=question_records(max_questions=8),
    gold=st.lists(st.sampled_from("abcdxyz"), max_size=4),
    chosen=st.lists(st.booleans(), min_size=8, max_size=8),
    order=st.permutations(["whole", "tune", "eval", "chosen", "of a part"]),
)
def test_a_part_measures_as_alone(
    records: list[QuestionRecord], gold: list[str], chosen: list[bool], order: list[str]
) -> None:
    traces = to_trace_set(
        [replace(each, gold=replace(each.gold, passage_ids=tuple(gold))) for each in records]
    )
    mask = np.array(chosen[: traces.n_questions], bool)
    measures = Measures(traces)
    for part in order:
        if part == "whole":
            assert_alike(measures, traces)
        elif part in traces.splits:
            assert_alike(measures.only_split(part), traces.only_split(part))
        elif part == "chosen" and mask.any():
            assert_alike(measures.take(mask), traces.take(mask))
        elif part == "of a part" and mask.any():
            part_of = traces.take(mask)
            rest = np.arange(part_of.n_questions) > 0
            if rest.any():
                assert_alike(measures.take(mask).take(rest), part_of.take(rest))


def of_question(record: QuestionRecord) -> tuple[list[float], list[float]]:
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

"""Precision and recall of what was retrieved up to each round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from suffice.evaluation.replay.compare import compare
from suffice.evaluation.settings import ComparisonSettings
from suffice.measures.scores import RetrievalQuality, retrieval_quality
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Passage, QuestionRecord

NAN = float("nan")


def retrieved_record(
    name: str, rounds: Sequence[str | None], gold: Sequence[str]
) -> QuestionRecord:
    """Rounds that each add the passages named by the letters; ``None``: not recorded."""
    added = [None if ids is None else [Passage(id=one, text=one) for one in ids] for ids in rounds]
    return make_record(name, ["a"] * len(rounds), gold=["a"], gold_passages=gold, passages=added)


def quality(*records: QuestionRecord) -> RetrievalQuality:
    return retrieval_quality(to_trace_set(records))


def same(found: NDArray[np.float64], expected: Sequence[Sequence[float]]) -> None:
    np.testing.assert_array_equal(found, expected)


def test_without_the_column_nothing_is_defined() -> None:
    traces = to_trace_set([retrieved_record("a", [None, None], "a")])
    assert not traces.has("passages")
    for each in (traces, replace(traces, table=traces.table.drop_columns(["passages"]))):
        found = retrieval_quality(each)
        same(found.recall, [[NAN, NAN]])
        same(found.precision, [[NAN, NAN]])


# --- at the stop -----------------------------------------------------------------------------
def test_means_at_the_stop_leave_out_what_is_undefined() -> None:
    unnamed = retrieved_record("c", ["c"], "")
    found = quality(
        retrieved_record("a", ["", "ax"], "ab"), retrieved_record("b", ["bx", "b"], "b"), unnamed
    )
    assert found.at(np.array([1, 1, 1], np.int16)) == (0.5, 0.5)  # of b; recall of a is 0
    assert found.at(np.array([2, 2, 1], np.int16)) == (0.5, 0.75)
    assert found.at(np.array([1, 2, 1], np.int16)) == (0.5, 0.5)
    assert quality(unnamed).at(np.array([1], np.int16)) == (None, None)


def test_a_replay_tells_them_where_gold_passages_are_named() -> None:
    records = [
        retrieved_record("a", ["a", "xy"], "ab"),
        retrieved_record("b", ["x", "b"], "b"),
        retrieved_record("c", ["c"], ""),
    ]
    records[0] = replace(records[0], closed_book=records[0].rounds[0])
    settings = ComparisonSettings(policies=("fixed-1", "fixed-2", "oracle-f1"), resamples=5)
    entries = compare(to_trace_set(records), settings).result.to_json()["policies"]
    assert [(each["precision"], each["recall"]) for each in entries] == [
        (0.5, 0.25),
        ((1 / 3 + 1 / 2) / 2, 0.75),
        (0.5, 0.25),
    ]
    (unnamed,) = compare(
        to_trace_set(records[2:]), ComparisonSettings(policies=("fixed-1",))
    ).result.policies
    assert not {"precision", "recall"} & set(unnamed.to_json())

"""A whole record clustered: which rounds, by whom, and what a failure leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suffice.errors import BackendError, UsageError
from suffice.signals.asking.meaning_clusters import cluster_samples, cluster_traces, clustered_by
from suffice.signals.asking.whole_record import Asked
from suffice.testing.encoders import HashingEncoder
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.table import TraceSet

pytest.importorskip("sklearn")

SAMPLES: tuple[tuple[str, ...] | None, ...] = (
    ("Oslo", "Oslo city", "Rome", "Oslo", "the city Oslo"),
    None,
    ("Oslo", "oslo"),
    (),
    ("bad", "Rome", "Rome town"),
)


TRACES = to_trace_set(
    [make_record(name, ["x"] * len(SAMPLES), gold=["Oslo"], samples=SAMPLES) for name in "pq"]
)
STATED = {"encoder": "hashing-64", "cosine": 0.6}


def clusters(traces: TraceSet) -> list[list[int] | None]:
    found: list[list[int] | None] = traces.table.column("sample_clusters").to_pylist()
    return found


def test_every_round_with_samples_gets_the_clusters_of_its_samples() -> None:
    encoder, seen = HashingEncoder(), list[Asked]()
    found = cluster_traces(TRACES, encoder, 0.6, on_progress=seen.append)
    want = [
        None if each is None else [*cluster_samples(each, HashingEncoder(), cosine=0.6)]
        for each in SAMPLES
    ]
    assert clusters(found.traces) == want * 2
    assert want[0] == [0, 0, 2, 0, 0]  # not what strings alone would say
    texts = [text for call in encoder.calls for text in call]
    assert len(texts) == len(set(texts))
    assert seen[-1] == Asked(what="clustered", finished=8, planned=8)
    assert (found.before, len(found.replies.found)) == (0, 8)
    assert found.stated == STATED == clustered_by(found.traces)


def test_all_else_stays() -> None:
    origin = replace(TRACES.origin, run={"model": "m"})
    traces = replace(TRACES, origin=origin)
    found = cluster_traces(traces, HashingEncoder(), 0.6).traces
    assert found.origin.run == {"model": "m", "sample_clusters": STATED}
    assert found.table.column_names == TRACES.table.column_names
    name = "sample_clusters"
    assert found.table.drop_columns([name]) == TRACES.table.drop_columns([name])
    bare = replace(TRACES, table=TRACES.table.drop_columns([name]))
    assert clusters(cluster_traces(bare, HashingEncoder(), 0.6).traces) == clusters(found)


def test_a_failed_round_gets_none_and_is_asked_again() -> None:
    first = cluster_traces(TRACES, HashingEncoder(fail_on="bad"), 0.6)
    assert list(first.replies.failures) == [4, 9]
    assert clusters(first.traces)[4] is None
    encoder = HashingEncoder()
    second = cluster_traces(first.traces, encoder, 0.6)
    assert (second.before, list(second.replies.found)) == (6, [4, 9])
    assert encoder.calls == (("bad", "Rome", "Rome town"),)
    assert clusters(second.traces) == clusters(cluster_traces(TRACES, encoder, 0.6).traces)


def test_an_encoder_that_never_works_is_an_error() -> None:
    # the rounds that need no vectors do not hide it
    with pytest.raises(BackendError, match="all 4 calls of the encoder failed, the first"):
        cluster_traces(TRACES, HashingEncoder(fail_on=""), 0.6)


@pytest.mark.parametrize(
    ("encoder", "cosine"), [(HashingEncoder(), 0.9), (HashingEncoder(32), 0.6)]
)
def test_clusters_of_another_kind_are_replaced_only_when_told(
    encoder: HashingEncoder, cosine: float
) -> None:
    before = cluster_traces(TRACES, HashingEncoder(), 0.6).traces
    with pytest.raises(UsageError, match=r"encoder 'hashing-64' at cosine 0\.6, .*--recluster"):
        cluster_traces(before, encoder, cosine)
    found = cluster_traces(before, encoder, cosine, again=True)
    assert found.before == 0
    assert found.traces.origin.run["sample_clusters"] == {"encoder": encoder.name, "cosine": cosine}
    assert clusters(found.traces) == clusters(cluster_traces(TRACES, encoder, cosine).traces)


def test_clusters_of_nobody_are_not_mixed_with_others() -> None:
    unsaid = replace(cluster_traces(TRACES, HashingEncoder(), 0.6).traces, origin=TRACES.origin)
    with pytest.raises(UsageError, match="of an encoder that is not stated"):
        cluster_traces(unsaid, HashingEncoder(), 0.6)
    # said by a recording whose rounds all failed, or had none: nothing to mix
    said = replace(TRACES, origin=replace(TRACES.origin, run={"sample_clusters": {"encoder": "e"}}))
    assert cluster_traces(said, HashingEncoder(), 0.6).stated == STATED


def test_a_failure_leaves_no_cluster_of_the_encoder_before() -> None:
    before = cluster_traces(TRACES, HashingEncoder(32), 0.6).traces
    found = cluster_traces(before, HashingEncoder(fail_on="bad"), 0.6, again=True)
    assert clusters(found.traces)[4] is None


def test_a_record_without_samples_is_refused() -> None:
    with pytest.raises(UsageError, match="no round has samples to cluster; record them with"):
        cluster_traces(to_trace_set([make_record("q", ["x"])]), HashingEncoder(), 0.9)

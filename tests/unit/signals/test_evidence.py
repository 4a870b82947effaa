"""Whether the answer's words stand in what was read."""

from __future__ import annotations

import math

import pytest

from suffice.signals.evidence import ANSWER_IN_EVIDENCE, ANSWER_IN_EVIDENCE_PUBLISHED
from suffice.signals.registry import SignalSpec
from suffice.trace.rounds.records import LoopView, Passage, Round


def value(
    answer: str, *rounds: tuple[str | None, ...] | None, of: SignalSpec = ANSWER_IN_EVIDENCE
) -> float:
    records = [
        Round(
            answer="",
            passages=None
            if texts is None
            else tuple(Passage(id=f"{number}-{i}", text=text) for i, text in enumerate(texts)),
        )
        for number, texts in enumerate(rounds)
    ]
    records[-1] = Round(answer=answer, passages=records[-1].passages)
    return of(LoopView("q", tuple(records)))


@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        ("The Tempest", "He wrote a Tempest.", 1.0),  # articles and punctuation go on both sides
        ("know", "Nobody can know", 1.0),  # at the end
        ("now", "Nobody can know", 0.0),  # the published substring would find it
        ("New York", "York is new", 0.0),  # order counts
        ("New York", "the new York Times", 1.0),
        ("1983", "founded in 1983.", 1.0),
        ("1983", "founded in 19834", 0.0),
        ("A.J. Burnett", "pitcher AJ Burnett", 1.0),
    ],
)
def test_whole_words_in_order(answer: str, text: str, expected: float) -> None:
    assert value(answer, (text,)) == expected


def test_passages_of_every_round_so_far_count_but_not_across_their_ends() -> None:
    assert value("oslo", ("in Oslo",), ("nothing",)) == 1.0
    assert value("new york", ("all new",), ("york",)) == 0.0
    assert value("new york", ("all new", "york")) == 0.0


@pytest.mark.parametrize("answer", ["yes", "No.", "", "the", "?"])
def test_undefined_for_yes_no_and_empty_answers(answer: str) -> None:
    assert math.isnan(value(answer, ("yes no the know",)))


def test_undefined_when_not_found_in_an_incomplete_record() -> None:
    assert math.isnan(value("oslo", ("rome", None)))
    assert math.isnan(value("oslo", None, ("rome",)))
    assert math.isnan(value("oslo", None))
    assert value("oslo", (None, "in oslo")) == 1.0
    assert value("oslo", None, ("in oslo",)) == 1.0
    assert value("oslo", ()) == 0.0


def published(answer: str, *rounds: tuple[str | None, ...] | None) -> float:
    return value(answer, *rounds, of=ANSWER_IN_EVIDENCE_PUBLISHED)


@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        ("no", "Nobody can know", 1.0),  # no word ends
        ("yes", "Nobody can know", 0.0),
        ("", "Nobody can know", 0.0),
        ("the", "the end", 0.0),  # an article alone is nothing
        ("A-ha", "the band Aha", 1.0),  # "ha": articles go before punctuation, and "aha" has it
        ("1983", "founded in 19834", 1.0),
        ("New York", "York is new", 0.0),
    ],
)
def test_published_is_a_substring_in_its_own_normal_form(
    answer: str, text: str, expected: float
) -> None:
    assert published(answer, (text,)) == expected


def test_published_reads_all_passages_as_one_text() -> None:
    assert published("new york", ("all new",), ("york",)) == 1.0
    assert published("oslo", ("in Oslo",), ("nothing",)) == 1.0
    assert published("oslo", ()) == 0.0


def test_published_is_undefined_when_not_found_in_an_incomplete_record() -> None:
    assert math.isnan(published("oslo", ("rome", None)))
    assert math.isnan(published("oslo", None, ("rome",)))
    assert published("oslo", None, ("in oslo",)) == 1.0
    assert math.isnan(published("", None))


def test_published_is_a_variant_that_searches_leave_out() -> None:
    assert ANSWER_IN_EVIDENCE_PUBLISHED.variant_of == ANSWER_IN_EVIDENCE.name

"""Candidates: their agreement by hand, and contradiction by markers, over a plan and over answers."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.contracts import ContradictionDetector
from suffice.signals.samples import (
    _STOP_WORDS,
    CANDIDATE_AGREEMENT,
    CONTRADICTION,
    MARKER_PHRASES,
    MARKER_WORDS,
    MarkerDetector,
    agreement,
    marker_conflict,
    token_set,
)
from suffice.trace.rounds.records import LoopView, Round

texts = st.lists(st.sampled_from(["tls", "TLS", "port", "80", "deny,"]), max_size=5).map(" ".join)


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


def test_tokens_are_upper_case_and_split_at_any_white_space() -> None:
    assert token_set("a\tB\nb  ß") == {"A", "B", "SS"}


@given(st.lists(texts, min_size=1, max_size=4))
def test_range_order_and_more_candidates_never_agree_more(candidates: list[str]) -> None:
    found = agreement(candidates)
    assert 0.0 <= found <= 1.0
    assert agreement(candidates[::-1]) == found
    assert agreement(candidates * 2) == found
    assert agreement([*candidates, "port deny"]) <= found


def test_as_a_signal_it_reads_the_samples_of_the_last_round() -> None:
    rounds = (Round(answer="x", samples=("a b", "a")), Round(answer="x", samples=("", "")))
    assert CANDIDATE_AGREEMENT(LoopView("q", rounds[:1])) == 0.5
    assert CANDIDATE_AGREEMENT(LoopView("q", rounds)) == 0.0
    for missing in (None, ()):
        view = LoopView("q", (*rounds, Round(answer="x", samples=missing)))
        assert math.isnan(CANDIDATE_AGREEMENT(view))


WORDS = [
    *("open", "Port", "80", "the", "do", "NOT", "don't", "Can’t", "never", "conflicts", "with"),
    *("mutually", "exclusive", "do_not_log_004", "x's", "step", ",", "."),
]
marked_texts = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)


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
    assert marker_conflict("Open port 80", marked) == 1.0
    assert marker_conflict(marked, "Open port 80") == 1.0
    assert marker_conflict("Attach the disk", marked) == 0.0
    assert marker_conflict(marked, "Never open port 80") == 0.0
    assert marker_conflict(marked, "") == 0.0


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
    assert marker_conflict("Open port 80", plain) == 0.0
    assert marker_conflict("Do not open port 80", plain) == 1.0


def slow(step: str, candidate: str) -> float:
    """The definition, word by word."""

    def words(text: str) -> list[str]:
        return re.findall(r"\w+(?:['’]\w+)*", text.casefold())

    def marks(word: str) -> bool:
        return word in MARKER_WORDS or word.endswith(("n't", "n’t"))

    def marked(text: str) -> bool:
        joined = " ".join(text.casefold().split())
        phrase = any(re.search(rf"\b{each}\b", joined) for each in MARKER_PHRASES)
        return phrase or any(map(marks, words(text)))

    in_phrases = set(" ".join(MARKER_PHRASES).split())
    shared = [
        word
        for word in words(step)
        if word in words(candidate)
        and not marks(word)
        and word not in _STOP_WORDS
        and word not in in_phrases
    ]
    return 1.0 if marked(step) != marked(candidate) and shared else 0.0


@given(st.lists(st.tuples(marked_texts, marked_texts), max_size=6))
def test_the_detector_is_the_definition_in_either_order(pairs: list[tuple[str, str]]) -> None:
    detector = MarkerDetector()
    assert isinstance(detector, ContradictionDetector)
    found = detector.contradictions(pairs)
    assert found.dtype == np.float64
    assert found.tolist() == [slow(*pair) for pair in pairs]
    assert found.tolist() == [marker_conflict(*pair) for pair in pairs]
    turned = detector.contradictions([(second, first) for first, second in pairs])
    assert turned.tolist() == found.tolist()


def view(*answers: str) -> LoopView:
    return LoopView("q", tuple(Round(answer=each) for each in answers))


def test_as_a_signal_it_compares_the_last_two_answers() -> None:
    assert CONTRADICTION(view("Oslo")) == 0.0
    assert CONTRADICTION(view("Oslo", "not Oslo")) == 1.0
    assert CONTRADICTION(view("not Oslo", "Oslo")) == 1.0
    assert CONTRADICTION(view("Oslo", "Oslo")) == 0.0
    assert CONTRADICTION(view("not Oslo", "Paris", "Oslo")) == 0.0
    for undefined in (view(""), view("Oslo", " "), view("", "Oslo")):
        assert math.isnan(CONTRADICTION(undefined))

"""Agreement of candidates: the definition by hand, and its ends."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.signals.candidates import agreement, candidate_agreement, token_set
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
    assert candidate_agreement(LoopView("q", rounds[:1])) == 0.5
    assert candidate_agreement(LoopView("q", rounds)) == 0.0
    for missing in (None, ()):
        view = LoopView("q", (*rounds, Round(answer="x", samples=missing)))
        assert math.isnan(candidate_agreement(view))

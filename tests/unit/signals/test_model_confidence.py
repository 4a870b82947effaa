"""How sure the model is: its answer's tokens, all its tokens, and its own rating."""

from __future__ import annotations

import math

import pytest

from suffice.signals.model_confidence import (
    ANSWER_TOKEN_MARGIN,
    MARGIN_MEAN,
    MARGIN_MEDIAN,
    MARGIN_MIN,
    MARGIN_P10,
    VERBALIZED_CONFIDENCE,
)
from suffice.trace.rounds.records import LoopView, Round, Token, TopToken

AGGREGATES = (MARGIN_MIN, MARGIN_P10, MARGIN_MEAN, MARGIN_MEDIAN)


def token(text: str, margin: float | None = 1.0) -> Token:
    """A token whose best alternative leads by ``margin``; ``None``: no runner-up."""
    first = TopToken(text, -0.25)
    top = (first,) if margin is None else (first, TopToken("~", -0.25 - margin))
    return Token(text, -0.25, top)


def view(*tokens: Token) -> LoopView:
    return LoopView("q", (Round(answer="", tokens=tokens),))


def assert_answer(
    pieces: list[str], expected: list[str], answer: str = "", starts: int | None = None
) -> None:
    """The margins read are those of the expected pieces, each piece having one of its own."""
    there = [number for number, piece in enumerate(pieces) if piece]
    told = [pieces[number] for number in there]
    first = next((i for i in range(len(told)) if told[i : i + len(expected)] == expected), 0)
    margins = [float(2**number) for number in there[first : first + len(expected)]]
    tokens = tuple(token(piece, float(2**number)) for number, piece in enumerate(pieces))
    said = Round(answer=answer, tokens=tokens, answer_starts=starts)
    found = [
        spec(LoopView("q", (said,))) for spec in (ANSWER_TOKEN_MARGIN, MARGIN_MIN, MARGIN_MEAN)
    ]
    wanted = [margins[0], min(margins), sum(margins) / len(margins)] if margins else [math.nan] * 3
    assert found == pytest.approx(wanted, nan_ok=True)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["Ans", "wer", ":", " New", " York", "\n", "C"], [" New", " York"]),
        (["Answer", ":P", "aris", "\n"], [":P", "aris"]),
        (["Answer: Paris\nConfidence: 5"], ["Answer: Paris\nConfidence: 5"]),
        (["Answer", ":", " ", "", "1", "9", "\n"], ["1", "9"]),
        (["Answer", ":", " A", "\n", "Answer", ":", " B"], [" A"]),
        (["Confidence: 4", "\n", "Answer", ":", " A"], [" A"]),
        (["Answer", ":", "\n", "Paris"], ["Paris"]),
        (["Answer", ":", "  ", "\n", "Confidence: 5"], []),
        (["answer", ":", " Paris"], [" Paris"]),
        (["Paris", "\n"], []),
        ([], []),
    ],
)
def test_the_answer_runs_from_the_first_non_blank_to_the_end_of_its_line(
    pieces: list[str], expected: list[str]
) -> None:
    assert_answer(pieces, expected)


def test_the_first_margin_is_undefined_without_a_runner_up_although_aggregates_are_not() -> None:
    rounds = view(token("Answer:"), token(" New", None), token(" York", 4.0))
    assert math.isnan(ANSWER_TOKEN_MARGIN(rounds))
    assert [spec(rounds) for spec in AGGREGATES] == [4.0] * 4


@pytest.mark.parametrize("rating", [None, 0.0, 0.99, 5.01, 10.0, -3.0, math.nan, math.inf])
def test_anything_else_is_undefined_not_three(rating: float | None) -> None:
    view = LoopView("q", (Round(answer="x", verbalized_confidence=rating),))
    assert math.isnan(VERBALIZED_CONFIDENCE(view))


# --- without the literal marker -----------------------------------------------------------------
@pytest.mark.parametrize(
    ("pieces", "answer", "starts", "expected"),
    [
        (["New", " York"], "New York", None, ["New", " York"]),
        (["\n", " New", " York", "."], "new york", None, [" New", " York", "."]),
        (["New", "\n", "York", ""], "New York", None, ["New", "\n", "York"]),
        (["It is", " New York"], "New York", None, []),
        (["."], "", None, []),
        (["\n", "Oslo", "\n", "Confidence: 4"], "Oslo", 0, ["Oslo"]),
        (["hm", "</think>", "\n\n", "Oslo", ", Norway"], "Oslo", 2, ["Oslo", ", Norway"]),
        (["Answer:", " Rome", " or", " Oslo"], "Oslo", 3, [" Oslo"]),
        (["Oslo"], "Oslo", 1, []),
        (["Oslo"], "Oslo", 9, []),
    ],
)
def test_tokens_that_are_the_answer_count(
    pieces: list[str], answer: str, starts: int | None, expected: list[str]
) -> None:
    assert_answer(pieces, expected, answer, starts)

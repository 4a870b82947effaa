"""Shapes in which models give an answer and a rating: both are read, and the margin is the answer's own."""

from __future__ import annotations

import re

import numpy as np
import pytest

from suffice.loops.calls import parse_reply
from suffice.signals.model_confidence import ANSWER_TOKEN_MARGIN
from suffice.trace.rounds.records import LoopView, Round, Token, TopToken

SHAPES = [
    # the line that was asked for
    ("Answer: Oslo\nConfidence: 4", "Oslo", 4, "Oslo"),
    ("Answer:Oslo\nConfidence:4", "Oslo", 4, "Oslo"),
    ("  Answer:   Oslo  \n  Confidence:  4  ", "Oslo", 4, "Oslo"),
    ("Confidence: 4\nAnswer: Oslo", "Oslo", 4, "Oslo"),
    ("The capital is named in [2].\nAnswer: Oslo\nConfidence: 4", "Oslo", 4, "Oslo"),
    ("Final Answer: Oslo\nConfidence: 4", "Oslo", 4, "Oslo"),
    ('Answer: "Oslo"\nConfidence: 4', '"Oslo"', 4, '"'),
    # on the next line
    ("Answer:\nOslo\nConfidence: 4", "Oslo", 4, "Oslo"),
    ("Answer:\r\nOslo\r\nConfidence: 4", "Oslo", 4, "Oslo"),
    ("Answer:\n\nOslo\n\nConfidence: 4", "Oslo", 4, "Oslo"),
    ("Answer:\n- Oslo\nConfidence: 4", "Oslo", 4, "Oslo"),
    ("Answer:\n```\nOslo\n```\nConfidence: 4", "Oslo", 4, "Oslo"),
    ("Answer:\nOslo\nConfidence:\n4", "Oslo", 4, "Oslo"),
    # a label in bold
    ("**Answer:** Oslo\n**Confidence:** 4", "Oslo", 4, "Oslo"),
    ("**Answer**: Oslo\n**Confidence**: 4", "Oslo", 4, "Oslo"),
    ("**Answer:**\nOslo\n**Confidence:**\n4", "Oslo", 4, "Oslo"),
    ("**Answer:** **Oslo**\n**Confidence:** **4**", "Oslo", 4, "Oslo"),
    ("**Answer: Oslo**\n**Confidence: 4**", "Oslo", 4, "Oslo"),
    ("**Answer:**Oslo\n**Confidence:**4", "Oslo", 4, "Oslo"),
    ("__Answer:__ Oslo\n__Confidence:__ 4", "Oslo", 4, "Oslo"),
    ("*Answer:* Oslo\n*Confidence:* 4", "Oslo", 4, "Oslo"),
    ("### Answer: Oslo\n### Confidence: 4", "Oslo", 4, "Oslo"),
    ("- **Answer:** Oslo\n- **Confidence:** 4", "Oslo", 4, "Oslo"),
    ("`Answer:` Oslo\n`Confidence:` 4", "Oslo", 4, "Oslo"),
    # an answer in bold
    ("Answer: **Oslo**\nConfidence: **4**", "Oslo", 4, "Oslo"),
    ("Answer: *Oslo*\nConfidence: 4.", "Oslo", 4, "Oslo"),
    ("Answer: `Oslo`\nConfidence: `4`", "Oslo", 4, "Oslo"),
    ("Answer:\n**Oslo**\nConfidence: 4", "Oslo", 4, "Oslo"),
    ("Answer: **Oslo**, Norway\nConfidence: 4", "**Oslo**, Norway", 4, "Oslo"),
    ("**Answer:** Oslo **(Norway)**\nConfidence: 4", "Oslo **(Norway)**", 4, "Oslo"),
    # signs of the answer's own
    ("Answer: A*\nConfidence: 4", "A*", 4, "A"),
    ("Answer: *args\nConfidence: 4", "*args", 4, "args"),
    ("Answer: M*A*S*H\nConfidence: 4", "M*A*S*H", 4, "M"),
    ("Answer: -5\nConfidence: 4", "-5", 4, "-"),
    # nothing, or not a rating
    ("Answer:\nConfidence: 4", "", 4, None),
    ("Answer: **\n\n**Confidence**: 4", "", 4, None),
    ("**Answer:** Oslo\n**Confidence:** 4/5", "Oslo", None, "Oslo"),
    ("Answer:\nOslo\nConfidence: high", "Oslo", None, "Oslo"),
]
each_shape = pytest.mark.parametrize(("text", "answer", "rating", "first"), SHAPES)


def _pieces(text: str) -> list[str]:
    """Words, runs of signs and white space by themselves, as most tokenisers cut them."""
    return re.findall(r"[^\W_]+|\s+|[*_`]+|.", text)


def _round(text: str) -> tuple[Round, list[str]]:
    """The reply as a round in which the margin of the token numbered n is n."""
    pieces = _pieces(text)
    tokens = tuple(
        Token(piece, -0.5, (TopToken(piece, -0.5), TopToken("?", -0.5 - number)))
        for number, piece in enumerate(pieces)
    )
    parsed = parse_reply(text)
    return Round(
        answer=parsed.answer, response=text, tokens=tokens, verbalized_confidence=parsed.confidence
    ), pieces


@each_shape
def test_answer_and_rating_are_read_and_the_margin_of_the_first_token_that_is_no_markup(
    text: str, answer: str, rating: int | None, first: str | None
) -> None:
    finished, pieces = _round(text)
    assert (finished.answer, finished.verbalized_confidence) == (answer, rating)
    margin = ANSWER_TOKEN_MARGIN(LoopView("q", (finished,)))
    if first is None:
        assert np.isnan(margin)
    else:
        assert pieces[round(margin)] == first
        assert "".join(pieces[: round(margin)]).count("Answer") == 1

"""Every odd reply a small model gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.pipelines.answers.calls import ParsedReply, parse_reply


def reply(answer: str, confidence: float | None = None, failure: str | None = None) -> ParsedReply:
    return ParsedReply(answer=answer, confidence=confidence, failure=failure)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("Answer: Oslo\nConfidence: 4", reply("Oslo", 4.0)),
        (" Answer:   Oslo  \n  Confidence:5", reply("Oslo", 5.0)),
        ("Answer:Oslo", reply("Oslo")),
        ("Answer: Oslo\r\nConfidence: 4\r\n", reply("Oslo", 4.0)),
        ("Confidence: 2\nAnswer: Oslo", reply("Oslo", 2.0)),
        ("Confidence: 2\r\n\r\nAnswer: Oslo\r\n", reply("Oslo", 2.0)),
        ("Answer: Zürich – Ærø 東京\nConfidence: 1", reply("Zürich – Ærø 東京", 1.0)),
        ("The evidence says so. Answer: Oslo\nmore", reply("Oslo")),
        ("Answer: Oslo\nAnswer: Bergen", reply("Oslo")),
        ("Answer: the ratio is 4/5", reply("the ratio is 4/5")),
        ("Answer: Answer: Oslo", reply("Answer: Oslo")),
        # no marker: the first line
        ("Oslo", reply("Oslo")),
        ("\n\n Oslo \nBergen", reply("Oslo")),
        ("Oslo\nConfidence: 3", reply("Oslo", 3.0)),
        ("answer: Oslo", reply("answer: Oslo")),
        ("ANSWER: Oslo", reply("ANSWER: Oslo")),
        ("Answer Oslo", reply("Answer Oslo")),
        ("Answer : Oslo", reply("Answer : Oslo")),
        # nothing to take
        ("", reply("", None, "empty reply")),
        (" \n\t\r\n", reply("", None, "empty reply")),
        ("Answer:", reply("", None, "empty answer line")),
        ("Answer: \nConfidence: 4", reply("", 4.0, "empty answer line")),
        ("Answer:\n\nOslo", reply("", None, "empty answer line")),
        ("Confidence: 4", reply("", 4.0, "no answer line")),
        ("Confidence: 4\nOslo", reply("", 4.0, "no answer line")),
    ],
)
def test_replies(text: str, parsed: ParsedReply) -> None:
    assert parse_reply(text) == parsed


@pytest.mark.parametrize(
    ("written", "confidence"),
    [
        ("1", 1.0),
        (" 5 ", 5.0),
        ("3.", 3.0),
        ("10", None),
        ("0", None),
        ("6", None),
        ("-3", None),
        ("4/5", None),
        ("4 out of 5", None),
        ("4.5", None),
        ("3.0", None),
        ("high", None),
        ("<4>", None),
        ("4 5", None),
        ("４", None),
        ("", None),
    ],
)
def test_only_a_lone_rating_counts(written: str, confidence: float | None) -> None:
    assert parse_reply(f"Answer: Oslo\nConfidence:{written}").confidence == confidence


def test_the_first_rating_line_counts_and_only_at_a_line_start() -> None:
    assert parse_reply("Answer: Oslo\nConfidence: high\nConfidence: 4").confidence is None
    assert parse_reply("Answer: Oslo Confidence: 4").confidence is None
    assert parse_reply("Answer: Oslo\nMy Confidence: 4").confidence is None
    assert parse_reply("Answer: Oslo\nconfidence: 4").confidence is None


PARTS = ["Answer:", "Confidence:", "\n", "\r\n", " ", "Oslo", "4", "10", "é", "\0", "\u2028"]


@given(
    text=st.one_of(st.text(max_size=30), st.lists(st.sampled_from(PARTS), max_size=8).map("".join))
)
def test_an_answer_is_empty_exactly_when_a_reason_is_given(text: str) -> None:
    parsed = parse_reply(text)
    assert (parsed.answer == "") == (parsed.failure is not None)
    assert parsed.answer == parsed.answer.strip()
    assert "\n" not in parsed.answer
    assert parsed.confidence in (None, 1.0, 2.0, 3.0, 4.0, 5.0)
    assert not (parsed.answer and parsed.answer not in text)

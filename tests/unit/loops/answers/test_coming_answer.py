"""Pieces of an answer that are told before a reply is whole are a beginning of the answer read from it."""

from __future__ import annotations

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from suffice.loops.calls import ComingAnswer, parse_reply

PARTS = st.sampled_from(
    [
        "Answer:",
        "Ans",
        "wer:",
        " ",
        "\n",
        "\r",
        "\t",
        "\u2028",
        "Oslo",
        "Confidence: 4",
        "Conf",
        "**",
        "*",
        "-",
        ":",
        "ø",
        "",
    ]
)
TEXTS = st.lists(PARTS, max_size=12).map("".join)


@given(text=TEXTS, cuts=st.lists(st.integers(0, 80), max_size=8))
def test_whatever_the_cut_told_is_a_beginning_of_the_answer(text: str, cuts: list[int]) -> None:
    coming, told, places = ComingAnswer(), "", [0, *sorted(cuts), len(text)]
    for begin, end in pairwise(places):
        told += coming.feed(text[begin:end])
        assert told == coming.told
        assert parse_reply(text).answer.startswith(told)
    answer = parse_reply(text).answer
    if not re.search(r"Answer\**:", text):
        assert told == ""
    elif not {"*", "-"} & set(text) and "Conf" not in text:
        assert told == answer  # else the end may be held back, which is sent with the whole answer

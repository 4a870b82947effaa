"""The margin of the first answer token, against a character-by-character twin on recorded rounds."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.signal_twins import answer_margins

from suffice.trace.rounds.records import LoopView, Round, Token, TopToken


def slow_margins(tokens: tuple[Token, ...]) -> list[float]:
    """Every character with the token it came from; then walk."""
    owners = [(char, number) for number, token in enumerate(tokens) for char in token.token]
    window = ""
    after = None
    for place, (char, _) in enumerate(owners):
        window = (window + char)[-7:]
        if window == "Answer:":
            after = place + 1
            break
    if after is None:
        return []
    # the first line from there on that holds anything
    rest = list(itertools.dropwhile(lambda owner: owner[0].isspace(), owners[after:]))
    line = list(itertools.takewhile(lambda owner: owner[0] != "\n", rest))
    shown = [place for place, (char, _) in enumerate(line) if not char.isspace()]
    said = line[shown[0] : shown[-1] + 1] if shown else []
    numbers = dict.fromkeys(number for _, number in said)
    margins = []
    for number in numbers:
        possible = [top.logprob for top in tokens[number].top if top.logprob != -math.inf]
        if len(possible) < 2:
            margins.append(math.nan)
            continue
        best = max(possible)
        possible.remove(best)
        margins.append(best - max(possible))
    return margins


pieces = st.sampled_from(
    [
        *("Ans", "wer", ":", "Answer", "Answer:", ": A", " ", "", "\n", ":\n", " B\n", "C"),
        *("\t", "D \n E"),
    ]
)
logprobs = st.floats(-20, 0, width=32) | st.just(-math.inf)
tops = st.lists(st.builds(TopToken, st.just("x"), logprobs), max_size=4).map(tuple)


@given(st.lists(st.builds(Token, pieces, st.just(-1.0), tops), max_size=12).map(tuple))
def test_the_fast_walk_agrees_on_generated_tokens(tokens: tuple[Token, ...]) -> None:
    view = LoopView("q", (Round(answer="", tokens=tokens),))
    np.testing.assert_array_equal(answer_margins(view), slow_margins(tokens))

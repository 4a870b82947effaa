"""The margin of the first answer token, against a character-by-character twin on recorded rounds."""

from __future__ import annotations

import itertools
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.signal_twins import answer_margins

from suffice.signals.registry import SIGNALS
from suffice.signals.table import signal_table
from suffice.trace.rounds.reader import read_traces
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
        "Ans",
        "wer",
        ":",
        "Answer",
        "Answer:",
        ": A",
        " ",
        "",
        "\n",
        ":\n",
        " B\n",
        "C",
        "\t",
        "D \n E",
    ]
)
logprobs = st.floats(-20, 0, width=32) | st.just(-math.inf)
tops = st.lists(st.builds(TopToken, st.just("x"), logprobs), max_size=4).map(tuple)


@given(st.lists(st.builds(Token, pieces, st.just(-1.0), tops), max_size=12).map(tuple))
def test_the_fast_walk_agrees_on_generated_tokens(tokens: tuple[Token, ...]) -> None:
    view = LoopView("q", (Round(answer="", tokens=tokens),))
    np.testing.assert_array_equal(answer_margins(view), slow_margins(tokens))


def test_recorded_rounds() -> None:
    data = os.environ.get("SUFFICE_DATA")
    if not data:
        pytest.skip("set SUFFICE_DATA to the folder that holds traces/")
    traces = read_traces(Path(data) / "traces" / "hotpotqa_qwen1.5b.parquet")
    names = ["answer_token_margin", "margin_min", "margin_mean"]
    table = signal_table(traces, names)
    expected = np.full((3, traces.n_questions, traces.n_rounds), np.nan)
    for question, views in enumerate(traces.views(["tokens"])):
        for number, view in enumerate(views):
            margins = slow_margins(view.current.tokens or ())
            if margins:
                column = margins[0], np.nanmin(margins), np.nanmean(margins)
                expected[:, question, number] = column
    assert np.isfinite(expected).mean() > 0.95
    for name, values in zip(names, expected, strict=True):
        np.testing.assert_allclose(table.signal(name), values, rtol=1e-12, err_msg=name)
    # Not a constant in disguise.
    assert np.nanstd(table.signal("answer_token_margin")) > 0.5
    assert SIGNALS["answer_token_margin"].needs == ("tokens",)

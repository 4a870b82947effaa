"""Encoder and entailment model over a whole record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.errors import BackendError
from suffice.signals.asking.evidence_models import ENCODING, ENTAILING, evidence_signals
from suffice.signals.asking.whole_record import Asked
from suffice.testing.encoders import HashingEncoder
from suffice.testing.traces import make_record, to_trace_set

TRACES = to_trace_set([make_record(f"q{n}", [f"word {n}", f"word {n}", "text"]) for n in range(3)])
VIEWS = [view for views in TRACES.views(["passages"]) for view in views]


def test_every_row_gets_the_values_of_its_own_view() -> None:
    seen: list[Asked] = []
    encoder = HashingEncoder()
    replies = ENCODING.ask(TRACES, encoder, np.ones(9, bool), seen.append)
    assert list(replies.found) == list(range(9))
    for row, view in enumerate(VIEWS):
        assert replies.found[row] == evidence_signals(view, HashingEncoder())
    texts = [text for call in encoder.calls for text in call]
    assert len(texts) == len(set(texts))  # nothing is encoded twice
    assert seen[-1] == Asked(what="encoded", finished=9, planned=9)


def test_a_text_it_cannot_encode_costs_only_the_rounds_that_show_it() -> None:
    encoder = HashingEncoder(fail_on="word 1")
    replies = ENCODING.ask(TRACES, encoder, np.ones(9, bool), lambda _: None)
    assert list(replies.failures) == [3, 4]
    assert sorted({*range(9)} - {*replies.found}) == [3, 4]


def test_an_encoder_that_never_works_is_an_error() -> None:
    with pytest.raises(
        BackendError, match="calls of the encoder failed, the first: the encoder was"
    ):
        ENCODING.ask(TRACES, HashingEncoder(fail_on=""), np.ones(9, bool), lambda _: None)


class Half:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def entailed(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        self.asked += pairs
        return np.full(len(pairs), 0.5)


def test_entailment_asks_only_wanted_rounds_and_each_pair_once() -> None:
    model, seen = Half(), list[Asked]()
    wanted = np.array([True, True, False, False, True, False, False, False, False])
    replies = ENTAILING.ask(TRACES, model, wanted, seen.append)
    assert replies.found == {row: {"evidence_entailment": 0.5} for row in (0, 1, 4)}
    assert len(model.asked) == len(set(model.asked)) == 2 + 2
    assert seen[-1] == Asked(what="checked", finished=3, planned=3)

"""Novelty by an encoder, against cosines worked by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.signals.asking.evidence_models import novelty_signals, with_novelty
from suffice.signals.store import SignalModels, with_signals
from suffice.testing.encoders import HashingEncoder
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import LoopView, Passage, Question, QuestionRecord, Round

ANGLES = {"mill": 0.0, "river": 60.0, "town": 90.0, "far": 180.0}


class Angles:
    """Every text a direction of the plane; which role each had is kept."""

    name = "angles"

    def __init__(self) -> None:
        self.roles: set[str] = set()

    def encode(
        self, texts: Sequence[str], *, role: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        self.roles.add(role)
        angles = np.radians([ANGLES[text.strip()] for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def found(query: str | None, *words: str, refound: tuple[str, ...] = ()) -> Round:
    return Round(
        answer="x",
        query=query,
        passages=tuple(Passage(id=word, text=word) for word in words),
        refound=tuple(Passage(id=word, text=word) for word in refound),
    )


ROUNDS = (
    found("mill", "mill"),
    found("river", "river", "far", refound=("mill",)),
    found("town", "town"),
    found("mill"),
)


def test_it_is_one_less_the_nearest_cosine() -> None:
    encoder = Angles()
    values = [novelty_signals(LoopView("q", ROUNDS[:n]), encoder) for n in (1, 2, 3, 4)]
    queries = [value["query_novelty"] for value in values]
    passages = [value["passage_novelty"] for value in values]
    nearest = 1 - math.cos(math.radians(30))
    assert queries == pytest.approx([1.0, 0.5, nearest, 0.0], abs=1e-6)
    # river 0.5, far opposite and so 1, mill found before 0
    assert passages == pytest.approx([1.0, 0.5, nearest, 0.0], abs=1e-6)
    assert encoder.roles == {"query", "passage"}


def test_it_is_undefined_where_something_was_not_recorded() -> None:
    unasked = (replace(ROUNDS[0], query=None), ROUNDS[1])
    assert math.isnan(novelty_signals(LoopView("q", unasked), Angles())["query_novelty"])
    unread = (replace(ROUNDS[0], passages=None), ROUNDS[1])
    assert math.isnan(novelty_signals(LoopView("q", unread), Angles())["passage_novelty"])


def test_a_record_gets_what_a_live_round_has() -> None:
    traces = to_trace_set([QuestionRecord(question=Question(id="a", text="q"), rounds=ROUNDS)])
    names = ("query_novelty", "passage_novelty")
    stored = with_signals(traces, names, models=SignalModels(encoder=HashingEncoder()))
    assert stored.computed == names
    for number in range(1, 5):
        live = with_novelty(LoopView("q", ROUNDS[:number]), HashingEncoder()).signals
        for name in names:
            assert stored.traces.stored_signal(name)[0][0, number - 1] == live[name]

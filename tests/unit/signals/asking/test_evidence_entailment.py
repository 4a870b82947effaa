"""Evidence entailment: what is asked, what comes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.errors import BackendError
from suffice.protocols import Entailment
from suffice.signals.asking.evidence_models import evidence_entailment, statement
from suffice.trace.rounds.records import LoopView, Passage, Round


class Words:
    """Share of the conclusion's words in the premise."""

    def __init__(self, given: NDArray[np.float64] | None = None) -> None:
        self.asked: list[tuple[str, str]] = []
        self.given = given

    def entailed(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        self.asked += pairs
        if self.given is not None:
            return self.given
        return np.array([len({*a.split()} & {*b.split()}) / len({*b.split()}) for a, b in pairs])


def view(answer: str, *rounds: Sequence[str] | None) -> LoopView:
    return LoopView(
        "Who built it?",
        tuple(
            Round(
                answer=answer,
                passages=None
                if texts is None
                else tuple(Passage(id=text, title="Mill", text=text) for text in texts),
            )
            for texts in rounds
        ),
    )


def test_the_best_of_all_passages_so_far_each_asked_about_once() -> None:
    model = Words()
    assert isinstance(model, Entailment)
    shown = view("Tam Lorne", ["a mill"], ["Tam built it?", "a mill"], ["Tam"])
    assert evidence_entailment(shown, model) == 3 / 5
    assert model.asked == [
        ("Mill a mill", "Who built it? Tam Lorne."),
        ("Mill Tam built it?", "Who built it? Tam Lorne."),
        ("Mill Tam", "Who built it? Tam Lorne."),
    ]
    first = LoopView(shown.question, shown.rounds[:1])
    assert evidence_entailment(first, Words()) == 0.0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("Oslo", "Q? Oslo."), ("St. Ives.", "Q? St. Ives."), (" two\n words ", "Q? two words.")],
)
def test_statements(answer: str, expected: str) -> None:
    assert statement("Q?", answer) == expected


@pytest.mark.parametrize(
    "case",
    [
        view(" ", ["x"]),
        view("x", None, ["x"]),
        LoopView("q", (Round(answer="x", passages=(Passage(id="a", title="x"),)),)),
    ],
    ids=["no answer", "not recorded", "no text"],
)
def test_undefined_without_a_call(case: LoopView) -> None:
    model = Words()
    assert math.isnan(evidence_entailment(case, model))
    assert model.asked == []


def test_no_passages_entail_nothing() -> None:
    assert evidence_entailment(view("x", []), Words()) == 0.0


@pytest.mark.parametrize(
    "given", [np.array([0.5]), np.array([0.5, 1.5]), np.array([0.5, math.nan]), np.array(0.5)]
)
def test_what_is_no_probability_a_passage_is_refused(given: NDArray[np.float64]) -> None:
    with pytest.raises(BackendError, match="for 2 passages; a probability from 0 to 1"):
        evidence_entailment(view("x", ["a", "b"]), Words(given))

"""What encoders and entailment models say, and models that keep what they found."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.hashing_encoder import HashingEncoder

from suffice.contracts import Encoder, Entailment
from suffice.signals.asking.evidence_models import (
    ENCODING,
    consistencies,
    evidence_entailment,
    evidence_signals,
    statement,
    with_evidence,
)
from suffice.signals.asking.whole_record import Asked, KeptEncoder, KeptEntailment
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import LoopView, Passage, Round


def view(answer: str, *rounds: Sequence[str] | None) -> LoopView:
    """Rounds that show passages by their text; a text is its own id."""
    return LoopView(
        "q",
        tuple(
            Round(
                answer=answer,
                passages=None
                if texts is None
                else tuple(Passage(id=text, title="T", text=text) for text in texts),
            )
            for texts in rounds
        ),
    )


def test_consistencies_by_hand() -> None:
    answer = np.array([0.6, 0.8], np.float32)
    passages = np.array([[0.0, 1.0], [1.0, 0.0]], np.float32)
    mean = (0.6 + 0.8) / math.sqrt(2)
    assert consistencies(answer, passages) == pytest.approx(((mean + 1) / 2, 0.9, 0.9), abs=1e-7)
    assert consistencies(answer, passages[::-1]) == pytest.approx(
        ((mean + 1) / 2, 0.9, 0.8), abs=1e-7
    )
    # the mean is of unit vectors: a longer one does not count more
    assert consistencies(answer, passages * [[9.0], [0.5]]) == consistencies(answer, passages)


def test_ends() -> None:
    east = np.array([1.0, 0.0])
    assert consistencies(east, np.array([[1.0, 0.0]])) == (1.0, 1.0, 1.0)
    assert consistencies(east, np.array([[-1.0, 0.0]])) == (0.0, 0.0, 0.0)
    assert consistencies(east, np.empty((0, 2))) == (0.0, 0.0, 0.0)
    # opposite passages have no mean direction
    assert consistencies(east, np.array([[-1.0, 0.0], [1.0, 0.0]])) == (0.5, 1.0, 0.0)


def test_earlier_rounds_count_later_ones_do_not() -> None:
    rounds = view("red", ["blue sea"], ["red mill"], ["old wind"]).rounds
    found = [evidence_signals(LoopView("q", rounds[:t]), HashingEncoder()) for t in (1, 2, 3)]
    assert found[0] == evidence_signals(view("red", ["blue sea"]), HashingEncoder())
    assert len({each["evidence_consistency"] for each in found}) == 3
    assert len({each["evidence_consistency_top1"] for each in found}) == 1
    assert found[0]["evidence_consistency_max"] < found[1]["evidence_consistency_max"]
    assert found[1]["evidence_consistency_max"] == found[2]["evidence_consistency_max"]


@pytest.mark.parametrize(
    "case",
    [
        view("", ["red"]),
        view(" \n", ["red"]),
        view("", []),
        view("red", ["red"], None),
        LoopView("q", (Round(answer="red", passages=(Passage(id="a", title="Red"),)),)),
    ],
    ids=["empty answer", "blank answer", "nothing at all", "not recorded", "title only"],
)
def test_undefined_without_a_call(case: LoopView) -> None:
    encoder = HashingEncoder()
    assert all(math.isnan(value) for value in evidence_signals(case, encoder).values())
    assert encoder.calls == ()


def test_the_round_keeps_what_it_has() -> None:
    before = view("red", ["red"]).current
    given_values = {"mine": 2.0, "evidence_consistency": 0.25}
    before = dataclasses.replace(before, signals=given_values)
    after = with_evidence(LoopView("q", (before,)), HashingEncoder())
    assert after.signals["evidence_consistency_max"] == after.signals["evidence_consistency_top1"]
    assert {**after.signals, **given_values} == after.signals
    assert dataclasses.replace(after, signals=given_values) == before
    encoder = HashingEncoder()
    assert with_evidence(LoopView("q", (after,)), encoder) is after
    assert encoder.calls == ()


class Words:
    """Share of the conclusion's words in the premise."""

    concurrency = 3

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def entailed(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        self.asked += pairs
        return np.array([len({*a.split()} & {*b.split()}) / len({*b.split()}) for a, b in pairs])


def test_the_best_of_all_passages_so_far_each_asked_about_once() -> None:
    model = Words()
    assert isinstance(model, Entailment)
    shown = view("Tam Lorne", ["a mill"], ["Tam built it?", "a mill"], ["Tam"])
    assert evidence_entailment(shown, model) == 1 / 3
    assert model.asked == [
        ("T a mill", "q Tam Lorne."),
        ("T Tam built it?", "q Tam Lorne."),
        ("T Tam", "q Tam Lorne."),
    ]
    first = LoopView(shown.question, shown.rounds[:1])
    assert evidence_entailment(first, Words()) == 0.0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("Oslo", "Q? Oslo."), ("St. Ives.", "Q? St. Ives."), (" two\n words ", "Q? two words.")],
)
def test_statements(answer: str, expected: str) -> None:
    assert statement("Q?", answer) == expected


TRACES = to_trace_set([make_record(f"q{n}", [f"word {n}", f"word {n}", "text"]) for n in range(3)])
VIEWS = [view for views in TRACES.views(["passages"]) for view in views]


def test_every_row_gets_the_values_of_its_own_view() -> None:
    seen: list[Asked] = []
    encoder = HashingEncoder()
    replies = ENCODING.ask(TRACES, encoder, np.ones(9, bool), seen.append)
    assert list(replies.by_row) == list(range(9))
    for row, view in enumerate(VIEWS):
        assert replies.by_row[row] == evidence_signals(view, HashingEncoder())
    texts = [text for call in encoder.calls for text in call]
    assert len(texts) == len(set(texts))  # nothing is encoded twice
    assert seen[-1] == Asked(what="encoded", finished=9, planned=9)


def test_vectors_are_the_encoders_and_each_text_is_encoded_once() -> None:
    plain, counted = HashingEncoder(), HashingEncoder()
    kept = KeptEncoder(counted)
    assert isinstance(kept, Encoder)
    assert kept.name == plain.name
    for texts in (["a", "b", "a"], ["b", "c"], ["c", "a"], []):
        found = kept.encode(texts)
        np.testing.assert_array_equal(found, plain.encode(texts))
        assert found.dtype == np.float32
    assert counted.calls == (("a", "b"), ("c",), ())


def test_the_least_recently_used_one_goes() -> None:
    counted = HashingEncoder()
    kept = KeptEncoder(counted, most=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        kept.encode([text])
    assert counted.calls == (("a",), ("b",), ("c",), ("b",))
    np.testing.assert_array_equal(kept.encode(["x", "y", "z"]), counted.encode(["x", "y", "z"]))


def test_many_threads_at_once() -> None:
    kept, plain = KeptEncoder(HashingEncoder(), most=7), HashingEncoder()
    batches = [[f"{(n * k) % 13}" for k in range(5)] for n in range(200)]
    with ThreadPoolExecutor(8) as pool:
        for texts, found in zip(batches, pool.map(kept.encode, batches), strict=True):
            np.testing.assert_array_equal(found, plain.encode(texts))


def test_each_pair_is_judged_once() -> None:
    model = Words()
    kept = KeptEntailment(model)
    assert isinstance(kept, Entailment)
    assert kept.concurrency == 3
    assert kept.entailed([("a a", "b"), ("a", "a b c")]).tolist() == [0.0, 1 / 3]
    assert kept.entailed([("a", "a b c"), ("a", "a b")]).tolist() == [1 / 3, 1 / 2]
    assert model.asked == [("a a", "b"), ("a", "a b c"), ("a", "a b")]
    assert kept.entailed([]).shape == (0,)

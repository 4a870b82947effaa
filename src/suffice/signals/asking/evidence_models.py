"""Signals of an encoder or an entailment model about an answer and its passages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import Encoder, Entailment
from suffice.errors import BackendError
from suffice.signals.asking.whole_record import KeptEncoder, KeptEntailment, Measured, asking_rounds
from suffice.signals.evidence import NO_ANSWER, PASSAGES_UNKNOWN, TEXT_UNKNOWN, one_line, seen_texts
from suffice.signals.known_signals import UNDEFINED, share
from suffice.stats.units import Array
from suffice.trace.rounds.records import LoopView, Round

EVIDENCE_SIGNALS = ("evidence_consistency", "evidence_consistency_max", "evidence_consistency_top1")


def encoded(encoder: Encoder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the vectors of texts encoded as passages, (len(texts), dimension)."""
    vectors = encoder.encode(texts, role="passage")
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise BackendError(
            f"encoder {encoder.name!r} gave vectors of shape {vectors.shape} for {len(texts)} texts; "
            "a finite one for every text is needed"
        )
    return vectors


def unit_rows(vectors: NDArray[np.floating]) -> Array:
    """Scale rows to length 1, in float64; a row of zeros stays."""
    exact = vectors.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    cosines: Array = exact / np.where(lengths == 0.0, 1.0, lengths)
    return cosines


def consistencies(
    answer: NDArray[np.floating], passages: NDArray[np.floating]
) -> tuple[float, float, float]:
    """Return (cosine + 1) / 2 of an answer with the mean, nearest and first passage, in [0, 1]."""
    if len(passages) == 0:
        return 0.0, 0.0, 0.0
    unit = unit_rows(passages)
    mean = unit_rows(unit.mean(axis=0, keepdims=True))
    # summed row by row: a matrix product rounds a passage's cosine by how many there are
    cosines = (np.concatenate([mean, unit]) * unit_rows(answer[None])).sum(axis=1)
    shares = np.clip((cosines + 1.0) / 2.0, 0.0, 1.0)  # rounding may leave [-1, 1] by a hair
    return float(shares[0]), float(shares[1:].max()), float(shares[1])


def evidence_signals(view: LoopView, encoder: Encoder) -> dict[str, float]:
    """Measure how close answer and evidence are: three signals in [0, 1]; high: close (paper 2, S2).

    The evidence is every distinct passage of rounds 1..t, title and text. Both are encoded as passages, as in
    the paper. Without passages all three are 0, as in the paper. They are NaN without an answer or a text.
    """
    texts = seen_texts(view.rounds)
    answer = view.current.answer_text
    if texts is None or not answer.strip():
        return dict.fromkeys(EVIDENCE_SIGNALS, UNDEFINED)
    if not texts:
        return dict.fromkeys(EVIDENCE_SIGNALS, 0.0)
    # The answer apart: a batch of a short and many long texts is mostly padding.
    vectors = encoded(encoder, texts)
    values = consistencies(encoded(encoder, [answer])[0], vectors)
    return dict(zip(EVIDENCE_SIGNALS, values, strict=True))


def with_evidence(view: LoopView, encoder: Encoder) -> Round:
    """Return the last round with the three evidence signals; keep the values that it has."""
    finished = view.current
    if finished.signals.keys() >= set(EVIDENCE_SIGNALS):
        return finished
    return replace(finished, signals={**evidence_signals(view, encoder), **finished.signals})


def statement(question: str, answer: str) -> str:
    """Join question and answer into the conclusion that a passage may entail."""
    asked, claim = one_line(question), one_line(answer)
    return f"{asked} {claim}" if claim.endswith((".", "!", "?")) else f"{asked} {claim}."


def evidence_entailment(view: LoopView, model: Entailment) -> float:
    """Return the highest probability that one passage of rounds 1..t entails the answer, in [0, 1].

    Each passage is judged alone, so an answer that needs several passages may score low.
    """
    texts = seen_texts(view.rounds)
    answer = view.current.answer_text
    if texts is None or not answer.strip():
        return UNDEFINED
    if not texts:
        return 0.0
    conclusion = statement(view.question, answer)
    probabilities = np.asarray(model.entailed([(text, conclusion) for text in texts]), np.float64)
    if (
        probabilities.shape != (len(texts),)
        or not ((probabilities >= 0.0) & (probabilities <= 1.0)).all()
    ):
        raise BackendError(
            f"the entailment model gave {probabilities.tolist()!r:.80} for {len(texts)} passages; a "
            "probability from 0 to 1 for every one is needed"
        )
    return float(probabilities.max())


def _defined(values: Measured) -> bool:
    return not any(map(math.isnan, values.values()))


ENCODING = asking_rounds(
    "encoder",
    "--encoder",
    "encoder",
    "encoded",
    evidence_signals,
    keeping=KeptEncoder,
    called=_defined,
)
ENTAILING = asking_rounds(
    "nli",
    "--nli",
    "entailment model",
    "checked",
    lambda view, model: {"evidence_entailment": evidence_entailment(view, model)},
    keeping=KeptEntailment,
    called=_defined,
)


_support = partial(
    share, needs=("passages",), undefined=(NO_ANSWER, PASSAGES_UNKNOWN, TEXT_UNKNOWN)
)
_consistency = partial(_support, asking=ENCODING)
EVIDENCE_CONSISTENCY = _consistency(
    name="evidence_consistency",
    summary="similarity of the answer and the mean of the passages: (cosine + 1) / 2",
)
EVIDENCE_CONSISTENCY_MAX = _consistency(
    name="evidence_consistency_max",
    summary="similarity of the answer and the nearest passage: (cosine + 1) / 2",
)
EVIDENCE_CONSISTENCY_TOP1 = _consistency(
    name="evidence_consistency_top1",
    summary="similarity of the answer and the passage ranked first: (cosine + 1) / 2",
)
EVIDENCE_ENTAILMENT = _support(
    name="evidence_entailment",
    summary="highest probability that one passage entails the answer",
    asking=ENTAILING,
)

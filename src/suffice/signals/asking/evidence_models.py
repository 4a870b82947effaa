"""Evidence consistency and entailment: an encoder's or an entailment model's view of answer and passages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from suffice.errors import BackendError
from suffice.protocols import Encoder, Entailment
from suffice.signals.asking.memo import KeptEncoder, KeptEntailment
from suffice.signals.asking.vectors import encoded, unit_rows
from suffice.signals.asking.whole_record import Asked, Replies, RoundQuestion, ask_rounds
from suffice.signals.evidence import one_line, seen_texts
from suffice.signals.recorded import (
    EVIDENCE_CONSISTENCY,
    EVIDENCE_CONSISTENCY_MAX,
    EVIDENCE_CONSISTENCY_TOP1,
    EVIDENCE_ENTAILMENT,
)
from suffice.signals.spec import UNDEFINED
from suffice.trace.rounds.records import LoopView, Round

if TYPE_CHECKING:
    from suffice.trace.rounds.table import TraceSet


EVIDENCE_SIGNALS = (
    EVIDENCE_CONSISTENCY.name,
    EVIDENCE_CONSISTENCY_MAX.name,
    EVIDENCE_CONSISTENCY_TOP1.name,
)


def consistencies(
    answer: NDArray[np.floating], passages: NDArray[np.floating]
) -> tuple[float, float, float]:
    """(cosine + 1) / 2 of an answer and its evidence: mean, nearest and first passage; in [0, 1].

    Parameters
    ----------
    answer
        The answer's vector (dimension,).
    passages
        The passages' vectors (n_passages, dimension), the first shown first; each counts alike in
        the mean, which is taken over unit vectors.

    Notes
    -----
    Without passages all three are 0, as published. A vector without length has cosine 0 with all.

    Examples
    --------
    >>> import numpy as np
    >>> consistencies(np.array([1.0, 0.0]), np.array([[0.0, 1.0], [1.0, 0.0]]))[1:]
    (1.0, 0.5)
    """
    if len(passages) == 0:
        return 0.0, 0.0, 0.0
    unit = unit_rows(passages)
    mean = unit_rows(unit.mean(axis=0, keepdims=True))
    # summed row by row: a matrix product rounds a passage's cosine by how many there are
    cosines = (np.concatenate([mean, unit]) * unit_rows(answer[None])).sum(axis=1)
    shares = np.clip((cosines + 1.0) / 2.0, 0.0, 1.0)  # rounding may leave [-1, 1] by a hair
    return float(shares[0]), float(shares[1:].max()), float(shares[1])


def evidence_signals(view: LoopView, encoder: Encoder) -> dict[str, float]:
    """The three signals at the view's last round, by name, in [0, 1]; high: near (paper 2, S2).

    The evidence is every distinct passage of rounds 1..t, title and text. Answer and passages are
    both encoded as passages: the paper embeds them alike.

    All are 0 without passages: the paper gives its signals no evidence as 0, read here as the
    signal's value, not the cosine's. They are undefined (NaN) where the answer is empty, a round's
    passages were not recorded, or a passage has no text.

    Every call encodes all passages seen. In a loop pass a
    :class:`suffice.signals.asking.memo.KeptEncoder`, which encodes each one once.

    Raises
    ------
    BackendError
        When the encoder fails or gives other vectors than one finite one for every text.
    """
    texts = seen_texts(view.rounds)
    answer = view.current.answer
    if texts is None or not answer.strip():
        return dict.fromkeys(EVIDENCE_SIGNALS, UNDEFINED)
    if not texts:
        return dict.fromkeys(EVIDENCE_SIGNALS, 0.0)
    # The answer apart: a batch of a short and many long texts is mostly padding.
    vectors = encoded(encoder, texts)
    found = consistencies(encoded(encoder, [answer])[0], vectors)
    return dict(zip(EVIDENCE_SIGNALS, found, strict=True))


def with_evidence(view: LoopView, encoder: Encoder) -> Round:
    """The view's last round with the three signals among its own; values it has are kept.

    Raises
    ------
    BackendError
        When the encoder fails.
    """
    finished = view.current
    if finished.signals.keys() >= set(EVIDENCE_SIGNALS):
        return finished
    found: Mapping[str, float] = evidence_signals(view, encoder)
    return replace(finished, signals={**found, **finished.signals})


def statement(question: str, answer: str) -> str:
    """Question and answer as the conclusion that a passage may entail.

    A short answer states nothing by itself, and turning it into a sentence would ask a model again,
    so it stands behind its question.

    >>> statement("Who built Corran Mill?", "Tam Lorne")
    'Who built Corran Mill? Tam Lorne.'
    """
    asked, given = one_line(question), one_line(answer)
    return f"{asked} {given}" if given.endswith((".", "!", "?")) else f"{asked} {given}."


def evidence_entailment(view: LoopView, model: Entailment) -> float:
    """Highest probability that one distinct passage of rounds 1..t entails question and answer.

    In [0, 1]; high: the evidence says it (paper 2's outlook). Passages are judged one by one, so an
    answer that only several passages together support may score low. 0 without passages; undefined
    (NaN) where the answer is empty, a round's passages were not recorded, or a passage has no text.

    Every call judges all passages seen. In a loop pass a
    :class:`suffice.signals.asking.memo.KeptEntailment`, which judges each pair once.

    Raises
    ------
    BackendError
        When the model fails or gives anything but one probability for every passage.
    """
    texts = seen_texts(view.rounds)
    answer = view.current.answer
    if texts is None or not answer.strip():
        return UNDEFINED
    if not texts:
        return 0.0
    conclusion = statement(view.question, answer)
    found = np.asarray(model.entailed([(text, conclusion) for text in texts]), np.float64)
    if found.shape != (len(texts),) or not ((found >= 0.0) & (found <= 1.0)).all():
        raise BackendError(
            f"the entailment model gave {found.tolist()!r:.80} for {len(texts)} passages; a probability "
            "from 0 to 1 for every one is needed"
        )
    return float(found.max())


Measured = Mapping[str, float]  # by the signal's name, NaN where undefined


def encode_rounds(
    traces: TraceSet,
    encoder: Encoder,
    wanted: NDArray[np.bool_],
    on_progress: Callable[[Asked], None],
) -> Replies[Measured]:
    """The three forms of evidence consistency in every row where ``wanted`` (n_rows,) is true.

    A passage is encoded once a question, as long as it is among the last 4,096 texts.

    Raises
    ------
    BackendError
        When every call of the encoder failed.
    """
    kept = KeptEncoder(encoder)
    question: RoundQuestion[Measured] = RoundQuestion(
        what="encoded",
        who="encoder",
        ask=lambda view: evidence_signals(view, kept),
        called=_defined,
        concurrency=kept.concurrency,
    )
    return ask_rounds(traces, question, wanted, on_progress)


def entail_rounds(
    traces: TraceSet,
    model: Entailment,
    wanted: NDArray[np.bool_],
    on_progress: Callable[[Asked], None],
) -> Replies[Measured]:
    """``evidence_entailment`` in every row where ``wanted`` (n_rows,) is true.

    Raises
    ------
    BackendError
        When every call of the model failed.
    """
    kept = KeptEntailment(model)
    question: RoundQuestion[Measured] = RoundQuestion(
        what="checked",
        who="entailment model",
        ask=lambda view: {EVIDENCE_ENTAILMENT.name: evidence_entailment(view, kept)},
        called=_defined,
        concurrency=kept.concurrency,
    )
    return ask_rounds(traces, question, wanted, on_progress)


def _defined(values: Measured) -> bool:
    return not any(map(math.isnan, values.values()))

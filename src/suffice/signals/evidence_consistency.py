"""Evidence consistency: how near the answer lies to the passages read, by an encoder's vectors.

Three forms (paper 2, S2): against the mean passage, the nearest one, and the one ranked first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from suffice.protocols import Encoder
from suffice.signals.base import UNDEFINED
from suffice.signals.evidence import seen_texts
from suffice.signals.recorded import (
    EVIDENCE_CONSISTENCY,
    EVIDENCE_CONSISTENCY_MAX,
    EVIDENCE_CONSISTENCY_TOP1,
)
from suffice.signals.vectors import encoded, unit_rows
from suffice.trace.records import LoopView, Round

__all__ = ["EVIDENCE_SIGNALS", "consistencies", "evidence_signals", "with_evidence"]

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
    :class:`suffice.signals.kept.KeptEncoder`, which encodes each one once.

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

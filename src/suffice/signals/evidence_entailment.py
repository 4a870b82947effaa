"""Evidence entailment: whether a passage read says what the answer says, by an entailment model."""

from __future__ import annotations

import numpy as np

from suffice.errors import BackendError
from suffice.protocols import Entailment
from suffice.signals.base import UNDEFINED
from suffice.signals.evidence import one_line, seen_texts
from suffice.trace.records import LoopView

__all__ = ["evidence_entailment", "statement"]


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
    :class:`suffice.signals.kept.KeptEntailment`, which judges each pair once.

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

"""Relaxed stability: how much the answer resembles the previous round's."""

from __future__ import annotations

import difflib

from suffice.scoring import f1_score, normalize_answer
from suffice.signals.answer_stable import added_nothing
from suffice.signals.base import UNDEFINED, SignalSpec
from suffice.trace.records import LoopView

__all__ = [
    "ANSWER_SIMILARITY_F1",
    "ANSWER_SIMILARITY_SEQ",
    "answer_similarity_f1",
    "answer_similarity_seq",
]


def _pair(view: LoopView) -> tuple[str, str] | None:
    """Previous and current answer; ``None`` where ``answer_stable`` is undefined."""
    previous = view.previous
    if previous is None or added_nothing(view.current, view.rounds[:-1]):
        return None
    return previous.answer, view.current.answer


def answer_similarity_f1(view: LoopView) -> float:
    """Plain token F1 of the normalised answers of this round and the previous one, in [0, 1].

    0 when either is empty, two empty ones included (paper 0); undefined where ``answer_stable`` is.
    """
    pair = _pair(view)
    return UNDEFINED if pair is None else f1_score(pair[1], [pair[0]], "squad")


def answer_similarity_seq(view: LoopView) -> float:
    """Ratio of matching characters (difflib) of the normalised answers, previous first, in [0, 1].

    0 when either is empty, two empty ones included (paper 0); undefined where ``answer_stable`` is.
    """
    pair = _pair(view)
    if pair is None:
        return UNDEFINED
    previous, current = map(normalize_answer, pair)
    if not previous or not current:
        return 0.0
    return difflib.SequenceMatcher(None, previous, current, autojunk=False).ratio()


ANSWER_SIMILARITY_F1 = SignalSpec(
    name="answer_similarity_f1",
    summary="token F1 with the previous round's answer",
    low=0.0,
    high=1.0,
    compute=answer_similarity_f1,
)
ANSWER_SIMILARITY_SEQ = SignalSpec(
    name="answer_similarity_seq",
    summary="difflib ratio to the previous round's answer",
    low=0.0,
    high=1.0,
    compute=answer_similarity_seq,
)

"""Answer in evidence: the answer's words stand in what was read."""

from __future__ import annotations

from functools import lru_cache

from suffice.protocols import Absence
from suffice.scoring import normalize_answer
from suffice.signals.answer_stability import published_normalizer
from suffice.signals.spec import UNDEFINED, InColumns, SignalSpec
from suffice.trace.rounds.records import LoopView

NOT_EXTRACTIVE = frozenset({"", "yes", "no"})
"""Normalised answers that are not looked for."""


@lru_cache(maxsize=1024)
def _padded(text: str) -> str:
    """Normalised text between blanks, so that a match ends at word ends; kept for later rounds."""
    return f" {normalize_answer.__wrapped__(text)} "


def answer_in_evidence(view: LoopView) -> float:
    """1.0 when the normalised answer's words stand, in order, in one passage of rounds 1..t.

    Else 0.0. Texts without titles, normalised like the answer (paper 0; corrected: whole words,
    where the published substring finds "no" in "know"). Undefined for yes, no and empty answers,
    and when it is not found but some passage was recorded without its text or a round without its
    passages.
    """
    answer = normalize_answer(view.current.answer_text)
    if answer in NOT_EXTRACTIVE:
        return UNDEFINED
    wanted = f" {answer} "
    complete = True
    for round_ in reversed(view.rounds):
        complete = complete and round_.passages is not None
        for passage in round_.passages or ():
            if passage.text is None:
                complete = False
            elif wanted in _padded(passage.text):
                return 1.0
    return 0.0 if complete else UNDEFINED


_UNREAD = Absence(
    "the answer is not found, and a passage was recorded without its text or a round without its passages",
    lambda _: True,
)
ANSWER_IN_EVIDENCE = SignalSpec(
    name="answer_in_evidence",
    summary="1 when the answer's words stand in a passage",
    needs=("passages",),
    low=0.0,
    high=1.0,
    compute=answer_in_evidence,
    in_columns=InColumns("answer_in_evidence", "in_evidence"),
    undefined=(
        Absence(
            "the answer is yes, no or empty, or the letter A",
            lambda view: normalize_answer(view.current.answer_text) in NOT_EXTRACTIVE,
        ),
        _UNREAD,
    ),
    binary=True,
)


@lru_cache(maxsize=1024)
def _published(text: str) -> str:
    return published_normalizer(text)


def answer_in_evidence_published(view: LoopView) -> float:
    """Answer in evidence as the published code computes it (paper 0; published).

    1.0 when the answer is a substring of the texts of rounds 1..t put together, both in the published
    normal form: "no" hits "know", and a match may run from one passage into the next. 0.0 for an answer
    that normalises to nothing. Undefined when it is not found but some passage was recorded without its
    text or a round without its passages.
    """
    answer = published_normalizer(view.current.answer_text)
    passages = [passage for round_ in view.rounds for passage in round_.passages or ()]
    texts = [passage.text for passage in passages if passage.text is not None]
    if answer and answer in " ".join(filter(None, map(_published, texts))):
        return 1.0
    complete = len(texts) == len(passages) and all(
        round_.passages is not None for round_ in view.rounds
    )
    return 0.0 if complete else UNDEFINED


ANSWER_IN_EVIDENCE_PUBLISHED = SignalSpec(
    name="answer_in_evidence_published",
    summary="1 when the answer is a substring of the passages, as published",
    needs=("passages",),
    low=0.0,
    high=1.0,
    compute=answer_in_evidence_published,
    in_columns=InColumns("answer_in_evidence", "in_evidence_published"),
    undefined=(_UNREAD,),
    binary=True,
    variant_of="answer_in_evidence",
)

"""Abstention: the model says that it does not know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from suffice.errors import UsageError
from suffice.scoring import normalize_answer
from suffice.signals.spec import SignalSpec
from suffice.trace.rounds.records import LoopView

ABSTENTION_PHRASES: tuple[str, ...] = (
    "unknown",
    "not mentioned",
    "not specified",
    "not provided",
    "information not provided",
    "not enough information",
    "insufficient information",
    "cannot be determined",
    "na",
    "none",
)
"""Normalised answers that abstain; leave out ``none`` where it is a real answer."""

_USUAL = frozenset(ABSTENTION_PHRASES)


def _normalized(phrases: Iterable[str]) -> frozenset[str]:
    normalized = frozenset(normalize_answer(phrase) for phrase in phrases)
    if "no" in normalized:
        raise UsageError(
            'the abstention phrases hold "no", which answers a yes/no question; leave it out'
        )
    return normalized


def _abstains(answer: str, phrases: frozenset[str]) -> bool:
    normalized = normalize_answer(answer)
    return normalized == "" or normalized in phrases


def abstained(view: LoopView) -> float:
    """1.0 when the answer is empty or says that it is not known, else 0.0; always defined."""
    return float(_abstains(view.current.answer_text, _USUAL))


def abstained_signal(phrases: Iterable[str]) -> SignalSpec:
    """``abstained`` with other phrases than the usual ones, which are normalised here.

    Raises
    ------
    UsageError
        When ``phrases`` hold "no", which is an answer.

    >>> from suffice.trace.rounds.records import Round
    >>> own = abstained_signal(["I don't know."])
    >>> [own(LoopView("q", (Round(answer=text),))) for text in ("I don't know", "Not mentioned", "")]
    [1.0, 0.0, 1.0]
    """
    return replace(ABSTAINED, compute=_AbstainsBy(_normalized(phrases)), own_settings=True)


@dataclass(frozen=True, slots=True)
class _AbstainsBy:
    """``abstained`` by these phrases; alike where they are, so that it is computed once for all."""

    phrases: frozenset[str]

    def __call__(self, view: LoopView) -> float:
        return float(_abstains(view.current.answer_text, self.phrases))


ABSTAINED = SignalSpec(
    name="abstained",
    summary="1 when the answer is empty or says it is not known",
    low=0.0,
    high=1.0,
    direction="low",
    compute=abstained,
    binary=True,
)

"""Agreement among candidate texts by the tokens they share (paper 4, SC)."""

from __future__ import annotations

from collections.abc import Sequence

from suffice.signals.base import UNDEFINED, SignalSpec
from suffice.trace.records import LoopView

__all__ = ["CANDIDATE_AGREEMENT", "agreement", "candidate_agreement", "token_set"]


def token_set(text: str) -> frozenset[str]:
    """The upper-case tokens between white space; punctuation stays with its word (paper 4; published).

    >>> sorted(token_set("Enable TLS, then enable tls"))
    ['ENABLE', 'THEN', 'TLS', 'TLS,']
    """
    return frozenset(text.upper().split())


def agreement(candidates: Sequence[str]) -> float:
    """Tokens all candidates share over tokens any has, in [0, 1] (paper 4, Eq. 13); high: they agree.

    An empty union counts as 0, since failed generations are no agreement (corrected: the paper leaves
    it open). So one candidate gives 1 if it has a token, and an empty sequence gives 0.

    >>> agreement(["Enable TLS", "enable TLS now"])
    0.6666666666666666
    >>> agreement(["", ""]), agreement([]), agreement(["Enable TLS"])
    (0.0, 0.0, 1.0)
    """
    sets = [token_set(text) for text in candidates]
    union = frozenset[str]().union(*sets)
    return len(sets[0].intersection(*sets)) / len(union) if union else 0.0


def candidate_agreement(view: LoopView) -> float:
    """:func:`agreement` of the round's samples; undefined in a round without samples."""
    samples = view.current.samples
    return agreement(samples) if samples else UNDEFINED


CANDIDATE_AGREEMENT = SignalSpec(
    name="candidate_agreement",
    summary="token overlap of the candidate steps, or of the samples (paper 4, SC)",
    needs=("samples",),
    low=0.0,
    high=1.0,
    compute=candidate_agreement,
    instead="answer_token_margin (from tokens)",
)

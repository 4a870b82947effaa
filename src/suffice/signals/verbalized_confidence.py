"""Verbalized confidence: the model rates its own answer."""

from __future__ import annotations

from suffice.signals.base import UNDEFINED, SignalSpec
from suffice.trace.records import LoopView

__all__ = ["VERBALIZED_CONFIDENCE", "verbalized_confidence"]


def verbalized_confidence(view: LoopView) -> float:
    """The recorded rating, 1 to 5 (paper 0; corrected: undefined when missing or outside 1-5)."""
    rating = view.current.verbalized_confidence
    return rating if rating is not None and 1 <= rating <= 5 else UNDEFINED


VERBALIZED_CONFIDENCE = SignalSpec(
    name="verbalized_confidence",
    summary="the model's own rating, 1-5",
    needs=("verbalized_confidence",),
    low=1.0,
    high=5.0,
    compute=verbalized_confidence,
    instead="self_consistency (from samples)",
)

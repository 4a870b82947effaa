"""What a loop must give a policy, derived from the signals that it reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from suffice.protocols import LoopNeeds, Signal
from suffice.signals.recorded import LLM_STOP
from suffice.signals.spec import given_by

USUAL_SAMPLES = 3
"""Sampled answers a round for a policy that reads samples and does not say how many."""


def loop_needs(specs: Iterable[Signal], *, samples: int = USUAL_SAMPLES, **own: Any) -> LoopNeeds:
    """The needs of a policy that reads these signals.

    ``samples`` is how many it wants where it reads any; ``own`` are further fields of
    :class:`~suffice.protocols.LoopNeeds` that no signal tells.
    """
    read = tuple(map(given_by, specs))
    names = {spec.name for spec in read}
    asks = {spec.asks for spec in read}
    columns = {column for spec in read for column in spec.needs}
    return LoopNeeds(
        answers=any(spec.answers for spec in read),
        tokens="tokens" in columns,
        samples=samples if "samples" in columns else 0,
        judge="--llm" in asks,
        verdicts=LLM_STOP.name in names,
        encoder="--encoder" in asks,
        **own,
    )

"""Contradiction detectors by the names that a user types."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from studies.hidden_constraints.contradiction_head import ContradictionHead
from suffice.contracts import ContradictionDetector
from suffice.errors import UsageError
from suffice.loops.connecting import leads_nowhere
from suffice.retrieval.networks import NliCrossEncoder
from suffice.signals.samples import MarkerDetector


def connect_detector(name_or_path: str) -> ContradictionDetector:
    """The contradiction detector a name stands for; safe to call from several threads."""
    if name_or_path == "markers":
        return MarkerDetector()
    if name_or_path == "learned":
        return ContradictionHead.load()
    place = Path(name_or_path)
    if place.is_file() and place.suffix == ".npz":
        return ContradictionHead.load(place)
    if leads_nowhere(place) or (place.suffix == ".npz" and not place.exists()):
        raise UsageError(
            f"no contradiction detector {name_or_path!r}; name markers, learned, a head's .npz "
            "file, or an entailment cross-encoder by folder or as OWNER/NAME of the Hub"
        )
    return NliContradiction.load(place if place.exists() else name_or_path)


class NliContradiction(NliCrossEncoder):
    """Contradiction probabilities of an entailment network, whose quality here is not measured.

    Safe to call from several threads, which take turns.
    """

    label = "contradiction"
    _turn = threading.Lock()

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """The higher probability of the two orders of every pair, (len(pairs),), in [0, 1]."""
        turned = [(second, first) for first, second in pairs]
        with self._turn:
            probabilities = self.entailed([*pairs, *turned])
        return np.maximum(probabilities[: len(pairs)], probabilities[len(pairs) :])

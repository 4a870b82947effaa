"""How well a contradiction detector tells labelled pairs apart."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.bench.training.contradiction_pairs import KINDS, Pair
from suffice.errors import UsageError
from suffice.numbers.auroc import ResampledAuroc, auroc
from suffice.numbers.intervals.bootstrap import resampled_counts
from suffice.numbers.intervals.estimate import Estimate, from_draws
from suffice.protocols import ContradictionDetector

METRICS = ("accuracy", "precision", "recall", "f1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a detector is worth on labelled pairs.

    Parameters
    ----------
    metrics
        ``accuracy``, ``precision``, ``recall``, ``f1`` and ``auroc``, each with its 95% interval over
        resampled families, since pairs of a family resemble each other. A contradiction is the positive.
    flagged_by_kind
        Share called a contradiction, of each kind of pair.
    accuracy_by_family
        Of each family.
    seconds_a_pair
        Wall-clock, one pair a call, vectors of texts seen before kept.
    """

    metrics: Mapping[str, Estimate]
    flagged_by_kind: Mapping[str, float]
    accuracy_by_family: Mapping[str, float]
    seconds_a_pair: float

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "metrics": {name: value.to_json() for name, value in self.metrics.items()},
            "flagged_by_kind": dict(self.flagged_by_kind),
            "accuracy_by_family": dict(self.accuracy_by_family),
            "seconds_a_pair": self.seconds_a_pair,
        }


def counted_metrics(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """:data:`METRICS` of counts, (4, n).

    Parameters
    ----------
    counts
        (4, n): contradictions flagged, others flagged, contradictions missed, others left.

    Returns
    -------
    Values in [0, 1]. Precision is NaN where nothing is flagged, recall where there is no contradiction,
    F1 where both are so.
    """
    hit, alarm, missed, left = counts
    with np.errstate(invalid="ignore"):
        return np.array(
            [
                (hit + left) / (hit + alarm + missed + left),
                hit / (hit + alarm),
                hit / (hit + missed),
                2 * hit / (2 * hit + alarm + missed),
            ]
        )


def measure(
    detector: ContradictionDetector,
    pairs: Sequence[Pair],
    *,
    threshold: float = 0.5,
    resamples: int = 1000,
    seed: int = 42,
) -> Measured:
    """Ask a detector about every pair.

    Parameters
    ----------
    threshold
        Values of at least this flag a contradiction.
    resamples, seed
        Of the families, for the intervals.

    Raises
    ------
    UsageError
        Without pairs.
    BackendError
        When the detector's model fails.
    """
    if not pairs:
        raise UsageError("there are no pairs to measure a detector on")
    started = time.perf_counter()
    values = np.concatenate(
        [detector.contradictions([(each.step, each.candidate)]) for each in pairs]
    )
    seconds = (time.perf_counter() - started) / len(pairs)
    conflict = np.array([each.conflict for each in pairs])
    flagged = values >= threshold
    names, family = np.unique([each.family for each in pairs], return_inverse=True)
    kinds = np.array([each.kind for each in pairs])
    return Measured(
        metrics=_metrics(values, flagged, conflict, family, (resamples, seed)),
        flagged_by_kind={
            kind: float(flagged[kinds == kind].mean()) for kind in KINDS if (kinds == kind).any()
        },
        accuracy_by_family={
            str(name): float((flagged == conflict)[family == place].mean())
            for place, name in enumerate(names)
        },
        seconds_a_pair=seconds,
    )


def _metrics(
    values: NDArray[np.float64],
    flagged: NDArray[np.bool_],
    conflict: NDArray[np.bool_],
    family: NDArray[np.int64],
    draws: tuple[int, int],
) -> dict[str, Estimate]:
    n_families = int(family.max()) + 1
    cells = (flagged & conflict, flagged & ~conflict, ~flagged & conflict, ~flagged & ~conflict)
    by_family = np.array(
        [np.bincount(family, weights=cell, minlength=n_families) for cell in cells]
    )
    drawn = np.concatenate(
        list(resampled_counts(n_families, resamples=draws[0], seed=draws[1]))
    ).T  # (n_families, n_draws)
    plain = counted_metrics(by_family.sum(axis=1, keepdims=True))[:, 0]
    resampled = counted_metrics(by_family @ drawn)
    found = {
        name: from_draws(float(plain[row]), resampled[row]) for row, name in enumerate(METRICS)
    }
    areas = ResampledAuroc(values, conflict, family, n_families)(drawn)
    found["auroc"] = from_draws(auroc(values, conflict), areas)
    return found

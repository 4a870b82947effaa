"""Risk against coverage: the mean loss of the most confident share of the answers.

Equal confidences have no order: the risk inside such a group is the mean over all its orders. So a constant
confidence has the same risk at every coverage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.stats.units import Array

_MOST_POINTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskCoverage:
    """Hold coverages (n_questions,), from 1/n to 1, and the risk there by the score's name."""

    coverage: Array
    confidence: Array
    risk: Mapping[str, Array]

    def thinned(self) -> RiskCoverage:
        """Return the curve at about 100 evenly spaced points, the last one included."""
        count = len(self.coverage)
        kept = np.unique(np.linspace(0, count - 1, min(count, _MOST_POINTS)).round().astype(int))
        return RiskCoverage(
            coverage=self.coverage[kept],
            confidence=self.confidence[kept],
            risk={name: values[kept] for name, values in self.risk.items()},
        )

    def to_json(self) -> dict[str, list[Any]]:
        """Return strict JSON of the thinned curve."""
        thin = self.thinned()
        return {
            "coverage": thin.coverage.tolist(),
            "confidence": [
                None if math.isnan(value) else value for value in thin.confidence.tolist()
            ],
            **{f"risk_{name}": values.tolist() for name, values in thin.risk.items()},
        }


def risk_coverage(
    confidence: Array, losses: Mapping[str, Array], *, sign: float = 1.0
) -> RiskCoverage:
    """Compute the curve of a confidence (n_questions,) for losses of that shape."""
    count = len(confidence)
    ordered = np.where(np.isnan(confidence), -np.inf, sign * confidence)
    return RiskCoverage(
        coverage=np.arange(1, count + 1) / count,
        confidence=confidence[np.argsort(-ordered, kind="stable")],
        risk={name: _risks(ordered, values) for name, values in losses.items()},
    )


def _groups(confidence: Array) -> NDArray[np.int64]:
    """Number the groups of equal confidence, the most confident first."""
    _, inverse = np.unique(-confidence, return_inverse=True)
    return np.asarray(inverse.reshape(-1), np.int64)


def _risks(confidence: Array, losses: Array) -> Array:
    groups = _groups(confidence)
    sizes = np.bincount(groups)
    means = np.bincount(groups, weights=losses) / sizes
    return np.asarray(np.cumsum(np.repeat(means, sizes)) / np.arange(1, len(losses) + 1))


def aurc(confidence: Array, losses: Array) -> float:
    """Return the mean risk over coverages 1/n .. 1, in [0, 1]; low is good (Geifman et al., 2019, Eq. 2)."""
    return float(_risks(confidence, losses).mean())


class ResampledAurc:
    """Compute the area and its excess over the optimum under many resamples of the answers."""

    def __init__(self, confidence: Array, losses: Array) -> None:
        area = aurc(confidence, losses)
        # the least area, where lower losses are answered first
        self.plain: tuple[float, float] = (area, area - aurc(-losses, losses))
        self._orders = ((_groups(confidence), losses), (_groups(-losses), losses))

    def __call__(self, counts: Array) -> Array:
        """Return area and excess for ``counts`` (n_draws, n_questions), (2, n_draws)."""
        areas = np.empty((2, len(counts)))
        coverage = np.arange(1, counts.shape[1] + 1)
        for number, weights in enumerate(counts):
            area, least = (
                (np.cumsum(_drawn(groups, losses, weights)) / coverage).mean()
                for groups, losses in self._orders
            )
            areas[:, number] = area, area - least
        return areas


def _drawn(groups: NDArray[np.int64], losses: Array, weights: Array) -> Array:
    """Return expected losses in the order of answering, (n_questions,)."""
    sizes = np.bincount(groups, weights=weights)
    sums = np.bincount(groups, weights=weights * losses)
    means = sums / np.where(sizes > 0, sizes, 1.0)
    return np.repeat(means, sizes.astype(np.int64))

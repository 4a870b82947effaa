"""Several records side by side, as TASR's figures show its cells: what is gained at equal cost, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from suffice.policies.defaults import MARGIN
from suffice.replay.diagnose.reliability import ReliabilityBucket, buckets
from suffice.replay.run.compare import Comparison
from suffice.replay.run.macro import MacroResult, macro_means
from suffice.replay.run.results import ReplayResult
from suffice.results.as_json import as_json
from suffice.signals.available import given_signals

CONFIDENCE = "verbalized_confidence"
_EDGES = {MARGIN: (0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, np.inf), CONFIDENCE: (1, 2, 3, 4, 5, np.inf)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ByCorrectness:
    """A signal of all labelled rounds of a cell, apart for right answers and wrong ones.

    ``right`` and ``wrong`` count the rounds from each of ``starts`` to the next. ``buckets`` hold equally
    many rounds each, in order of the signal.
    """

    signal: str
    starts: tuple[float, ...]
    right: tuple[int, ...]
    wrong: tuple[int, ...]
    mean_right: float | None
    mean_wrong: float | None
    entropy_nats: float
    buckets: tuple[ReliabilityBucket, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Replays of the same policies on several records, their means, the line through the mean fixed budgets
    (mean rounds, mean score), and the signals of each record that has them.
    """

    results: tuple[ReplayResult, ...]
    macro: MacroResult
    frontier: tuple[tuple[float, float], ...]
    signals: tuple[tuple[ByCorrectness, ...], ...]

    def to_json(self) -> dict[str, object]:
        """Strict JSON; the replays stand in documents of their own."""
        return {name: as_json(getattr(self, name)) for name in ("frontier", "signals")}


def cells(comparisons: Sequence[Comparison]) -> Cells:
    """Put comparisons of the same policies side by side."""
    macro = macro_means(comparisons)
    placed = zip(comparisons[0].result.policies, macro.policies, strict=True)
    return Cells(
        results=tuple(comparison.result for comparison in comparisons),
        macro=macro,
        frontier=tuple(
            sorted(
                (mean.mean_rounds, mean.score.estimate)
                for policy, mean in placed
                if policy.kind == "fixed"
            )
        ),
        signals=tuple(_signals(comparison) for comparison in comparisons),
    )


def _signals(comparison: Comparison) -> tuple[ByCorrectness, ...]:
    """Those of the paper's figures that are defined in some labelled round."""
    measures = comparison.measures
    if not measures.metric.gold:
        return ()
    em = measures.scores(comparison.result.f1_kind).em
    given = given_signals(measures.traces)
    table = measures.signals(tuple(name for name in _EDGES if name in given))
    found = ((name, table.signal(name)) for name in _EDGES if name in given)
    usable = ((name, values, np.isfinite(values) & np.isfinite(em)) for name, values in found)
    return tuple(
        _by_correctness(name, values[there], em[there])
        for name, values, there in usable
        if there.any()
    )


def _by_correctness(
    signal: str, values: NDArray[np.float64], em: NDArray[np.float64]
) -> ByCorrectness:
    edges = _EDGES[signal]
    bins = [(values >= low) & (values < high) for low, high in pairwise(edges)]
    right, wrong = values[em == 1.0], values[em != 1.0]
    shares = np.unique(values, return_counts=True)[1] / len(values)
    return ByCorrectness(
        signal=signal,
        starts=edges[:-1],
        right=tuple(int((inside & (em == 1.0)).sum()) for inside in bins),
        wrong=tuple(int((inside & (em != 1.0)).sum()) for inside in bins),
        mean_right=float(right.mean()) if len(right) else None,
        mean_wrong=float(wrong.mean()) if len(wrong) else None,
        entropy_nats=max(0.0, -float((shares * np.log(shares)).sum())),
        buckets=buckets(values, em) if signal == MARGIN else (),
    )

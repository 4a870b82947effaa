"""Reliability of calibrated values, and a comparison of calibrators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, get_args

import numpy as np

from suffice._version import VERSION
from suffice.contracts import CalibratedPolicy
from suffice.errors import UsageError, counted
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT, MARGIN, CalibratorKind
from suffice.policies.fitting import FitData, fit_calibrator, fit_data, foretold, out_of_fold
from suffice.policies.rules.language import Calibrated
from suffice.results.as_json import as_json
from suffice.results.table import Cell, Column, Described, Table, Value, table_of
from suffice.results.tabular import Tabular
from suffice.signals.signal_table import SignalTable
from suffice.stats.intervals import percentile_interval, resampled_means
from suffice.stats.p_values import rate_interval
from suffice.stats.quality import (
    equal_size_edges,
    expected_calibration_error,
    log_loss,
    squared_errors,
)
from suffice.stats.units import Array, per_unit
from suffice.trace.rounds.trace_set import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBucket:
    """Mean calibrated value and share of right answers among ``count``, with a 95% Wilson interval."""

    predicted: float
    right: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Buckets of one calibrated signal in one round; ``undefined`` answers had no value."""

    signal: str
    round: int
    buckets: tuple[ReliabilityBucket, ...]
    undefined: int


def buckets(predicted: Array, right: Array, *, count: int = 5) -> tuple[ReliabilityBucket, ...]:
    """Return equal-size buckets in order of the predicted value; equal values stay together."""
    order = np.argsort(predicted, kind="stable")
    predicted, right = predicted[order], right[order]
    made = []
    for start, stop in pairwise(equal_size_edges(predicted, count)):
        low, high = rate_interval(float(right[start:stop].sum()), stop - start)
        made.append(
            ReliabilityBucket(
                predicted=float(predicted[start:stop].mean()),
                right=float(right[start:stop].mean()),
                low=low,
                high=high,
                count=stop - start,
            )
        )
    return tuple(made)


def reliability(
    policy: CalibratedPolicy, table: SignalTable, scored: Outcomes
) -> Sequence[Reliability]:
    rounds = []
    for signal, calibrator in policy.calibrators.items():
        part = Calibrated.of(signal)
        values, outcomes = table.signal(part.name), foretold(scored.em, part.target)
        for number, right in enumerate(outcomes.T, start=1):
            predicted = calibrator.predict(number, values[:, number - 1])
            recorded = np.isfinite(right)
            usable = recorded & np.isfinite(predicted)
            if recorded.any():
                rounds.append(
                    Reliability(
                        signal=signal,
                        round=number,
                        buckets=buckets(predicted[usable], right[usable]) if usable.any() else (),
                        undefined=int((recorded & ~usable).sum()),
                    )
                )
    return rounds


KINDS: tuple[CalibratorKind, ...] = get_args(CalibratorKind)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CalibratorStudy(Tabular):
    source: str
    tune_split: str
    eval_split: str
    tune_questions: int
    eval_questions: int
    results: tuple[Mapping[str, Any], ...]

    def tables(self) -> tuple[Table]:
        first = self.results[0]

        def against_first(score: Mapping[str, Any]) -> Value:
            return Cell(None, "(the first)") if score is first else score["eval"]["delta_brier"]

        def number(name: str, digits: int, head: str | None = None, **more: bool) -> Column:
            return Column(name=name, kind="number", digits=digits, head=head, **more)

        head = f"against {first['kind']}"
        described: list[Described] = [
            ("kind", Column(name="calibrator")),
            ("tune_out_of_fold.brier.estimate", number("tune", 4)),
            ("eval.brier", number("eval", 4, "eval [95%]", interval=True)),
            (against_first, number("delta", 4, head, interval=True, signed=True)),
            (
                "tune_out_of_fold.log_loss",
                number("tune_log_loss", 3, "log loss tune", in_text=False),
            ),
            ("eval.log_loss", number("log_loss", 3, "log loss")),
            ("tune_out_of_fold.ece", number("tune_ece", 3, "ECE tune", in_text=False)),
            ("eval.ece", number("ece", 3, "ECE")),
            ("eval.rows", Column(name="rows", kind="count", head="rounds scored", in_text=False)),
        ]
        title = (
            f"Calibrators of {MARGIN}, fitted on {self.tune_split}: Brier scores on {self.tune_split} "
            f"(out of fold, {counted(self.tune_questions, 'question')}) and on {self.eval_split} "
            f"({self.eval_questions}). Log loss and ECE are on eval; lower is better."
        )
        return (table_of("calibrators", self.results, described, title),)

    def to_json(self) -> dict[str, Any]:
        return {
            "traces": self.source,
            "version": VERSION,
            "signal": MARGIN,
            "tune": {"split": self.tune_split, "labelled": self.tune_questions},
            "eval": {"split": self.eval_split, "labelled": self.eval_questions},
            "kinds": as_json(self.results),
        }


def calibrator_study(
    traces: TraceSet | Measures,
    *,
    kinds: Sequence[CalibratorKind] = KINDS,
    tune_split: str = FIT_SPLIT,
    eval_split: str = EVAL_SPLIT,
) -> CalibratorStudy:
    """Fit every kind on tune and score its probabilities of the margin: there out of fold, and on eval."""
    measures = Measures.of(traces)
    parts = [fit_data(measures, (MARGIN,), split=split) for split in (tune_split, eval_split)]
    tune, held_out = parts
    margins = held_out.table.signal(MARGIN)
    predicted = [
        [out_of_fold(tune, MARGIN, kind=kind) for kind in kinds],
        [fit_calibrator(tune, MARGIN, kind=kind).predict_rounds(margins) for kind in kinds],
    ]
    scored = [
        _probability_scores(values, data) for values, data in zip(predicted, parts, strict=True)
    ]
    results = tuple(
        {"kind": kind, "tune_out_of_fold": on_tune, "eval": on_eval}
        for kind, on_tune, on_eval in zip(kinds, *scored, strict=True)
    )
    return CalibratorStudy(
        source=measures.traces.origin.source,
        tune_split=tune_split,
        eval_split=eval_split,
        tune_questions=int(tune.outcomes.labelled.sum()),
        eval_questions=int(held_out.outcomes.labelled.sum()),
        results=results,
    )


def _probability_scores(predictions: Sequence[Array], data: FitData) -> list[dict[str, Any]]:
    """Score each kind's probabilities (n_questions, n_rounds) against exact match, on common rows."""
    em = data.outcomes.em
    usable = np.isfinite(em) & np.all([np.isfinite(predicted) for predicted in predictions], axis=0)
    if not usable.any():
        raise UsageError(
            f"no labeled round of split {data.provenance['split']!r} in {data.provenance['source']} has a "
            f"calibrated {MARGIN}"
        )
    errors = [
        np.where(usable, squared_errors(predicted, em), 0.0).sum(axis=1)
        for predicted in predictions
    ]
    some = usable.any(axis=1)
    columns = per_unit(np.stack([*errors, usable.sum(axis=1)], axis=1)[some], data.units[some])
    draws = resampled_means(columns)  # a unit is drawn with all its rounds
    means = columns.mean(axis=0)
    scores, drawn = means[:-1] / means[-1], draws[:, :-1] / draws[:, -1:]
    return [
        {
            "brier": percentile_interval(float(scores[kind]), drawn[:, kind]),
            "delta_brier": percentile_interval(
                float(scores[kind] - scores[0]), drawn[:, kind] - drawn[:, 0]
            ),
            "log_loss": log_loss(values[usable], em[usable]),
            "ece": expected_calibration_error(values[usable], em[usable]),
            "rows": int(usable.sum()),
        }
        for kind, values in enumerate(predictions)
    ]

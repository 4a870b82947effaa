"""How sure calibrated values are of answers, how often these are right, and which calibrator is better."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from suffice._version import VERSION
from suffice.contracts import CalibratedPolicy
from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.policies.defaults import (
    EVAL_SPLIT,
    FIT_SPLIT,
    FLOORS,
    MARGIN,
    TEMPLATE,
    CalibratorKind,
)
from suffice.policies.fitting import FitData, fit_data, fitted_rule, out_of_fold
from suffice.policies.rules.policy import rule_needs
from suffice.policies.thresholds import cheapest_within_one_error, fill, open_rule
from suffice.results.as_json import as_json
from suffice.results.table import Cell, Column, Described, Table, Value, table_of
from suffice.results.tabular import Tabular
from suffice.signals.known_signals import own_among
from suffice.signals.signal_table import SignalTable, first_stops
from suffice.stats.intervals import Interval, percentile_interval, resampled_means
from suffice.stats.quality import (
    equal_size_edges,
    expected_calibration_error,
    log_loss,
    squared_errors,
)
from suffice.stats.units import unit_means
from suffice.trace.rounds.trace_set import TraceSet

_Z = 1.959963984540054  # 97.5% quantile of the standard normal


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBucket:
    """Mean calibrated value and share right among ``count`` answers, with a 95% Wilson interval."""

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


def wilson(successes: float, count: int) -> tuple[float, float]:
    """95% Wilson score interval of a share; (0, 1) for no observation."""
    if count == 0:
        return 0.0, 1.0
    share, z2 = successes / count, _Z * _Z
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = (
        _Z
        * float(np.sqrt(share * (1 - share) / count + z2 / (4 * count * count)))
        / (1 + z2 / count)
    )
    # rounding must not push an end past the share itself
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def buckets(
    predicted: NDArray[np.float64], right: NDArray[np.float64], *, count: int = 5
) -> tuple[ReliabilityBucket, ...]:
    """Equal-size buckets in order of the predicted value; equal values are never split."""
    order = np.argsort(predicted, kind="stable")
    predicted, right = predicted[order], right[order]
    made = []
    for start, stop in pairwise(equal_size_edges(predicted, count)):
        low, high = wilson(float(right[start:stop].sum()), stop - start)
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
    """Every calibrated signal of the policy in every round that has labelled answers."""
    rounds = []
    for signal, calibrator in policy.calibrators.items():
        values = table.signal(signal)
        for number in range(1, table.n_rounds + 1):
            right = scored.em[:, number - 1]
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
    """Kinds side by side, in the order asked for, each as JSON has it; questions are the labelled ones."""

    signal: str
    rule: str
    source: str
    tune_split: str
    eval_split: str
    tune_questions: int
    eval_questions: int
    results: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()

    def tables(self) -> tuple[Table, ...]:
        """The kinds by their probabilities, and by their rules, with the notes."""
        first = self.results[0]

        def against(*of: str) -> Callable[[Mapping[str, Any]], Value]:
            return lambda score: (
                Cell(None, "(the first)") if score is first else score[of[0]][of[1]]
            )

        def number(name: str, digits: int, head: str | None = None, **more: bool) -> Column:
            return Column(name=name, kind="number", digits=digits, head=head, **more)

        head = f"against {first['kind']}"
        kind: Described = ("kind", Column(name="calibrator"))
        probabilities = table_of(
            "calibrators",
            self.results,
            (
                kind,
                ("tune_out_of_fold.brier.estimate", number("tune", 4)),
                ("eval.brier", number("eval", 4, "eval [95%]", interval=True)),
                (
                    against("eval", "delta_brier"),
                    number("delta", 4, head, interval=True, signed=True),
                ),
                (
                    "tune_out_of_fold.log_loss",
                    number("tune_log_loss", 3, "log loss tune", in_text=False),
                ),
                ("eval.log_loss", number("log_loss", 3, "log loss")),
                ("tune_out_of_fold.ece", number("tune_ece", 3, "ECE tune", in_text=False)),
                ("eval.ece", number("ece", 3, "ECE")),
                (
                    "eval.rows",
                    Column(name="rows", kind="count", head="rounds scored", in_text=False),
                ),
            ),
            title=f"Brier score of calibrators of {self.signal}, fitted on {self.tune_split} (out of fold "
            f"there, {self.tune_questions} questions), and on {self.eval_split} ({self.eval_questions}); "
            "log loss and ECE on eval; lower is better.",
        )
        rules = table_of(
            "rules of calibrators",
            self.results,
            (
                kind,
                ("rule.floor", Column(name="floor", kind="significant")),
                ("rule.f1", Column(name="f1", kind="percent", interval=True, head="F1 [95%]")),
                (
                    against("rule", "delta_f1"),
                    Column(name="delta_f1", kind="points", interval=True, head=head),
                ),
                ("rule.em", Column(name="em", kind="percent", head="EM")),
                ("rule.mean_rounds", number("rule.mean_rounds", 2, "rounds")),
            ),
            title=f"The rule that reads them, F1 and EM in percent on eval: {self.rule}",
            notes=[f"Note: {note}." for note in self.notes],
        )
        return probabilities, rules

    def to_json(self) -> dict[str, Any]:
        """Strict JSON: both scores of every kind, and the notes."""
        return {
            "traces": self.source,
            "version": VERSION,
            "signal": self.signal,
            "rule": self.rule,
            "tune": {"split": self.tune_split, "labelled": self.tune_questions},
            "eval": {"split": self.eval_split, "labelled": self.eval_questions},
            "kinds": as_json(self.results),
            "notes": list(self.notes),
        }


def calibrator_study(
    traces: TraceSet | Measures,
    *,
    kinds: Sequence[CalibratorKind] = KINDS,
    tune_split: str = FIT_SPLIT,
    eval_split: str = EVAL_SPLIT,
) -> CalibratorStudy:
    """Fit every kind on tune, score its probabilities, then the rule that reads them."""
    signal, rule = MARGIN, TEMPLATE
    if tune_split == eval_split:
        raise UsageError(f"fitting and scoring need two splits, found {tune_split!r} for both")
    needs = rule_needs(fill(rule, 0.0))
    measures = Measures.of(traces)
    tune = fit_data(measures, needs.signals, split=tune_split)
    held_out = fit_data(measures, needs.signals, split=eval_split)
    own = own_among(needs.signals, measures.traces.signal_names)
    predicted, stops, rules = [], [], []
    for kind in kinds:
        swept = open_rule(rule, tune, calibrator=kind)
        floor = swept.chosen(FLOORS, cheapest_within_one_error).threshold
        policy = fitted_rule(fill(rule, floor), tune, own_signals=own, calibrator=kind)
        on_eval = policy.calibrators[signal].predict_rounds(held_out.table.signal(signal))
        predicted.append((out_of_fold(tune, signal, kind=kind), on_eval))
        ends = held_out.table.exists.sum(axis=1)
        stops.append(np.minimum(first_stops(policy, held_out.table), ends).astype(np.int64))
        rules.append({"text": policy.rule, "floor": floor})
    scored = [
        _probability_scores(values, data, signal)
        for values, data in zip(zip(*predicted, strict=True), (tune, held_out), strict=True)
    ]
    labelled, rows = held_out.outcomes.labelled, np.arange(len(held_out.units))
    f1, em = (
        np.stack([values[rows, stopped - 1][labelled] for stopped in stops], axis=1)
        for values in (held_out.outcomes.f1, held_out.outcomes.em)
    )
    columns = unit_means(f1, held_out.units[labelled])
    against = _against_first(columns.mean(axis=0), resampled_means(columns))
    results = tuple(
        {
            "kind": kind,
            "tune_out_of_fold": scored[0][number],
            "eval": scored[1][number],
            "rule": {
                **rules[number],
                "f1": against[number][0],
                "delta_f1": against[number][1],
                "em": float(em[:, number].mean()),
                "mean_rounds": float(stops[number][labelled].mean()),
            },
        }
        for number, kind in enumerate(kinds)
    )
    return CalibratorStudy(
        signal=signal,
        rule=rule,
        source=measures.traces.origin.source,
        tune_split=tune_split,
        eval_split=eval_split,
        tune_questions=int(tune.outcomes.labelled.sum()),
        eval_questions=int(held_out.outcomes.labelled.sum()),
        results=results,
        notes=_notes(results),
    )


def _probability_scores(
    predictions: Sequence[NDArray[np.float64]], data: FitData, signal: str
) -> list[dict[str, Any]]:
    """Each kind's probabilities (n_questions, n_rounds) against exact match, on common rows."""
    em = data.outcomes.em
    usable = np.isfinite(em) & np.all([np.isfinite(predicted) for predicted in predictions], axis=0)
    if not usable.any():
        raise UsageError(
            f"no labelled round of split {data.provenance['split']!r} in "
            f"{data.provenance['source']} has a calibrated {signal}"
        )
    errors = [
        np.where(usable, squared_errors(predicted, em), 0.0).sum(axis=1)
        for predicted in predictions
    ]
    some = usable.any(axis=1)
    columns = unit_means(np.stack([*errors, usable.sum(axis=1)], axis=1)[some], data.units[some])
    draws = resampled_means(columns)  # a unit is drawn with all its rounds
    means = columns.mean(axis=0)
    scores, drawn = means[:-1] / means[-1], draws[:, :-1] / draws[:, -1:]
    return [
        {
            "brier": brier,
            "delta_brier": delta,
            "log_loss": log_loss(values[usable], em[usable]),
            "ece": expected_calibration_error(values[usable], em[usable]),
            "rows": int(usable.sum()),
        }
        for values, (brier, delta) in zip(predictions, _against_first(scores, drawn), strict=True)
    ]


def _against_first(
    values: NDArray[np.float64], draws: NDArray[np.float64]
) -> list[tuple[Interval, Interval]]:
    """Each value with its interval, and its difference from the first on the same draws."""
    return [
        (
            percentile_interval(float(value), draws[:, number]),
            percentile_interval(float(value - values[0]), draws[:, number] - draws[:, 0]),
        )
        for number, value in enumerate(values)
    ]


def _notes(results: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    notes = []
    crossed = []
    for better, worse in permutations(results, 2):
        (brier, f1), (other_brier, other_f1) = (
            (one["eval"]["brier"], one["rule"]["f1"]) for one in (better, worse)
        )
        if brier.estimate < other_brier.estimate and f1.estimate < other_f1.estimate:
            overlap = f1.low <= other_f1.high and other_f1.low <= f1.high
            said = (
                f"better probabilities do not make the better rule here: on eval {better['kind']} has the "
                f"lower Brier score ({brier.estimate:.4f} against {other_brier.estimate:.4f} for "
                f"{worse['kind']}), and its rule the lower F1 ({f1.estimate:.3f} against "
                f"{other_f1.estimate:.3f}, at {better['rule']['mean_rounds']:.2f} and "
                f"{worse['rule']['mean_rounds']:.2f} rounds"
                f"{', which may be chance: the intervals overlap' if overlap else ''})"
            )
            crossed.append((other_f1.estimate - f1.estimate, said))
    if crossed:
        notes.append(max(crossed, key=lambda one: one[0])[1])
    deltas = [score["eval"]["delta_brier"] for score in results[1:]]
    if deltas and all(delta.low <= 0.0 <= delta.high for delta in deltas):
        notes.append(
            f"no kind's Brier score on eval differs from that of {results[0]['kind']} by more than the "
            "questions drawn could explain (95% intervals hold 0)"
        )
    return tuple(notes)

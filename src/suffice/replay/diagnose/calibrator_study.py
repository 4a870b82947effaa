"""Which calibrator is better: by its probabilities, and by the rule that reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from operator import attrgetter
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from suffice._version import VERSION
from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_means
from suffice.numbers.maps.quality import expected_calibration_error, log_loss, squared_errors
from suffice.numbers.units import unit_means
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
from suffice.replay.diagnose.signal_tables import Described, table_of
from suffice.results.as_json import as_json
from suffice.results.table import Cell, Column, Table, Value
from suffice.results.tabular import Tabular
from suffice.signals.registry import own_among
from suffice.signals.table import first_stops
from suffice.trace.rounds.table import TraceSet

KINDS: tuple[CalibratorKind, ...] = get_args(CalibratorKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbabilityScore:
    """How good the calibrated values of one split are; lower is better for all three.

    ``brier`` has a 95% interval over resampled questions, the fitted maps held as they are;
    ``delta_brier`` is its difference from the first kind's on the same draws. ``log_loss`` is in nats,
    ``ece`` over ten equal-size buckets. All kinds are scored on the same ``rows``: rounds that are
    labelled and that every kind has a value for.
    """

    brier: Interval
    delta_brier: Interval
    log_loss: float
    ece: float
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratorScore:
    """One kind: its probabilities out of fold on tune and on eval, and the rule that reads them.

    ``floor`` was chosen on tune out of fold, as TASR's corrected preset chooses it; ``f1``, ``em``
    (fractions) and ``mean_rounds`` are the rule's over the labelled questions of eval. ``delta_f1`` is
    the difference from the first kind's F1 on the same draws.
    """

    kind: CalibratorKind
    tune: ProbabilityScore
    eval: ProbabilityScore
    floor: float
    rule: str
    f1: Interval
    delta_f1: Interval
    em: float
    mean_rounds: float

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "kind": self.kind,
            "tune_out_of_fold": as_json(self.tune),
            "eval": as_json(self.eval),
            "rule": {
                "text": self.rule,
                "floor": self.floor,
                "f1": as_json(self.f1),
                "delta_f1": as_json(self.delta_f1),
                "em": self.em,
                "mean_rounds": self.mean_rounds,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CalibratorStudy(Tabular):
    """Kinds side by side, in the order asked for; questions are the labelled ones.

    ``notes`` are sentences a reader must know.
    """

    signal: str
    rule: str
    source: str
    tune_split: str
    eval_split: str
    tune_questions: int
    eval_questions: int
    results: tuple[CalibratorScore, ...]
    notes: tuple[str, ...] = ()

    def tables(self) -> tuple[Table, ...]:
        """The kinds by their probabilities, and by their rules, with the notes."""
        first = self.results[0]

        def against(of: str) -> Callable[[CalibratorScore], Value]:
            return lambda score: (
                Cell(None, "(the first)") if score is first else attrgetter(of)(score)
            )

        def number(name: str, digits: int, head: str | None = None, **more: bool) -> Column:
            return Column(name=name, kind="number", digits=digits, head=head, **more)

        head = f"against {first.kind}"
        kind: Described = ("kind", Column(name="calibrator"))
        probabilities = table_of(
            "calibrators",
            self.results,
            (
                kind,
                ("tune.brier.estimate", number("tune", 4)),
                ("eval.brier", number("eval", 4, "eval [95%]", interval=True)),
                (
                    against("eval.delta_brier"),
                    number("delta", 4, head, interval=True, signed=True),
                ),
                ("tune.log_loss", number("tune_log_loss", 3, "log loss tune", in_text=False)),
                ("eval.log_loss", number("log_loss", 3, "log loss")),
                ("tune.ece", number("tune_ece", 3, "ECE tune", in_text=False)),
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
                ("floor", Column(name="floor", kind="significant")),
                ("f1", Column(name="f1", kind="percent", interval=True, head="F1 [95%]")),
                (
                    against("delta_f1"),
                    Column(name="delta_f1", kind="points", interval=True, head=head),
                ),
                ("em", Column(name="em", kind="percent", head="EM")),
                ("mean_rounds", number("mean_rounds", 2, "rounds")),
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
            "kinds": [score.to_json() for score in self.results],
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
    fitted = [_Fitted(kind, rule, signal, tune, own) for kind in kinds]
    results = _results(fitted, signal, tune, held_out)
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


class _Fitted:
    """One kind fitted on tune, with the floor it led to."""

    def __init__(
        self, kind: CalibratorKind, rule: str, signal: str, tune: FitData, own: tuple[str, ...]
    ) -> None:
        self.kind = kind
        self.out_of_fold = out_of_fold(tune, signal, kind=kind)
        swept = open_rule(rule, tune, calibrator=kind)
        self.floor = swept.chosen(FLOORS, cheapest_within_one_error).threshold
        self.policy = fitted_rule(fill(rule, self.floor), tune, own_signals=own, calibrator=kind)
        self.calibrator = self.policy.calibrators[signal]

    def stops(self, data: FitData) -> NDArray[np.int64]:
        """The round each question stops at, (n_questions,)."""
        wanted = first_stops(self.policy, data.table).astype(np.int64)
        last = data.table.exists.sum(axis=1).astype(np.int64)
        return np.asarray(np.minimum(wanted, last), np.int64)


def _results(
    fitted: Sequence[_Fitted], signal: str, tune: FitData, held_out: FitData
) -> tuple[CalibratorScore, ...]:
    predictions = [fit.calibrator.predict_rounds(held_out.table.signal(signal)) for fit in fitted]
    stops = [fit.stops(held_out) for fit in fitted]
    scored = zip(
        fitted,
        _probability_scores([fit.out_of_fold for fit in fitted], tune, signal),
        _probability_scores(predictions, held_out, signal),
        stops,
        _rule_f1(stops, held_out),
        strict=True,
    )
    return tuple(
        CalibratorScore(
            kind=fit.kind,
            tune=on_tune,
            eval=on_eval,
            floor=fit.floor,
            rule=fit.policy.rule,
            f1=f1,
            delta_f1=delta_f1,
            em=float(_at(held_out.outcomes.em, stopped, held_out).mean()),
            mean_rounds=float(stopped[held_out.outcomes.labelled].mean()),
        )
        for fit, on_tune, on_eval, stopped, (f1, delta_f1) in scored
    )


def _probability_scores(
    predictions: Sequence[NDArray[np.float64]], data: FitData, signal: str
) -> list[ProbabilityScore]:
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
        ProbabilityScore(
            brier=brier,
            delta_brier=delta,
            log_loss=log_loss(predicted[usable], em[usable]),
            ece=expected_calibration_error(predicted[usable], em[usable]),
            rows=int(usable.sum()),
        )
        for predicted, (brier, delta) in zip(
            predictions, _against_first(scores, drawn), strict=True
        )
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


def _at(
    values: NDArray[np.float64], stops: NDArray[np.int64], data: FitData
) -> NDArray[np.float64]:
    return values[np.arange(len(stops)), stops - 1][data.outcomes.labelled]


def _rule_f1(stops: Sequence[NDArray[np.int64]], data: FitData) -> list[tuple[Interval, Interval]]:
    """F1 of each kind's rule, and its difference from the first kind's."""
    columns = np.stack([_at(data.outcomes.f1, stopped, data) for stopped in stops], axis=1)
    columns = unit_means(columns, data.units[data.outcomes.labelled])
    return _against_first(columns.mean(axis=0), resampled_means(columns))


def _notes(results: Sequence[CalibratorScore]) -> tuple[str, ...]:
    notes = []
    crossed = [
        (better, worse)
        for better, worse in permutations(results, 2)
        if better.eval.brier.estimate < worse.eval.brier.estimate
        and better.f1.estimate < worse.f1.estimate
    ]
    if crossed:
        better, worse = max(crossed, key=lambda pair: pair[1].f1.estimate - pair[0].f1.estimate)
        overlap = better.f1.low <= worse.f1.high and worse.f1.low <= better.f1.high
        notes.append(
            f"better probabilities do not make the better rule here: on eval {better.kind} has the lower "
            f"Brier score ({better.eval.brier.estimate:.4f} against {worse.eval.brier.estimate:.4f} for "
            f"{worse.kind}), and its rule the lower F1 ({better.f1.estimate:.3f} against "
            f"{worse.f1.estimate:.3f}, at {better.mean_rounds:.2f} and {worse.mean_rounds:.2f} rounds"
            f"{', which may be chance: the intervals overlap' if overlap else ''})"
        )
    others = results[1:]
    if others and all(
        score.eval.delta_brier.low <= 0.0 <= score.eval.delta_brier.high for score in others
    ):
        notes.append(
            f"no kind's Brier score on eval differs from that of {results[0].kind} by more than the "
            "questions drawn could explain (95% intervals hold 0)"
        )
    return tuple(notes)

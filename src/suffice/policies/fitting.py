"""Fit rules on the tune split: calibrators, base rates and out-of-fold values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from suffice.calibration.isotonic import fit_per_round
from suffice.calibration.per_round import PerRoundCalibrator
from suffice.errors import UsageError
from suffice.policies.outcomes import Outcomes, outcomes
from suffice.policies.rule import RulePolicy, rule_needs
from suffice.protocols import Signal
from suffice.signals.table import SignalTable, signal_table
from suffice.trace.table import TraceSet

__all__ = ["FitData", "Preset", "fit_calibrator", "fit_data", "fit_rule", "out_of_fold"]

Preset = Literal["published", "corrected"]
FIT_SPLIT = "tune"
N_FOLDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FitData:
    """Signals and outcomes of the fitting questions.

    ``provenance`` is what the policy file says of them.
    """

    table: SignalTable
    outcomes: Outcomes
    provenance: Mapping[str, Any]

    @property
    def base_rates(self) -> tuple[float, ...]:
        """Mean EM of each round over labelled questions; NaN where none was recorded."""
        em = self.outcomes.em
        counts = np.isfinite(em).sum(axis=0)
        sums = np.nansum(em, axis=0)
        return tuple(
            float(total / count) if count else float("nan")
            for total, count in zip(sums, counts, strict=True)
        )


def fit_data(
    traces: TraceSet, signals: Iterable[str | Signal], *, split: str = FIT_SPLIT
) -> FitData:
    """The labelled questions of a split, ready to fit on.

    Raises
    ------
    DataError
        When the trace has no such split.
    UsageError
        When none of its questions is labelled, or a signal cannot be computed.
    """
    chosen = traces.only_split(split)
    scored = outcomes(chosen)
    if not scored.labelled.any():
        raise UsageError(
            f"no question of split {split!r} in {traces.origin.source} has gold answers; "
            "fitting needs labelled questions"
        )
    provenance = {
        "source": traces.origin.source,
        "split": split,
        "questions": chosen.n_questions,
        "labelled": int(scored.labelled.sum()),
        "rounds": chosen.n_rounds,
    }
    table = signal_table(chosen, signals)
    return FitData(table=table, outcomes=scored, provenance=provenance)


def fit_calibrator(
    data: FitData,
    signal: str,
    *,
    undefined: float | None = None,
    rows: NDArray[np.bool_] | None = None,
) -> PerRoundCalibrator:
    """One isotonic map a round of ``signal`` to P(EM = 1).

    ``undefined`` is what an undefined value or an unfitted round maps to; ``rows`` (n_questions,)
    restricts the questions fitted on.
    """
    values, em = data.table.signal(signal), data.outcomes.em
    if rows is not None:
        values, em = values[rows], em[rows]
    return PerRoundCalibrator(maps=fit_per_round(values, em, undefined=undefined), absent=undefined)


def fit_rule(rule: str, data: FitData | None, *, own_signals: tuple[str, ...] = ()) -> RulePolicy:
    """A rule text with whatever it needs fitted; ``data`` may be ``None`` when it needs nothing."""
    needs = rule_needs(rule)
    if data is None or not needs.fitting:
        return RulePolicy(rule=rule, own_signals=own_signals)
    return RulePolicy(
        rule=rule,
        calibrators={name: fit_calibrator(data, name) for name in needs.calibrated},
        base_rates=data.base_rates if needs.base_rate else (),
        own_signals=own_signals,
        fitted_on=data.provenance,
    )


def folds(n_questions: int, seed: int = 42) -> NDArray[np.int64]:
    """A fold number for every question, (n_questions,), sizes within one of each other."""
    numbers = np.arange(n_questions) % min(N_FOLDS, n_questions)
    return np.random.default_rng(seed).permutation(numbers)


def out_of_fold(data: FitData, signal: str, *, seed: int = 42) -> NDArray[np.float64]:
    """Calibrated values of the fitting questions, each from maps fitted without its own fold.

    Shape (n_questions, n_rounds). With a single question there is no other fold: its own fit is used.
    """
    values = data.table.signal(signal)
    n_questions, n_rounds = values.shape
    fold = folds(n_questions, seed)
    calibrated = np.full((n_rounds, n_questions), np.nan).T
    for number in np.unique(fold):
        held_out = fold == number
        others = ~held_out if n_questions > 1 else held_out
        calibrator = fit_calibrator(data, signal, rows=others)
        for t in range(1, n_rounds + 1):
            calibrated[held_out, t - 1] = calibrator.predict(t, values[held_out, t - 1])
    return calibrated

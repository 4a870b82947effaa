"""Sweep the one open number of a rule over a grid, on fitting questions and out of fold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.measures.scores import Outcomes
from suffice.policies.defaults import CalibratorKind
from suffice.policies.fitting import FitData, base_rates_out_of_fold, out_of_fold
from suffice.policies.rules.meaning import RuleColumns, rule_fires
from suffice.policies.rules.policy import rule_needs
from suffice.policies.rules.syntax import Number
from suffice.signals.registry import resolve

PLACEHOLDER = "?"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdScore:
    """What a threshold scores and costs; ``standard_error`` is of the mean F1.

    ``stops`` (n_questions,) is the round every question stops at, unlabelled ones too.
    """

    threshold: float
    f1: float
    em: float
    standard_error: float
    mean_rounds: float
    stops: NDArray[np.int16] = field(compare=False, repr=False)


def fill(template: str, threshold: float) -> str:
    """The rule with its one ``?`` replaced by a number, in shortest round-trip form.

    Raises
    ------
    UsageError
        When the template has no ``?``, or several.
    """
    if template.count(PLACEHOLDER) != 1:
        raise UsageError(
            f"rule {template!r} must hold exactly one '?', the number that is swept, as in "
            "'answer_stable and calibrated(answer_token_margin) > ?'"
        )
    if not math.isfinite(threshold):
        raise UsageError(f"a threshold must be a finite number, found {threshold!r}")
    return template.replace(PLACEHOLDER, str(Number(float(threshold))))


def sweep_rule(
    template: str,
    data: FitData,
    thresholds: Sequence[float],
    *,
    calibrator: CalibratorKind = "isotonic",
) -> tuple[ThresholdScore, ...]:
    """Score every threshold on the fitting questions.

    ``calibrated(signal)`` and ``base_rate()`` are out of fold: a question's values come from maps
    fitted without its own fold.

    Parameters
    ----------
    template
        A rule whose swept number is written ``?``.
    data
        Signals and outcomes of the fitting split, with every signal of the rule.
    thresholds
        The grid.
    calibrator
        Kind of the calibration maps.

    Raises
    ------
    UsageError
        For a template without exactly one ``?``, and a threshold that no value can pass.
    """
    needs = rule_needs(fill(template, 0.0))
    specs = {name: resolve(name, also=data.table.values) for name in needs.signals}
    columns = RuleColumns(
        shape=(data.table.n_questions, data.table.n_rounds),
        signals={name: data.table.signal(name) for name in needs.signals},
        calibrations={name: out_of_fold(data, name, kind=calibrator) for name in needs.calibrated},
        base_rates=base_rates_out_of_fold(data) if needs.base_rate else None,
    )
    scores = []
    for threshold in thresholds:
        fires = rule_fires(fill(template, threshold), specs, columns)
        scores.append(score_stops(threshold, first_stops(fires, data.table.exists), data.outcomes))
    return tuple(scores)


def first_stops(fires: NDArray[np.bool_], exists: NDArray[np.bool_]) -> NDArray[np.int16]:
    """The first round that fires, else the last recorded one, (n_questions,), 1-based."""
    last = exists.sum(axis=1)
    first = np.where(fires.any(axis=1), fires.argmax(axis=1) + 1, last)
    return np.asarray(np.minimum(first, last), np.int16)


def score_stops(threshold: float, stops: NDArray[np.int16], outcomes: Outcomes) -> ThresholdScore:
    """What stopping at ``stops`` (n_questions,) scores on the labelled questions."""
    labelled = outcomes.labelled
    questions = np.arange(len(stops))
    f1 = outcomes.f1[questions, stops - 1][labelled]
    spread = float(f1.std(ddof=1)) if len(f1) > 1 else 0.0
    return ThresholdScore(
        threshold=threshold,
        f1=float(f1.mean()),
        em=float(outcomes.em[questions, stops - 1][labelled].mean()),
        standard_error=spread / float(np.sqrt(len(f1))),
        mean_rounds=float(stops[labelled].mean()),
        stops=stops,
    )


def cheapest_within_one_error(scores: Sequence[ThresholdScore]) -> ThresholdScore:
    """The cheapest within one standard error of the best F1; ties to higher F1, then lower number."""
    best = max(scores, key=lambda score: score.f1)
    close = [score for score in scores if score.f1 >= best.f1 - best.standard_error]
    return min(close, key=lambda score: (score.mean_rounds, -score.f1, score.threshold))

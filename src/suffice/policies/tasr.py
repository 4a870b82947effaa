"""TASR (paper 0, Eq. 1), and its controls: simpler rules that it must beat.

``published`` is the rule AS_m25 as the paper's code ran it. The floor is 0.25, stability uses the code's
own normalizer, and a round without log-probabilities counts as calibrated margin 0.5. Thresholds of
controls are fixed at 0.25, or have the best tune F1 of 40 evenly spaced ones at no more than 3 rounds.
``corrected`` uses the official normalizer and never fires on an undefined margin or a stable abstention.
It takes the cheapest threshold within one standard error of the best out-of-fold tune F1.

The fifth control, a random mix of the neighboring fixed budgets at equal cost, needs no fitting:
``frontier_gain`` of a replay compares with it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from suffice.errors import SufficeWarning, UsageError
from suffice.policies.defaults import (
    FLOORS,
    MARGIN,
    PUBLISHED_FLOOR,
    PUBLISHED_RULE,
    PUBLISHED_UNDEFINED,
    TEMPLATE,
)
from suffice.policies.fitting import (
    FitData,
    fit_calibrator,
    fit_data,
    fitted_rule,
    right_abstentions,
)
from suffice.policies.method import PRESETS, Preset, RuleFit, RuleMethod
from suffice.policies.rules.policy import Rule
from suffice.policies.thresholds import cheapest_within_one_error, fill, open_rule

if TYPE_CHECKING:
    from suffice.measures.measures import Measures


SIGNALS_READ: dict[Preset, tuple[str, ...]] = {
    "published": ("answer_stable_published", MARGIN),
    "corrected": ("answer_stable", "abstained", MARGIN),
}


def _data(measures: Measures, signals: tuple[str, ...], how: RuleFit) -> FitData:
    abstention = right_abstentions(measures.only_split(how.split))
    return fit_data(measures, signals, split=how.split, f1_kind=how.f1_kind, abstention=abstention)


class TASR(RuleMethod):
    """See :class:`suffice.policies.method.Method`."""

    name = "tasr"
    summary = "stop when the answer repeats and its calibrated margin is high enough"
    source = "paper 0, Eq. 1"
    chosen_by_f1: frozenset[Preset] = frozenset({"corrected"})

    def fit_rule(self, measures: Measures, how: RuleFit) -> Rule:
        """Calibrated on the tune questions."""
        data = _data(measures, SIGNALS_READ[how.preset], how)
        if how.preset == "published":
            return Rule(
                rule=PUBLISHED_RULE,
                calibrators={MARGIN: fit_calibrator(data, MARGIN, undefined=PUBLISHED_UNDEFINED)},
                kind="tasr",
                preset=how.preset,
                fitted_on=data.provenance,
            )
        swept = open_rule(TEMPLATE, data, calibrator=how.calibrator)
        floor = swept.chosen(FLOORS, cheapest_within_one_error).threshold
        return Rule(
            rule=fill(TEMPLATE, floor),
            calibrators={MARGIN: fit_calibrator(data, MARGIN, kind=how.calibrator)},
            kind="tasr",
            preset=how.preset,
            abstention=data.abstention,
            fitted_on={**data.chosen_by, "floors": [FLOORS[0], FLOORS[-1]], "floor": floor},
        )


METHOD = TASR()


# --- controls -------------------------------------------------------------------------------------
_COST_CAP = 3.0
_GRID = 40
_FIRST_ROUND = tuple(round(0.05 * step, 2) for step in range(1, 20))


@dataclass(frozen=True, kw_only=True)
class Control(RuleMethod):
    """A control: the signals it reads and how its rule is found on tune."""

    name: str
    summary: str
    signals: tuple[str, ...]
    rule: Callable[[FitData, RuleFit], str]
    chosen_by_f1: frozenset[Preset] = frozenset()
    source = "paper 0"

    def fit_rule(self, measures: Measures, how: RuleFit) -> Rule:
        """The control's rule with its maps fitted."""
        data = _data(measures, self.signals, how)
        fitted = fitted_rule(
            self.rule(data, how), data, calibrator=how.calibrator, undefined=_undefined(how.preset)
        )
        if how.preset in self.chosen_by_f1:
            return replace(fitted, fitted_on={**data.chosen_by, **fitted.fitted_on})
        return fitted


def _undefined(preset: Preset) -> float | None:
    """What an undefined margin counts as, calibrated."""
    return PUBLISHED_UNDEFINED if preset == "published" else None


def _choose(template: str, data: FitData, thresholds: tuple[float, ...], how: RuleFit) -> str:
    swept = open_rule(template, data, calibrator=how.calibrator, undefined=_undefined(how.preset))
    if how.preset == "corrected":
        return fill(template, swept.chosen(thresholds, cheapest_within_one_error).threshold)
    scores = swept.scores(thresholds)
    under = [score for score in scores if score.mean_rounds <= _COST_CAP]
    if not under:
        budget = data.table.n_rounds
        warnings.warn(
            f"no threshold of {template!r} costs at most {_COST_CAP:g} rounds on the fitting questions: "
            f"the rule never fires before round {budget}",
            SufficeWarning,
            stacklevel=2,
        )
        return f"round >= {budget}"
    best = max(under, key=lambda score: (score.score, -score.threshold))
    return fill(template, swept.shortest(best.threshold))


def _margin_alone(data: FitData, how: RuleFit) -> str:
    template = f"calibrated({MARGIN}) > ?"
    if how.preset == "published":
        return fill(template, PUBLISHED_FLOOR)
    return _choose(template, data, FLOORS, how)


def _overlap_alone(data: FitData, how: RuleFit) -> str:
    values = data.table.signal("overlap")
    finite = values[np.isfinite(values)]
    if not finite.size or finite.min() == finite.max():
        raise UsageError(
            "overlap takes fewer than two values on the fitting questions: no threshold on it can "
            "be chosen"
        )
    grid = np.linspace(finite.min(), finite.max(), _GRID)[:-1]  # nothing passes the greatest
    return _choose("overlap > ?", data, tuple(grid.tolist()), how)


def _stable_base_rate(data: FitData, how: RuleFit) -> str:
    del data  # the gate is the paper's, the rates are fitted with the rule
    stable = "answer_stable_published" if how.preset == "published" else "answer_stable"
    return f"{stable} and base_rate() > {PUBLISHED_FLOOR}"


def _early_stop(data: FitData, how: RuleFit) -> str:
    base = PUBLISHED_RULE
    if how.preset == "corrected":
        base = _choose(TEMPLATE, data, FLOORS, how)
    template = f"(round == 1 and calibrated({MARGIN}) > ?) or ({base})"
    return _choose(template, data, _FIRST_ROUND, how)


_STABLE = ("answer_stable", "answer_stable_published")
MARGIN_ALONE = Control(
    name="margin-alone",
    summary="stop when the calibrated margin is high enough, stable or not",
    signals=(MARGIN,),
    rule=_margin_alone,
    chosen_by_f1=frozenset({"corrected"}),
)
OVERLAP_ALONE = Control(
    name="overlap-alone",
    summary="stop when the new passage repeats the earlier ones",
    signals=("overlap",),
    rule=_overlap_alone,
    chosen_by_f1=frozenset(PRESETS),
)
STABLE_BASE_RATE = Control(
    name="stable-base-rate",
    summary="stop when the answer repeats in a round whose mean tune EM is above 0.25",
    signals=_STABLE,
    rule=_stable_base_rate,
)
EARLY_STOP = Control(
    name="early-stop",
    summary="TASR that may also stop in round 1 at a high calibrated margin",
    signals=(*_STABLE, "abstained", MARGIN),
    rule=_early_stop,
    chosen_by_f1=frozenset(PRESETS),
)

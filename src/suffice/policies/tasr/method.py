"""TASR: stop when the answer repeats and its calibrated margin clears a floor (paper 0, Eq. 1).

``published`` is the rule AS_m25 as the paper's code ran it: the floor is 0.25, stability uses the
code's own normaliser, and a round without log-probabilities counts as calibrated margin 0.5.
``corrected`` uses the official normaliser, never fires on an undefined margin or on a stable
abstention, and chooses the floor on the tune split from out-of-fold calibrated margins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suffice.policies.defaults import (
    FLOORS,
    MARGIN,
    PUBLISHED_RULE,
    PUBLISHED_UNDEFINED,
    TEMPLATE,
    CalibratorKind,
)
from suffice.policies.fitting import (
    FitData,
    abstention_of,
    fit_calibrator,
    fit_data,
    gold_of,
    meant_signals,
)
from suffice.policies.method import Preset, RuleFit, RuleMethod
from suffice.policies.rules.policy import RulePolicy
from suffice.policies.thresholds import cheapest_within_one_error, fill, open_rule
from suffice.protocols import Signal
from suffice.signals.abstained import stated_phrases

if TYPE_CHECKING:
    from suffice.measures.measures import Measures

SIGNALS_READ: dict[Preset, tuple[str, ...]] = {
    "published": ("answer_stable_published", MARGIN),
    "corrected": ("answer_stable", "abstained", MARGIN),
}


def tasr_signals(
    preset: Preset, gold: tuple[str, ...] = (), stated: tuple[str, ...] | None = None
) -> tuple[Signal, ...]:
    """The preset's ``SIGNALS_READ``, with ``abstained`` as the policy fitted on ``gold`` means it."""
    return meant_signals(SIGNALS_READ[preset], gold, stated)


def fit_tasr(
    data: FitData,
    preset: Preset = "corrected",
    *,
    gold: tuple[str, ...] = (),
    calibrator: CalibratorKind = "isotonic",
) -> RulePolicy:
    """Calibrate TASR on the tune questions."""
    if preset == "published":
        return RulePolicy(
            rule=PUBLISHED_RULE,
            calibrators={MARGIN: fit_calibrator(data, MARGIN, undefined=PUBLISHED_UNDEFINED)},
            kind="tasr",
            preset=preset,
            fitted_on=data.provenance,
        )
    swept = open_rule(TEMPLATE, data, calibrator=calibrator)
    floor = swept.chosen(FLOORS, cheapest_within_one_error).threshold
    return RulePolicy(
        rule=fill(TEMPLATE, floor),
        calibrators={MARGIN: fit_calibrator(data, MARGIN, kind=calibrator)},
        kind="tasr",
        preset=preset,
        abstention=abstention_of(gold, data.abstention),
        fitted_on={**data.chosen_by, "floors": [FLOORS[0], FLOORS[-1]], "floor": floor},
    )


class TASR(RuleMethod):
    """See :class:`suffice.policies.method.Method`."""

    name = "tasr"
    summary = "stop when the answer repeats and its calibrated margin clears a floor"
    source = "paper 0, Eq. 1"
    chosen_by_f1 = frozenset({"corrected"})

    def fit_rule(self, measures: Measures, how: RuleFit) -> RulePolicy:
        """See :func:`suffice.policies.tasr.method.fit_tasr`."""
        from suffice.policies.tasr.method import fit_tasr, tasr_signals

        gold = gold_of(measures.only_split(how.split))
        stated = stated_phrases(measures.traces.origin.run)
        signals = tasr_signals(how.preset, gold, stated)
        data = fit_data(measures, signals, split=how.split, f1_kind=how.f1_kind)
        return fit_tasr(data, how.preset, gold=gold, calibrator=how.calibrator)


METHOD = TASR()

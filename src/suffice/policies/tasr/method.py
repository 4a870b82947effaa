"""TASR as a method; its policies are rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suffice.policies.defaults import CalibratorKind
from suffice.policies.method import Preset, RuleMethod

if TYPE_CHECKING:
    from suffice.measures.measures import Measures
    from suffice.policies.rules.policy import RulePolicy


class TASR(RuleMethod):
    """See :class:`suffice.policies.method.Method`."""

    name = "tasr"
    summary = "stop when the answer repeats and its calibrated margin clears a floor"
    source = "paper 0, Eq. 1"

    def fit_calibrated(
        self, measures: Measures, preset: Preset, split: str, calibrator: CalibratorKind
    ) -> RulePolicy:
        """See :func:`suffice.policies.tasr.fit.fit_tasr`."""
        from suffice.policies.fitting import fit_data, gold_of
        from suffice.policies.tasr.fit import fit_tasr, tasr_signals

        gold = gold_of(measures.only_split(split).traces)
        data = fit_data(measures, tasr_signals(preset, gold), split=split)
        return fit_tasr(data, preset, gold=gold, calibrator=calibrator)


METHOD = TASR()

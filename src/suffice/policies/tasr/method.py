"""TASR as a method; its policies are rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suffice.policies.method import RuleFit, RuleMethod

if TYPE_CHECKING:
    from suffice.measures.measures import Measures
    from suffice.policies.rules.policy import RulePolicy


class TASR(RuleMethod):
    """See :class:`suffice.policies.method.Method`."""

    name = "tasr"
    summary = "stop when the answer repeats and its calibrated margin clears a floor"
    source = "paper 0, Eq. 1"
    chosen_by_f1 = frozenset({"corrected"})

    def fit_rule(self, measures: Measures, how: RuleFit) -> RulePolicy:
        """See :func:`suffice.policies.tasr.fit.fit_tasr`."""
        from suffice.policies.fitting import fit_data, gold_of
        from suffice.policies.tasr.fit import fit_tasr, tasr_signals
        from suffice.signals.abstained import stated_phrases

        gold = gold_of(measures.only_split(how.split))
        stated = stated_phrases(measures.traces.origin.run)
        signals = tasr_signals(how.preset, gold, stated)
        data = fit_data(measures, signals, split=how.split, f1_kind=how.f1_kind)
        return fit_tasr(data, how.preset, gold=gold, calibrator=how.calibrator)


METHOD = TASR()

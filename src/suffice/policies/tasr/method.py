"""TASR as a method; its policies are rules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffice.policies.defaults import CalibratorKind
from suffice.policies.method import CalibratedSettings, FitRun, Method, NoSettings, Preset
from suffice.policies.rules.method import read_rule
from suffice.policies.rules.policy import RulePolicy

if TYPE_CHECKING:
    from suffice.measures.measures import Measures


class TASR(Method):
    """See :class:`suffice.policies.method.Method`."""

    name = "tasr"
    summary = "stop when the answer repeats and its calibrated margin clears a floor"
    source = "paper 0, Eq. 1"
    main_field = "rule"

    def settings(self, preset: Preset) -> type[Any]:
        """How the margin is calibrated, which the published preset settles."""
        return CalibratedSettings if preset == "corrected" else NoSettings

    def fit(
        self,
        measures: Measures,
        preset: Preset,
        settings: Any,
        split: str,
        run: FitRun | None = None,
    ) -> RulePolicy:
        """See :func:`suffice.policies.tasr.fit.fit_tasr`."""
        from suffice.policies.fitting import fit_data, gold_of
        from suffice.policies.tasr.fit import fit_tasr, tasr_signals

        del run
        gold = gold_of(measures.only_split(split).traces)
        data = fit_data(measures, tasr_signals(preset, gold), split=split)
        calibrator: CalibratorKind = settings.calibrator if preset == "corrected" else "isotonic"
        return fit_tasr(data, preset, gold=gold, calibrator=calibrator)

    def read(self, document: Mapping[str, Any], file: Path) -> RulePolicy:
        """A rule."""
        del file
        return read_rule(document)


METHOD = TASR()

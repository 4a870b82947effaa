"""A rule of one's own as a method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from suffice.options import Option
from suffice.policies.method import CalibratedSettings, FitRun, Method, Preset, RuleKind

if TYPE_CHECKING:
    from suffice.measures.measures import Measures
    from suffice.policies.rules.policy import RulePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSettings(CalibratedSettings):
    """The rule, and how its maps are fitted."""

    rule: Annotated[
        str,
        Option(
            metavar="RULE",
            positional=True,
            help="its text, as in 'answer_stable and calibrated(answer_token_margin) > 0.25'",
        ),
    ]


class Rule(RuleKind, Method):
    """See :class:`suffice.policies.method.Method`."""

    name = "rule"
    summary = "a rule of your own with its calibrated(...) and base_rate() fitted"
    presets = ("corrected",)
    options = RuleSettings

    def fit(
        self,
        measures: Measures,
        preset: Preset,
        settings: Any,
        split: str,
        run: FitRun | None = None,
    ) -> RulePolicy:
        """See :func:`suffice.policies.fitting.fit_rule`."""
        from suffice.policies.fitting import fit_rule, warn_of_rule

        del preset, run
        policy = fit_rule(settings.rule, measures, split=split, calibrator=settings.calibrator)
        read = measures.only_split(split) if policy.fitted_on else measures
        warn_of_rule(policy, read, self.name)
        return policy


METHOD = Rule()

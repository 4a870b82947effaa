"""A rule of one's own as a method; every policy that is a rule is read here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from suffice.errors import DataError
from suffice.numbers.fields import Fields
from suffice.numbers.maps.per_round import read_calibrator
from suffice.options import Option
from suffice.policies.kind import read_abstention
from suffice.policies.method import CalibratedSettings, FitRun, Method, Preset
from suffice.policies.rules.policy import RulePolicy

if TYPE_CHECKING:
    from suffice.measures.measures import Measures


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


class Rule(Method):
    """See :class:`suffice.policies.method.Method`."""

    name = "rule"
    summary = "a rule of your own with its calibrated(...) and base_rate() fitted"
    presets = ("corrected",)
    main_field = "rule"

    def settings(self, preset: Preset) -> type[Any]:
        """The rule and its calibrator."""
        del preset
        return RuleSettings

    def fit(
        self,
        measures: Measures,
        preset: Preset,
        settings: Any,
        split: str,
        run: FitRun | None = None,
    ) -> RulePolicy:
        """See :func:`suffice.policies.fitting.fit_rule`."""
        from suffice.policies.fitting import fit_rule, warn_of_undefined

        del preset, run
        policy = fit_rule(settings.rule, measures, split=split, calibrator=settings.calibrator)
        read = measures.only_split(split) if policy.fitted_on else measures
        warn_of_undefined(policy, read, self.name, policy.where_undefined)
        return policy

    def read(self, document: Mapping[str, Any], file: Path) -> RulePolicy:
        """See :func:`read_rule`."""
        del file
        return read_rule(document)


METHOD = Rule()


def read_rule(document: Mapping[str, Any]) -> RulePolicy:
    """The rule of a document, with its fitted maps.

    Raises
    ------
    DataError, UsageError
        See :meth:`PolicyKind.read`.
    """
    fields = Fields(document)
    fields.need("rule")
    rates = [_probability(rate, "base_rates") for rate in fields.of("base_rates", list, [])]
    parts = fields.of("calibrators", dict, {})
    return RulePolicy(
        rule=fields.of("rule", str),
        calibrators={
            name: read_calibrator(part, f"calibrators.{name}") for name, part in parts.items()
        },
        base_rates=tuple(math.nan if rate is None else rate for rate in rates),
        kind=document["kind"],
        preset=fields.of("preset", str),
        own_signals=fields.strings("own_signals") or (),
        abstention=read_abstention(fields),
        fitted_on=fields.of("fitted_on", dict, {}),
        guarantee=fields.of("guarantee", dict, {}),
    )


def _probability(value: object, column: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise DataError(f"must be null or a number in [0, 1], found {value!r}", column=column)
    return float(value)

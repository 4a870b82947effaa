"""The policy file of a rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suffice.errors import DataError
from suffice.numbers.fields import Fields
from suffice.numbers.maps.per_round import read_calibrator
from suffice.policies.kind import PolicyKind, read_abstention
from suffice.policies.rules.policy import RulePolicy


class RuleKind(PolicyKind):
    """Rules of one's own, and those that certified choice found."""

    main_field = "rule"

    def read(self, document: Mapping[str, Any], file: Path) -> RulePolicy:
        """See :meth:`PolicyKind.read`."""
        del file
        return read_rule(document)


KIND = RuleKind()


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

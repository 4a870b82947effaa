"""The policy file of a rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suffice.errors import DataError
from suffice.numbers.fields import field_of, strings_of
from suffice.numbers.maps.per_round import PerRoundCalibrator, read_calibrator
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
    rule = field_of(document, "rule", str)
    if rule is None:
        raise DataError("is missing", column="rule")
    rates = [
        _probability(rate, "base_rates") for rate in field_of(document, "base_rates", list, [])
    ]
    return RulePolicy(
        rule=rule,
        calibrators=_read_calibrators(document),
        base_rates=tuple(math.nan if rate is None else rate for rate in rates),
        kind=document["kind"],
        preset=field_of(document, "preset", str),
        own_signals=strings_of(document, "own_signals") or (),
        abstention=read_abstention(document),
        fitted_on=field_of(document, "fitted_on", dict, {}),
        guarantee=field_of(document, "guarantee", dict, {}),
    )


def _read_calibrators(document: Mapping[str, Any]) -> dict[str, PerRoundCalibrator]:
    parts = field_of(document, "calibrators", dict, {})
    return {name: read_calibrator(part, f"calibrators.{name}") for name, part in parts.items()}


def _probability(value: object, column: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise DataError(f"must be null or a number in [0, 1], found {value!r}", column=column)
    return float(value)

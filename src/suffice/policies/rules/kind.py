"""The policy file of a rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suffice.numbers.fields import Fields, probability_or_none
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
    """The rule of a document, with its fitted maps."""
    fields = Fields(document)
    fields.need("rule")
    rates = [probability_or_none(rate, "base_rates") for rate in fields.of("base_rates", list, [])]
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
        answer=fields.of("answer", str, "latest"),
    )

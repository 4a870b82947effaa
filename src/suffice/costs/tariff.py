"""What each unit of work is charged: the shape that prices and energy share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from suffice.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """A charge for each token, call, retrieval and reranker call, in one unit, each at least 0.

    ``prompt`` is charged for evaluated prompt tokens, ``cached`` for those the server reused, ``call``
    for model calls. What is charged nothing need not have been recorded.
    """

    prompt: float
    cached: float
    completion: float
    call: float = 0.0
    retrieval: float = 0.0
    rerank: float = 0.0

    def __post_init__(self) -> None:
        for charge in fields(self):
            value = getattr(self, charge.name)
            if not 0.0 <= value < math.inf:
                raise UsageError(
                    f"the charge for {charge.name} must be at least 0, found {value!r}"
                )


def parse_rates(text: str, *, option: str, known: tuple[str, ...]) -> Mapping[str, float]:
    """Numbers from text such as ``input=0.15,output=0.60``."""
    rates: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if not equals or name not in known or name in rates:
            raise UsageError(
                f"{option} takes name=number once each, apart by commas, with the names "
                f"{', '.join(known)}; found {part.strip()!r}"
            )
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not 0.0 <= value < math.inf:
            raise UsageError(f"{option}: {name} must be a number from 0, found {number!r}")
        rates[name] = value
    return rates

"""One price list for several records: rates for all, or a TOML file with rates a model."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from suffice.costs.prices import Prices, parse_prices
from suffice.errors import DataError, UsageError

_FORM = '["llama3.2:3b"] with input = 0.06 and output = 0.06 below it; ["*"] is for all others'


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """Prices by the name of a model or a record; ``*`` for all others. ``source`` is where they stand."""

    source: str
    by_name: Mapping[str, Prices]

    def of(self, *names: str) -> Prices | None:
        """The prices of the first of the names that is listed, else those for all others."""
        return next((self.by_name[name] for name in (*names, "*") if name in self.by_name), None)


def read_price_list(given: str) -> PriceList:
    """Rates as ``input=1,output=5``, or a TOML file that has them by model.

    >>> read_price_list("input=1,output=5").of("any model").output
    5.0
    """
    path = Path(given)
    if path.suffix != ".toml" and not path.exists():
        return PriceList(source="by hand", by_name={"*": parse_prices(given)})
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no price list {given}; a file holds {_FORM}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"is no TOML ({error}); it holds {_FORM}", file=given) from error
    by_name = {}
    for name, rates in document.items():
        if not isinstance(rates, dict):
            raise DataError(f"{name!r} has no rates, found {rates!r}; type {_FORM}", file=given)
        try:
            by_name[name] = parse_prices(",".join(f"{key}={value}" for key, value in rates.items()))
        except UsageError as error:
            raise DataError(f"{name!r}: {error}", file=given) from error
    if not by_name:
        raise DataError(f"holds no prices; it holds {_FORM}", file=given)
    return PriceList(source=given, by_name=by_name)

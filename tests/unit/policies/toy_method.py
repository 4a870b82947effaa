"""A sixth method, as another package would bring it: stop where the new passages say little new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import Explanation, Facts, LoopNeeds, PolicyTable
from suffice.measures.measures import Measures
from suffice.options import Option
from suffice.policies.method import Method, Preset
from suffice.signals.known_signals import SignalSpec, resolve
from suffice.stats.fields import Fields


@dataclass(frozen=True, kw_only=True)
class ToyPolicy:
    """Stops at the first round whose overlap reaches ``least``."""

    least: float
    preset: str | None = "corrected"
    fitted_on: Mapping[str, Any]

    kind = "toy"
    signals = ("overlap",)

    @property
    def specs(self) -> tuple[SignalSpec, ...]:
        return (resolve("overlap"),)

    @property
    def needs(self) -> LoopNeeds:
        return LoopNeeds()

    @property
    def facts(self) -> Facts:
        return Facts(summary=f"stop when overlap >= {self.least:g}", fitted_on=self.fitted_on)

    def fires(self, table: PolicyTable) -> NDArray[np.bool_]:
        return table.signal("overlap") >= self.least

    def explain(self, table: PolicyTable, question: int, round_number: int) -> Explanation:
        value = float(table.signal("overlap")[question, round_number - 1])
        said = "at" if value >= self.least else "not at"
        return Explanation(
            reason=f"overlap is {value:.3g}, {said} least {self.least:g}",
            values={"overlap": None if np.isnan(value) else value},
        )

    def document(self) -> dict[str, Any]:
        return {"least": self.least, "preset": self.preset, "fitted_on": dict(self.fitted_on)}


@dataclass(frozen=True, kw_only=True)
class ToySettings:
    quantile: Annotated[
        float, Option(help="of the overlaps that are met, where it stops", metavar="Q")
    ] = 0.5
    strict: Annotated[bool, Option(help="go on where the overlap is just as large")] = False


class Toy(Method):
    name = "toy"
    summary = "stop where the new passages say little new"
    source = "nobody"
    presets = ("corrected",)
    main_field = "least"

    def settings(self, preset: Preset) -> type[Any]:
        del preset
        return ToySettings

    def fit(self, measures: Measures, preset: Preset, settings: Any, split: str) -> ToyPolicy:
        chosen = measures.only_split(split)
        overlaps = chosen.signals(("overlap",)).signal("overlap")
        least = float(np.nanquantile(overlaps, settings.quantile)) + 1e-9 * settings.strict
        fitted_on = {"split": split, "labelled": int(chosen.scores().labelled.sum())}
        return ToyPolicy(least=least, preset=preset, fitted_on=fitted_on)

    def read(self, document: Mapping[str, Any], file: Path) -> ToyPolicy:
        del file
        fields = Fields(document)
        return ToyPolicy(
            least=fields.number("least"),
            preset=fields.of("preset", str),
            fitted_on=fields.of("fitted_on", dict, {}),
        )


METHOD = Toy()

"""One calibration map a round, the rounds it was not fitted for, and their documents."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import Calibrator
from suffice.errors import DataError
from suffice.stats.fields import (
    map_fields,
    number,
    number_or_none,
    numbers,
    probability_or_none,
)

_PLAIN = "isotonic"  # what a map without a kind is
# where a map is, by the kind its document states; imported when one is read
_MAPS = {
    _PLAIN: "suffice.stats.maps.isotonic:IsotonicMap",
    "logistic": "suffice.stats.maps.platt:LogisticMap",
    "step": "suffice.stats.maps.venn_abers:StepMap",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedMap:
    """A map that is kept as numbers: its fields are lists of numbers and numbers."""

    kind: ClassVar[str]
    title: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """A JSON object; :meth:`from_json` gives back the same bits."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        document = {} if self.kind == _PLAIN else {"kind": self.kind}
        return document | {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }

    @classmethod
    def from_json(cls, document: object) -> Self:
        """The map of a JSON object."""
        names = () if cls.kind == _PLAIN else ("kind",)
        parts = map_fields(document, cls.title, (*names, *(field.name for field in fields(cls))))
        read: dict[str, Any] = {}
        for field in fields(cls):
            value = parts.get(field.name)
            if field.name == "undefined":
                read[field.name] = number_or_none(value, field.name)
            else:
                of_kind = numbers if str(field.type).startswith("tuple") else number
                read[field.name] = of_kind(value, field.name)
        return cls(**read)


@dataclass(frozen=True, slots=True)
class PerRoundCalibrator:
    """Maps a signal to P(EM = 1), each round by its own fit.

    Examples
    --------
    One fitted round, then nothing known:

    >>> from suffice.stats.maps.isotonic import IsotonicMap
    >>> calibrator = PerRoundCalibrator(maps=(IsotonicMap(x=(0, 1), y=(0, 1)),), absent=0.5)
    >>> calibrator.predict_rounds(np.array([[0.25, 0.9]])).tolist()
    [[0.25, 0.5]]
    """

    maps: tuple[Calibrator, ...] = ()
    absent: float | None = None
    beyond: Calibrator | None = None

    def _of(self, round_number: int) -> Calibrator | None:
        return self.maps[round_number - 1] if round_number <= len(self.maps) else self.beyond

    def predict(self, round_number: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities of one round's values, same shape, NaN where undefined."""
        fitted = self._of(round_number)
        if fitted is not None:
            return fitted.predict(values)
        return np.full(values.shape, math.nan if self.absent is None else self.absent)

    def predict_rounds(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities of every round's values, (n_questions, n_rounds), stored round-major."""
        predicted = np.empty(values.shape[::-1])
        for index, column in enumerate(values.T):
            predicted[index] = self.predict(index + 1, column)
        return predicted.T


# --- documents ------------------------------------------------------------------------------------
def read_map(document: object) -> Calibrator:
    """The map of a JSON object; without ``kind`` an isotonic one."""
    kind = document.get("kind", _PLAIN) if isinstance(document, Mapping) else _PLAIN
    if not isinstance(kind, str) or kind not in _MAPS:
        raise DataError(f"unknown map {kind!r}; known: {', '.join(sorted(_MAPS))}", column="kind")
    if isinstance(document, Mapping) and kind == _PLAIN:
        document = {name: value for name, value in document.items() if name != "kind"}
    module, _, name = _MAPS[kind].partition(":")
    return cast("Calibrator", getattr(import_module(module), name).from_json(document))


def calibrator_document(calibrator: PerRoundCalibrator) -> dict[str, Any]:
    """A calibrator as its part of a policy file."""
    document: dict[str, Any] = {
        "absent": calibrator.absent,
        "rounds": [fitted_map.to_json() for fitted_map in calibrator.maps],
    }
    if calibrator.beyond is not None:
        document["beyond"] = calibrator.beyond.to_json()
    return document


def read_calibrator(document: object, column: str) -> PerRoundCalibrator:
    """The calibrator that :func:`calibrator_document` wrote; ``column`` is its place in the file."""
    if not isinstance(document, dict) or not isinstance(document.get("rounds"), list):
        raise DataError('must be an object with a list "rounds"', column=column)
    beyond = document.get("beyond")
    return PerRoundCalibrator(
        maps=tuple(
            _placed(part, f"{column}.rounds[{index}]")
            for index, part in enumerate(document["rounds"])
        ),
        absent=probability_or_none(document.get("absent"), f"{column}.absent"),
        beyond=None if beyond is None else _placed(beyond, f"{column}.beyond"),
    )


def _placed(document: object, column: str) -> Calibrator:
    try:
        return read_map(document)
    except DataError as error:
        place = column if error.column is None else f"{column}.{error.column}"
        raise DataError(error.message, column=place) from error

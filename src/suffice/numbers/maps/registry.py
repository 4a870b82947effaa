"""Calibration maps by the name their JSON gives, and the calibrators made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from suffice.errors import DataError
from suffice.numbers.fields import number_or_none, probability_or_none
from suffice.numbers.maps.isotonic import IsotonicMap
from suffice.numbers.maps.per_round import PerRoundCalibrator
from suffice.numbers.maps.platt import LogisticMap
from suffice.numbers.maps.venn_abers import StepMap
from suffice.protocols import Calibrator

_PLAIN = "isotonic"  # what a map without a kind is

_MAPS: Mapping[str, Callable[[object], Calibrator]] = MappingProxyType(
    {
        _PLAIN: IsotonicMap.from_json,
        "logistic": LogisticMap.from_json,
        "step": StepMap.from_json,
    }
)


def read_map(document: object) -> Calibrator:
    """The map of a JSON object; without ``kind`` an isotonic one.

    Raises
    ------
    DataError
        When it is none, naming the field.
    """
    if not isinstance(document, Mapping):
        return IsotonicMap.from_json(document)
    kind = document.get("kind", _PLAIN)
    if not isinstance(kind, str) or kind not in _MAPS:
        raise DataError(f"unknown map {kind!r}; known: {', '.join(sorted(_MAPS))}", column="kind")
    if kind == _PLAIN:
        document = {name: value for name, value in document.items() if name != "kind"}
    return _MAPS[kind](document)


def calibrator_document(calibrator: PerRoundCalibrator) -> dict[str, Any]:
    """A calibrator as its part of a policy file."""
    document: dict[str, Any] = {
        "absent": calibrator.absent,
        "rounds": [each.to_json() for each in calibrator.maps],
    }
    if calibrator.beyond is not None:
        document["beyond"] = calibrator.beyond.to_json()
    return document


def read_calibrator(document: object, column: str) -> PerRoundCalibrator:
    """The calibrator that :func:`calibrator_document` wrote; ``column`` is its place in the file.

    Raises
    ------
    DataError
        Naming the field below ``column``.
    """
    if not isinstance(document, dict) or not isinstance(document.get("rounds"), list):
        raise DataError('must be an object with a list "rounds"', column=column)
    beyond = document.get("beyond")
    absent = number_or_none(document.get("absent"), f"{column}.absent")
    probability_or_none(absent, f"{column}.absent")
    return PerRoundCalibrator(
        maps=tuple(
            _placed(each, f"{column}.rounds[{index}]")
            for index, each in enumerate(document["rounds"])
        ),
        absent=absent,
        beyond=None if beyond is None else _placed(beyond, f"{column}.beyond"),
    )


def _placed(document: object, column: str) -> Calibrator:
    try:
        return read_map(document)
    except DataError as error:
        place = column if error.column is None else f"{column}.{error.column}"
        raise DataError(error.message, column=place) from error

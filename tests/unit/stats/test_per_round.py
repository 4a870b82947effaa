"""Maps and calibrators by their JSON; rounds past the last fitted one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.maps import at

from suffice.contracts import Calibrator
from suffice.errors import DataError
from suffice.stats.maps import (
    IsotonicMap,
    LogisticMap,
    PerRoundCalibrator,
    StepMap,
    calibrator_document,
    read_calibrator,
    read_map,
)

MAPS: tuple[Calibrator, ...] = (
    IsotonicMap(x=(0.0, 1.0), y=(0.2, 0.8)),
    LogisticMap(slope=-2.0, intercept=0.5, undefined=0.5),
    StepMap(x=(0.5,), at=(0.4,), between=(0.1, 0.9)),
)


def test_a_map_without_a_kind_is_isotonic() -> None:
    document = MAPS[0].to_json()
    assert "kind" not in document
    assert read_map({**document, "kind": "isotonic"}) == read_map(document) == MAPS[0]


@pytest.mark.parametrize("kind", ["spline", None, 3, ["step"], True])
def test_an_unknown_kind_lists_the_known(kind: object) -> None:
    with pytest.raises(DataError, match="isotonic") as caught:
        read_map({"kind": kind, "x": [], "y": []})
    assert caught.value.column == "kind"


@pytest.mark.parametrize(
    "calibrator",
    [
        PerRoundCalibrator(maps=MAPS, absent=0.5),
        PerRoundCalibrator(beyond=MAPS[0]),
        PerRoundCalibrator(maps=MAPS[:1], beyond=MAPS[2]),
        PerRoundCalibrator(),
    ],
)
def test_a_calibrator_is_read_back(calibrator: PerRoundCalibrator) -> None:
    document = calibrator_document(calibrator)
    assert read_calibrator(document, "c") == calibrator
    assert ("beyond" in document) == (calibrator.beyond is not None)


@pytest.mark.parametrize(
    ("document", "column"),
    [
        (3, "c"),
        ({}, "c"),
        ({"rounds": {}}, "c"),
        ({"rounds": [], "absent": 2}, "c.absent"),
        ({"rounds": [], "absent": "x"}, "c.absent"),
        ({"rounds": [], "beyond": 3}, "c.beyond"),
        ({"rounds": [], "beyond": {"kind": "no"}}, "c.beyond.kind"),
        ({"rounds": [MAPS[0].to_json(), {"kind": "step", "x": 1}]}, "c.rounds[1].x"),
        ({"rounds": [{"kind": "logistic", "slope": 1}]}, "c.rounds[0].intercept"),
    ],
)
def test_a_fault_is_placed(document: object, column: str) -> None:
    with pytest.raises(DataError) as caught:
        read_calibrator(document, column.partition(".")[0])
    assert caught.value.column == column


def test_rounds_past_the_last_fitted_one() -> None:
    values = np.array([0.5, math.nan])
    for calibrator, expected in (
        (PerRoundCalibrator(maps=MAPS[:1]), math.nan),
        (PerRoundCalibrator(maps=MAPS[:1], absent=0.5), 0.5),
        (PerRoundCalibrator(maps=MAPS[:1], beyond=MAPS[2]), 0.4),
    ):
        assert calibrator.predict(1, values)[0] == 0.5
        np.testing.assert_equal(calibrator.predict(2, values)[0], expected)
        np.testing.assert_equal(at(calibrator, 2, 0.5), expected)
    everywhere = PerRoundCalibrator(beyond=MAPS[0])
    assert [at(everywhere, number, 0.5) for number in (1, 2, 99)] == [0.5] * 3

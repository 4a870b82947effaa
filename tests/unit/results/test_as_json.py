from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from pathlib import Path

import numpy as np

from suffice.results.as_json import as_json


class Kind(Enum):
    RULE = "rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    value: float | None
    low: float = field(default=0.0, metadata={"json": "lowest"})
    draws: tuple[float, ...] = field(default=(), metadata={"json": None})
    reason: str | None = field(default=None, metadata={"json_none": False})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    inner: Inner
    more: tuple[Inner, ...]


def test_nested_dataclasses_are_their_fields() -> None:
    found = Outer(
        inner=Inner(value=float("nan"), draws=(1.0,)), more=(Inner(value=1.5, reason="few"),)
    )
    assert as_json(found) == {
        "inner": {"value": None, "lowest": 0.0},
        "more": [{"value": 1.5, "lowest": 0.0, "reason": "few"}],
    }


def test_numpy_enums_dates_and_paths() -> None:
    found = as_json(
        {
            "array": np.array([[1.0, np.nan], [np.inf, 2.0]]),
            "scalar": np.int16(3),
            "flag": np.bool_(True),
            "single": np.float32(0.5),
            "kind": Kind.RULE,
            Kind.RULE: {1: date(2025, 1, 2)},
            "path": Path("a/b"),
            "names": frozenset({"x"}),
            "generated": (n for n in (1, 2)),
        }
    )
    assert found == {
        "array": [[1.0, None], ["inf", 2.0]],
        "scalar": 3,
        "flag": True,
        "single": 0.5,
        "kind": "rule",
        "rule": {"1": "2025-01-02"},
        "path": "a/b",
        "names": ["x"],
        "generated": [1, 2],
    }
    assert type(found["flag"]) is bool
    assert json.loads(json.dumps(found, allow_nan=False)) == found

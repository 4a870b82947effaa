"""Every known shape of usage gives the same counts, and a broken one gives none."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suffice.trace.usage import read_counts

WORLD = Path(__file__).parents[2] / "world" / "usage"
SHAPES = [
    pytest.param(shape, id=f"{file.stem}: {shape['name']}")
    for file in sorted(WORLD.glob("*.json"))
    for shape in json.loads(file.read_text("utf-8"))
]


def _object(value: Any) -> Any:
    """A client's object in place of each mapping."""
    if not isinstance(value, dict):
        return value
    return SimpleNamespace(**{name: _object(held) for name, held in value.items()})


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_read_as_mapping_and_as_object(shape: dict[str, Any]) -> None:
    for reported in (shape["reported"], _object(shape["reported"])):
        read = read_counts(reported, whole=shape.get("whole", False))
        assert [read.prompt, read.cached, read.completion, read.reasoning] == shape["counts"]


@pytest.mark.parametrize("reported", [None, 3, "x", [1], object(), b"x", float("nan"), type])
def test_what_is_no_usage_is_unknown(reported: Any) -> None:
    assert read_counts(reported).prompt is None


def test_an_object_that_fails_is_unknown() -> None:
    class Failing:
        def model_dump(self) -> dict[str, Any]:
            raise RuntimeError

    assert read_counts(Failing()).completion is None


def test_deep_documents_end() -> None:
    deep: dict[str, Any] = {}
    deep["usage"] = deep
    assert read_counts(deep).prompt is None

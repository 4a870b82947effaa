from __future__ import annotations

import html
import json
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

from suffice.results.as_json import as_json
from suffice.results.markup import element, join, json_for_script, visible

HOSTILE = (
    "<script>window.hacked=1</script>",
    "</script><!--",
    "]]> & &amp; \"double\" 'single' `tick`",
    "a\u2028b\u2029c",
    "abc\u202edef\u2066ghi\u200b",
    "nul\x00bell\x07",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_text_and_attributes_are_escaped_and_come_back_whole(text: str) -> None:
    made = element("p", text, title=text)
    assert made.count("<") == 2
    assert made.count('"') == 2
    inner = made.partition(">")[2].removesuffix("</p>")
    assert html.unescape(inner) == visible(text)


def test_a_string_made_from_markup_is_text_again() -> None:
    bold = element("b", "x")
    assert join([bold]) == "<b>x</b>"
    assert join([f"{bold}"]) == "&lt;b&gt;x&lt;/b&gt;"
    assert join([bold + "<"]) == "&lt;b&gt;x&lt;/b&gt;&lt;"


@pytest.mark.parametrize("text", HOSTILE)
def test_json_in_a_script_round_trips_and_cannot_end_it(text: str) -> None:
    embedded = json_for_script({text: [text, None, 1.5]})
    assert not set(embedded) & set("<>&\u2028\u2029")
    assert json.loads(embedded) == {text: [text, None, 1.5]}


def test_visible_spells_out_what_hides_or_reorders_text_and_nothing_else() -> None:
    assert visible("abc\u202edef") == "abc[U+202E]def"
    assert visible("zero\u200bwidth\ufeff") == "zero[U+200B]width[U+FEFF]"
    assert visible("\ud800") == "[U+D800]"
    plain = "Ångström, 東京, עברית, naïve\n\ttab 🙂 👩‍🚀"
    assert visible(plain) == plain


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

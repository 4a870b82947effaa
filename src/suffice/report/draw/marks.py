"""A short mark and a family for every policy, the same in every table and chart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, product
from string import ascii_uppercase
from typing import Literal

from suffice.replay.run.results import PolicyResult, ReplayResult
from suffice.results.markup import Html, element, shorten, visible

Family = Literal["fixed", "adaptive", "oracle"]
_LONGEST_NAME = 40
_FIXED = re.compile(r"fixed-(\d{1,2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """A policy's result with its mark: k for fixed-k, a letter for any other."""

    mark: str
    family: Family
    baseline: bool
    result: PolicyResult


def marked(result: ReplayResult) -> tuple[Marked, ...]:
    """The policies in order, each with a mark of its own."""
    letters = _letters()
    return tuple(
        Marked(
            mark=fixed.group(1) if (fixed := _FIXED.fullmatch(each.name)) else next(letters),
            family=_family(each),
            baseline=each.name == result.baseline,
            result=each,
        )
        for each in result.policies
    )


def short_name(policy: Marked) -> str:
    """The policy's name with nothing invisible in it and its middle cut when it is long."""
    return shorten(visible(policy.result.name), _LONGEST_NAME)


def label(policy: Marked, name: str | None = None) -> Html:
    """The mark beside the short name, or beside the ``name`` given."""
    sign = element("span", policy.mark, class_=f"mark {policy.family}")
    shown = element("bdi", short_name(policy) if name is None else name)
    return element("span", sign, shown, class_="who")


def _family(policy: PolicyResult) -> Family:
    if policy.kind == "oracle":
        return "oracle"
    return "fixed" if policy.kind == "fixed" else "adaptive"


def _letters() -> Iterator[str]:
    for length in count(1):
        yield from map("".join, product(ascii_uppercase, repeat=length))

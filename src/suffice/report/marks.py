"""A short mark and a family for every policy, the same in every table and chart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, product
from string import ascii_uppercase

from suffice.contracts import Facts
from suffice.replay.run.results import PolicyResult, ReplayResult
from suffice.report.svg import Family
from suffice.results.markup import Html, element, join, shorten, visible
from suffice.results.table import Dress, Table

_LONGEST_NAME = 40
_FIXED = re.compile(r"fixed-(\d{1,2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """A policy's result with its mark: k for fixed-k, a letter for any other."""

    mark: str
    family: Family
    baseline: bool
    result: PolicyResult

    @property
    def full_name(self) -> str:
        """Mark and name, the baseline said."""
        return f"{self.mark}  {self.result.label}{' (baseline)' if self.baseline else ''}"

    @property
    def facts(self) -> Facts:
        """What the policy says of itself; nothing where it is not known."""
        return Facts() if self.result.policy is None else self.result.policy.facts


def marked(result: ReplayResult) -> tuple[Marked, ...]:
    """The policies in order, each with a mark of its own."""
    lengths = (product(ascii_uppercase, repeat=length) for length in count(1))
    letters = map("".join, chain.from_iterable(lengths))
    return tuple(
        Marked(
            mark=fixed.group(1) if (fixed := _FIXED.fullmatch(policy.name)) else next(letters),
            family=_family(policy),
            baseline=policy.name == result.baseline,
            result=policy,
        )
        for policy in result.policies
    )


def short_name(policy: Marked) -> str:
    """The policy's name with nothing invisible in it and its middle cut when it is long."""
    return shorten(visible(policy.result.label), _LONGEST_NAME)


def label(policy: Marked, name: str | None = None) -> Html:
    """The mark beside the short name, or beside the ``name`` given."""
    sign = element("span", policy.mark, class_=f"mark {policy.family}")
    shown = element("bdi", short_name(policy) if name is None else name)
    return element("span", sign, shown, class_="who")


def named(name: str, policies: Sequence[Marked]) -> Marked | None:
    """The policy of this label or name, if it is among those shown."""
    by_name = {policy.result.name: policy for policy in policies}
    by_label = {policy.result.label: policy for policy in policies}
    return by_label.get(name) or by_name.get(name)


def label_of(name: str, policies: Sequence[Marked]) -> Html:
    """The label of the policy of this name, or the name alone."""
    policy = named(name, policies)
    return join([name]) if policy is None else label(policy)


def labelled(
    table: Table, policies: Sequence[Marked], dressed: Mapping[str, Dress] | None = None
) -> Html:
    """A table whose column ``policy`` has the labels of the policies it names."""
    names = table.data()["policy"]
    labels: Dress = lambda number, _: label_of(str(names[number]), policies)  # noqa: E731
    return table.html({"policy": labels, **(dressed or {})})


def short_name_of(name: str, policies: Sequence[Marked]) -> str:
    """The short name of the policy of this name, or the name itself."""
    policy = named(name, policies)
    return name if policy is None else short_name(policy)


def legend(colours: Iterable[tuple[str, str]]) -> Html:
    """What the colours mean: (class, name) each."""
    keys = (
        element("span", element("i", class_=f"swatch {class_}"), name, class_="key")
        for class_, name in colours
    )
    return element("span", *keys, class_="keys")


def _family(policy: PolicyResult) -> Family:
    if policy.kind == "oracle":
        return "oracle"
    return "fixed" if policy.kind == "fixed" else "adaptive"

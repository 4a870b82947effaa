"""The markup of a page that loads nothing, of its sections, and the marks of policies."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from itertools import chain, count, groupby, product
from string import ascii_uppercase
from typing import TypeVar

from suffice._version import VERSION
from suffice.contracts import Facts
from suffice.evaluation.diagnose.report_data import ReportData, ReportParts
from suffice.evaluation.replay.results import PolicyResult, ReplayResult
from suffice.report.svg import Family
from suffice.results.markup import Html, data_table, element, join, shorten, visible
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
        return f"{self.mark}  {self.result.label}{' (baseline)' if self.baseline else ''}"

    @property
    def facts(self) -> Facts:
        """What the policy says of itself; empty where it is unknown."""
        return Facts() if self.result.policy is None else self.result.policy.facts


def marked(result: ReplayResult) -> tuple[Marked, ...]:
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
    """Return the policy's name with hidden characters spelled out, cut in the middle if long."""
    return shorten(visible(policy.result.label), _LONGEST_NAME)


def label(policy: Marked, name: str | None = None) -> Html:
    """Return the mark beside the short name, or beside ``name``."""
    sign = element("span", policy.mark, class_=f"mark {policy.family}")
    shown = element("bdi", short_name(policy) if name is None else name)
    return element("span", sign, shown, class_="who")


def named(name: str, policies: Sequence[Marked]) -> Marked | None:
    """Return the policy of this label or name, if it is shown."""
    by_name = {policy.result.name: policy for policy in policies}
    by_label = {policy.result.label: policy for policy in policies}
    return by_label.get(name) or by_name.get(name)


def label_of(name: str, policies: Sequence[Marked], shown: str | None = None) -> Html:
    """Return the label of the policy of this name, or the name alone; ``shown``: text beside its mark."""
    policy = named(name, policies)
    return join([shown or name]) if policy is None else label(policy, shown)


def labelled(
    table: Table, policies: Sequence[Marked], dressed: Mapping[str, Dress] | None = None
) -> Html:
    """Return a table in HTML with policies' labels in its column ``policy``."""
    names = table.data()["policy"]
    labels: Dress = lambda number, _: label_of(str(names[number]), policies)  # noqa: E731
    return table.html({"policy": labels, **(dressed or {})})


def short_name_of(name: str, policies: Sequence[Marked]) -> str:
    """Return the short name of the policy of this name, or the name itself."""
    policy = named(name, policies)
    return name if policy is None else short_name(policy)


def legend(colours: Iterable[tuple[str, str]]) -> Html:
    """Return a legend of (class, name) pairs."""
    keys = (
        element("span", element("i", class_=f"swatch {class_}"), name, class_="key")
        for class_, name in colours
    )
    return element("span", *keys, class_="keys")


def _family(policy: PolicyResult) -> Family:
    if policy.kind == "oracle":
        return "oracle"
    return "fixed" if policy.kind == "fixed" else "adaptive"


def asset(name: str) -> Html:
    return Html(files("suffice.report").joinpath(name).read_text(encoding="utf-8"))


def markup(name: str) -> Html:
    """Read a file of markup, without the spaces between its lines."""
    return Html("".join(line.strip() for line in asset(name).splitlines()))


def page(title: str, *content: object, script: Html) -> str:
    """Return the whole document in the report's style, with ``script`` at its end."""
    style = asset("page.css")
    security = (
        f"default-src 'none'; style-src {_hashed(style)}; script-src {_hashed(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=Html(security)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("link", rel="icon", href="data:,"),
        element("style", style),
    )
    footer = element("footer", f"Suffice {VERSION}. This file loads nothing from anywhere.")
    body = element("body", *content, footer, element("script", script))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _hashed(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"


_LONGEST_SENTENCE = 400
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Pictures with a caption and folded numbers; ``whose`` stands above the pictures."""

    heading: str
    pictures: Sequence[Html]
    caption: object
    table: Html | None = None
    whose: Html | None = None
    panels: bool = False

    def html(self) -> Html:
        pictures = join(self.pictures)
        return element(
            "figure",
            element("h3", self.heading),
            *(() if self.whose is None else (self.whose,)),
            element("div", pictures, class_="panels") if self.panels else pictures,
            element("figcaption", self.caption),
            *([] if self.table is None else [folded(f"Numbers: {self.heading}", self.table)]),
            class_="wide" if self.panels else None,
        )


Block = Html | Chart


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A section's content: its finding in one line, then blocks."""

    finding: object
    blocks: Sequence[Block]

    def html(self) -> Html:
        return stacked(self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """The data of a report and the marks of its policies."""

    data: ReportData
    policies: tuple[Marked, ...]

    @property
    def parts(self) -> ReportParts:
        return self.data.parts


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the report: its name in links, its heading and its function."""

    name: str
    heading: str
    show: Callable[[Material], Shown | None]
    part: str | None = None
    opened: bool = False

    def html(self, shown: Shown) -> Html:
        summary = element(
            "summary",
            element("h2", self.heading),
            " ",
            element("span", shown.finding, class_="finding"),
        )
        fold = element("details", summary, shown.html(), class_="fold", open=self.opened)
        return element("section", fold, id=self.name, class_=None if self.opened else "more")


def stacked(blocks: Iterable[Block]) -> Html:
    """Stack blocks; consecutive charts stand side by side."""
    rows = []
    for narrow, group in groupby(
        blocks, lambda block: isinstance(block, Chart) and not block.panels
    ):
        row = join(block.html() if isinstance(block, Chart) else block for block in group)
        rows.append(element("div", row, class_="figures") if narrow else row)
    return join(rows)


def columns(
    caption: str, items: Iterable[Item], *of_item: tuple[object, Callable[[Item], object]]
) -> Html:
    """Return a table with a row for every item; columns are (head, function of an item)."""
    rows = [[cell(item) for _, cell in of_item] for item in items]
    return data_table(caption, [head for head, _ in of_item], rows)


def folded(summary: object, *content: object) -> Html:
    return element("details", element("summary", summary), *content)


def plain(*content: object, small: bool = False) -> Html:
    return element("p", *content, class_="plain small" if small else "plain")


def listed(items: Iterable[object], *, small: bool = False, name: str | None = None) -> Html:
    """Return a list of notes; nothing where there are none."""
    lines = [element("li", item) for item in items]
    class_ = "notes small" if small else "notes"
    return element("ul", *lines, class_=class_, id=name) if lines else Html()


def sentence(text: str) -> str:
    """Return recorded words as a sentence of bounded length."""
    shown = shorten(visible(text).strip(), _LONGEST_SENTENCE)
    return f"{shown[:1].upper()}{shown[1:]}{'' if shown.endswith('.') else '.'}"


def two_lines(first: str, second: str) -> Html:
    return join([first, element("br"), second])

"""Every cost of every policy."""

from __future__ import annotations

from collections.abc import Sequence

from suffice.measures.costs import CostAxis
from suffice.report.draw.marks import Marked, label
from suffice.report.page.section import Section, plain
from suffice.results.formats import amount
from suffice.results.markup import Html, data_table, element, join


def costs_section(costs: Sequence[CostAxis], policies: Sequence[Marked]) -> Section:
    """Mean costs per question; those unknown for every policy are named below."""
    known = [cost for cost in costs if any(_paid(each, cost) is not None for each in policies)]
    unknown = [cost.label for cost in costs if cost not in known]
    table = data_table(
        "Every cost known here, mean per question",
        ("policy", *(_head(cost) for cost in known)),
        [(label(each), *(amount(_paid(each, cost)) for cost in known)) for each in policies],
    )
    content = join(
        [
            plain("Means per question. A policy pays for what it reads; - is unknown."),
            table,
            element("p", f"Unknown here: {', '.join(unknown)}.", class_="plain small")
            if unknown
            else "",
        ]
    )
    finding = f"{len(known)} of {len(costs)} costs are known here"
    return Section(name="costs", heading="Costs", finding=finding, content=content)


def _paid(each: Marked, cost: CostAxis) -> float | None:
    if cost.name == "rounds":
        return each.result.mean_rounds
    return each.result.costs.get(cost.name)


def _head(cost: CostAxis) -> Html:
    first, last = cost.head
    return join([first, element("br"), last] if first else [last])

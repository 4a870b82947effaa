"""Every cost of every policy."""

from __future__ import annotations

from collections.abc import Sequence

from suffice.measures.costs import CostAxis
from suffice.report.draw.marks import Marked, label
from suffice.report.page.section import Section, Shown, plain, two_lines
from suffice.results.formats import UNKNOWN
from suffice.results.markup import Html, data_table, join


def costs_section(costs: Sequence[CostAxis], policies: Sequence[Marked]) -> Shown:
    """Mean costs per question; those unknown for every policy are named below."""
    known = [
        cost
        for cost in costs
        if any(policy.result.paid(cost.name) != UNKNOWN for policy in policies)
    ]
    unknown = [cost.label for cost in costs if cost not in known]
    rows = [
        (label(policy), *(policy.result.paid(cost.name) for cost in known)) for policy in policies
    ]
    head = ("policy", *(_head(cost) for cost in known))
    table = data_table("Every cost known here, mean per question", head, rows)
    named = [plain(f"Unknown here: {', '.join(unknown)}.", small=True)] if unknown else []
    return Shown(
        finding=f"{len(known)} of {len(costs)} costs are known here",
        blocks=[
            plain("Means per question. A policy pays for what it reads; - is unknown."),
            table,
            *named,
        ],
    )


SECTION = Section(
    name="costs",
    heading="Costs",
    part="costs",
    show=lambda material: costs_section(material.parts["costs"], material.policies),
)


def _head(cost: CostAxis) -> Html:
    first, last = cost.head
    return two_lines(first, last) if first else join([last])

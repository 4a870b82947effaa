"""How to read a report: what its words mean."""

from __future__ import annotations

from suffice.report.page.frame import markup
from suffice.report.page.section import Section, Shown

SECTION = Section(
    name="reading",
    heading="How to read it",
    show=lambda _: Shown(finding="what the words mean", blocks=[markup("reading.html")]),
    opened=True,
)

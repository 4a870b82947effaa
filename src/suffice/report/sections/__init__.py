"""The sections of a report, one module each, in the order in which they stand on the page."""

SECTIONS = (
    "suffice.report.sections.choice",
    "suffice.report.sections.comparison",
    "suffice.report.sections.charts",
    "suffice.report.sections.cells",
    "suffice.report.sections.answer_sets",
    "suffice.report.sections.guarantees",
    "suffice.report.sections.search",
    "suffice.report.sections.thresholds",
    "suffice.report.sections.calibration",
    "suffice.report.sections.selective",
    "suffice.report.sections.signals",
    "suffice.report.sections.costs",
    "suffice.report.sections.reliability",
    "suffice.report.sections.questions",
    "suffice.report.page.reading",
)

"""How to read a report: what its words mean."""

from __future__ import annotations

from suffice.report.page.section import Section, Shown
from suffice.results.markup import element

_READING = element(
    "dl",
    *(
        element("div", element("dt", term), element("dd", meaning))
        for term, meaning in (
            (
                "Replay",
                "Every question was run once to the full budget. A policy is scored on those "
                "recorded rounds: it gets the answer of the round at which it stops and pays for the "
                "rounds up to there.",
            ),
            (
                "EM, F1, Acc",
                "EM: the normalised answer equals a gold answer. F1: overlap of their words. "
                "Acc: a gold answer stands somewhere in the answer. Agreement (agr.): the same against the "
                "answer of the full budget instead of gold answers; it says how much a stop changes, not "
                "how much is right.",
            ),
            (
                "F1 kept",
                "F1 as a share of that of the full budget. Above 100%: later rounds hurt more "
                "than they help.",
            ),
            (
                "F1 over fixed-k",
                "F1 minus that of the fixed-k frontier at the same cost. The frontier mixes "
                "the two fixed budgets nearest in cost at random, so a policy worth its name lies above "
                "zero.",
            ),
            (
                "Intervals",
                "95% percentile intervals. The same resampled questions serve all policies, so "
                "differences are paired: they are narrower than the two scores' own intervals, and it is "
                "they that decide. An interval that covers 0 shows no difference; an AUROC whose interval "
                "covers 0.5 is uninformative.",
            ),
            (
                "Tokens",
                "Cached: the part of the prompt the server did not evaluate again.",
            ),
        )
    ),
    class_="reading",
)

SECTION = Section(
    name="reading",
    heading="How to read it",
    show=lambda _: Shown(finding="what the words mean", blocks=[_READING]),
    opened=True,
)

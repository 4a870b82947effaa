"""One self-contained HTML file: nothing is loaded, everything that was recorded is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from suffice._version import VERSION
from suffice.replay.diagnose.question_histories import ReportData
from suffice.replay.diagnose.report_parts import ReportParts
from suffice.replay.run.results import ReplayResult
from suffice.report.draw.bars import cost_figure, stops_figure
from suffice.report.draw.marks import Marked, label, marked
from suffice.report.draw.scatter import em_figure, f1_figure
from suffice.report.draw.unit_square import reliability_figures
from suffice.report.page.explorer import explorer
from suffice.report.page.frame import asset, page
from suffice.report.page.section import Section, folded, plain
from suffice.report.sections.answer_sets import answer_sets_section
from suffice.report.sections.calibration import calibration_section
from suffice.report.sections.comparison import comparison_section
from suffice.report.sections.costs import costs_section
from suffice.report.sections.guarantees import guarantees_section
from suffice.report.sections.search import search_section
from suffice.report.sections.selective import selective_section
from suffice.report.sections.signals import signals_section
from suffice.report.sections.thresholds import thresholds_section
from suffice.results.formats import count, counted
from suffice.results.markup import Html, data_table, element, join, shorten

_LONGEST_VALUE = 300


def render_report(data: ReportData) -> str:
    """The report as one HTML document.

    It loads nothing: style, script and data stand in the file, and its own content security policy
    forbids any other. Texts of the traces are escaped; without JavaScript only the question explorer
    is missing. Five hundred questions stay below 5 MB: what is cut for that is stated in place.
    """
    sections = list(_sections(data))
    return page(
        f"Stopping policies on {PurePath(data.result.source).name}",
        element("a", "Skip to the comparison", href="#comparison", class_="skip"),
        _header(data, sections),
        element("main", *(each.html() for each in sections)),
        element("footer", f"Suffice {VERSION}. This file loads nothing from anywhere."),
        script=asset("page.js"),
    )


def _sections(data: ReportData) -> Iterator[Section]:
    policies = marked(data.result)
    yield comparison_section(data.result, policies, data.parts.left_out)
    yield _charts(data.result, policies)
    sets = answer_sets_section(policies)
    if sets is not None:
        yield sets
    yield from _parts(data.parts, policies)
    figures = reliability_figures(data.reliability, policies)
    if figures:
        yield _reliability(figures)
    yield Section(
        name="questions",
        heading="Questions",
        finding=f"{counted(len(data.stories), 'question')}, round by round",
        content=join([_QUESTIONS_HINT, explorer(data, policies).html()]),
        opened=True,
    )
    yield Section(
        name="reading",
        heading="How to read it",
        finding="what the words mean",
        content=_READING,
        opened=True,
    )


def _parts(parts: ReportParts, policies: Sequence[Marked]) -> Iterator[Section]:
    """What goes beyond the comparison, as far as it is there."""
    if parts.guarantees:
        yield guarantees_section(parts.guarantees, policies)
    if parts.search is not None:
        yield search_section(parts.search, naive=parts.naive)
    if parts.sweep is not None:
        yield thresholds_section(parts.sweep)
    if parts.calibrators is not None:
        yield calibration_section(parts.calibrators)
    if parts.selective:
        yield selective_section(parts.selective, policies)
    if parts.diagnostics is not None:
        yield signals_section(parts.diagnostics, parts.types, policies)
    if parts.costs:
        yield costs_section(parts.costs, policies)


# --- what was replayed -----------------------------------------------------------------------
def _header(data: ReportData, sections: Sequence[Section]) -> Html:
    result = data.result
    links = (element("li", element("a", each.heading, href=f"#{each.name}")) for each in sections)
    policies = "1 policy" if len(result.policies) == 1 else f"{len(result.policies)} policies"
    questions = counted(result.questions, "question")
    return element(
        "header",
        element(
            "div",
            element("p", "Suffice report", class_="eyebrow"),
            element("button", "Dark theme", id="theme", type="button", hidden=True),
            class_="top",
        ),
        element("h1", f"When to stop: {policies} on {questions}"),
        _facts(data),
        _run(data.run),
        element("nav", element("ul", *links), aria_label="Sections"),
    )


def _facts(data: ReportData) -> Html:
    result = data.result
    split = "all splits" if result.split is None else f"split {result.split}"
    facts: list[tuple[str, object]] = [
        ("Traces", result.source),
        (
            "Questions",
            f"{count(result.questions)} ({split}), {count(result.labelled)} with gold answers",
        ),
        ("Rounds", f"at most {result.max_rounds}"),
        ("Model", _value(data.run["model"]) if data.run.get("model") else "not stated"),
        ("F1", f"as {result.f1_kind} scores it"),
        ("Baseline", result.baseline),
        ("Intervals", f"95%, {count(result.resamples)} paired resamples, seed {result.seed}"),
        ("Suffice", VERSION),
    ]
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in facts)
    return element("dl", *pairs, class_="facts")


def _run(run: Mapping[str, object]) -> Html:
    if not run:
        return Html()
    rows = [(name, _value(value)) for name, value in run.items()]
    table = data_table("How the traces were recorded", ("setting", "value"), rows)
    return folded("How the traces were recorded", table)


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shorten(text, _LONGEST_VALUE)


# --- charts ----------------------------------------------------------------------------------
def _charts(result: ReplayResult, policies: Sequence[Marked]) -> Section:
    key = element(
        "ul",
        *(
            element("li", label(each), element("small", "baseline") if each.baseline else "")
            for each in policies
        ),
        class_="marks",
        aria_label="Key to the marks",
    )
    scores = [f1_figure(result, policies), em_figure(result, policies)]
    shown = [each for each in scores if each is not None]
    shown += [stops_figure(result, policies), cost_figure(result, policies)]
    shapes = element(
        "p",
        "Squares and numbers: fixed budgets. Circles and letters: policies. Diamonds: oracles.",
        class_="plain",
    )
    return Section(
        name="charts",
        heading="Charts",
        finding="scores against cost, where policies stop, what they pay",
        content=join([shapes, key, element("div", *shown, class_="figures")]),
        opened=True,
    )


def _reliability(figures: Sequence[Html]) -> Section:
    intro = plain(
        "Is a calibrated value what it says? Among answers with a predicted chance of 40%, "
        "40% should be right."
    )
    return Section(
        name="reliability",
        heading="Reliability",
        finding="calibrated values against the share that was right",
        content=join([intro, *figures]),
        opened=True,
    )


_QUESTIONS_HINT = element(
    "p",
    "Every question, round by round: what was retrieved and answered, and where each policy "
    "stops and why. In the list, the arrow keys move from question to question.",
    class_="plain",
)

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
                "Acc: a gold answer stands somewhere in the answer.",
            ),
            (
                "F1 kept",
                "F1 as a share of that of the full budget. Above 100%: later rounds hurt more "
                "than they help.",
            ),
            (
                "F1 over fixed-k",
                "F1 minus that of the fixed-k frontier at the same cost. The frontier mixes "
                "fixed budgets at random, so a policy worth its name lies above zero.",
            ),
            (
                "Intervals",
                "95% percentile intervals. The same resampled questions serve all policies, so "
                "differences are paired. An interval that covers 0 shows no difference.",
            ),
            (
                "Tokens",
                "Cached: the part of the prompt the server did not evaluate again.",
            ),
        )
    ),
    class_="reading",
)

"""One self-contained HTML file: nothing is loaded, everything that was recorded is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import PurePath

from suffice._version import VERSION
from suffice.errors import attempt
from suffice.replay.diagnose.question_histories import ReportData
from suffice.replay.run.results import ReplayResult
from suffice.report.draw.marks import marked
from suffice.report.page.frame import asset, page
from suffice.report.page.section import Material, Section, Shown, folded, listed
from suffice.report.sections import SECTIONS
from suffice.report.sections.comparison import policies_in_words
from suffice.report.sections.verdict import first_screen
from suffice.results.formats import count, counted
from suffice.results.markup import Html, data_table, element, join, shorten

_LONGEST_VALUE = 300


def render_report(data: ReportData) -> str:
    """The report as one HTML document.

    It loads nothing: style, script and data stand in the file, and its own content security policy
    forbids any other. Texts of the traces are escaped; without JavaScript only the question explorer
    is missing. Five hundred questions stay below 5 MB: what is cut for that is stated in place.
    """
    material = Material(data=data, policies=marked(data.result))
    sections = _shown(material)
    return page(
        f"Stopping policies on {PurePath(data.result.source).name}",
        element("a", "Skip to the comparison", href="#comparison", class_="skip"),
        _header(material, sections),
        element("main", *(section.html(shown) for section, shown in sections.items())),
        script=asset("page.js"),
    )


def _shown(material: Material) -> dict[Section, Shown]:
    """The sections that have something to show; the first also says what is left out and why."""
    sections: dict[Section, Shown] = {}
    left_out = dict(material.parts.left_out)
    known = [import_module(name).SECTION for name in SECTIONS]
    for section in known:
        if section.part is not None and not material.parts[section.part]:
            continue
        shown, why = attempt(partial(section.show, material))
        if why is not None:
            left_out[section.name] = why
        elif shown is not None:
            sections[section] = shown
    first = next(iter(sections))
    headings = {section.part or section.name: section.heading for section in known}
    blocks = [*sections[first].blocks, _left_out(left_out, headings)]
    return sections | {first: replace(sections[first], blocks=blocks)}


def _left_out(reasons: Mapping[str, str], headings: Mapping[str, str]) -> Html:
    if not reasons:
        return Html()
    items = (
        join([element("b", headings.get(name, name[:1].upper() + name[1:])), f": {why}"])
        for name, why in reasons.items()
    )
    return folded(
        f"Left out of this report: {counted(len(reasons), 'part')}",
        listed(items, small=True, name="left-out"),
    )


# --- what was replayed -----------------------------------------------------------------------
def _header(material: Material, sections: Iterable[Section]) -> Html:
    data, result, choice = material.data, material.data.result, material.parts["choice"]
    links = (
        element("li", element("a", section.heading, href=f"#{section.name}"))
        for section in sections
    )
    policies = policies_in_words(len(result.policies))
    questions = counted(result.questions, "question")
    return element(
        "header",
        element(
            "div",
            element(
                "p",
                "Suffice report"
                if choice is None
                else f"A policy for {PurePath(result.source).name}",
                class_="eyebrow",
            ),
            element("button", "Dark theme", id="theme", type="button", hidden=True),
            class_="top",
        ),
        element("h1", f"When to stop: {policies} on {questions}")
        if choice is None
        else element("h1", f"{choice.headline}.", class_="long"),
        first_screen(material),
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
            f"{count(result.questions)} ({split}), {count(result.labelled)} {result.metric.scored}",
        ),
        ("Rounds", f"at most {result.max_rounds}"),
        ("Model", _value(data.run["model"]) if data.run.get("model") else "not stated"),
        ("Compared by", _compared_by(result)),
        ("Baseline", result.baseline_label),
        (
            "Intervals",
            f"95%, {count(result.resamples)} {result.draws}, seed {result.seed}",
        ),
        ("Suffice", VERSION),
    ]
    pairs = (element("div", element("dt", name), element("dd", value)) for name, value in facts)
    return element("dl", *pairs, class_="facts")


def _compared_by(result: ReplayResult) -> str:
    """The score and what it is taken against."""
    metric = result.metric
    which = metric.which_f1(result.f1_kind)
    kind = "" if which is None else f", F1 as {which} scores it"
    if metric.gold:
        return f"{metric.label} against gold answers{kind}"
    if not metric.agreement:
        return "the record's own score, from 0 to 1"
    return f"{metric.label}: agreement with the full budget's own answer, not with the truth{kind}"


def _run(run: Mapping[str, object]) -> Html:
    if not run:
        return Html()
    rows = [(name, _value(value)) for name, value in run.items()]
    table = data_table("How the traces were recorded", ("setting", "value"), rows)
    return folded("How the traces were recorded", table)


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shorten(text, _LONGEST_VALUE)

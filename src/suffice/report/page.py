"""One self-contained HTML file: nothing is loaded, everything that was recorded is escaped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePath

from suffice._version import VERSION
from suffice.errors import attempt, counted
from suffice.evaluation.choose.choice import CHANGED, Choice
from suffice.evaluation.diagnose.report_data import ReportData
from suffice.evaluation.replay.results import BY_SIGNALS, ReplayResult
from suffice.report.comparison import (
    charts_section,
    comparison_section,
    costs_section,
    policies_in_words,
)
from suffice.report.explorer import questions_section
from suffice.report.promises import answer_sets_section, choice_charts, guarantees_section, promises
from suffice.report.searches import search_section
from suffice.report.section import (
    Marked,
    Material,
    Section,
    Shown,
    asset,
    folded,
    label,
    label_of,
    listed,
    marked,
    markup,
    page,
    plain,
    stacked,
)
from suffice.report.worth import (
    calibration_section,
    reliability_section,
    selective_section,
    signals_section,
)
from suffice.results.formats import count
from suffice.results.markup import Html, data_table, element, join, shorten, visible

_MOST_SAVING = 4
_READING = (
    "Points are percentage points, brackets 95% intervals. A fitted candidate is measured on held-out "
    "questions, every other one on all."
)
_FEW = 100  # labelled questions below which a banner says so


def first_screen(material: Material) -> Html:
    """Show the verdict, or the choice, before the sections."""
    result, policies = material.data.result, material.policies
    if (choice := material.parts["choice"]) is not None:
        return _chosen(material, choice)
    parts = (
        (BY_SIGNALS, element("p", result.verdict(), class_="promise")),
        ("What is saved", _saved(result, policies)),
        ("What is promised", _promised(material)),
    )
    return join([*_banners(material), _boxes(parts, "verdict")])


def _chosen(material: Material, choice: Choice) -> Html:
    said = [
        (question, element("p", element("b", short), " ", more, _shown_by(choice, question)))
        for question, (short, more) in choice.answers().items()
    ]
    commands = [
        join([f"{what}: ", element("code", command)])
        for what, command in choice.live("policy.json", "guess.json")
    ]
    titled = partial(_titled, choice, material.policies)
    tables = [element("div", choice.named("costs").html(), plain(_READING, small=True))]
    if choice.promised is not None:
        tables.append(element("div", choice.named("allowed").html({"policy": titled})))
    return join(
        [
            element("p", " ".join([*choice.dearer(), choice.decision[1]]), class_="lead"),
            stacked(choice_charts(choice, material.policies)),
            element("div", *tables, class_="beside"),
            _boxes(said, "verdict four"),
            element("div", element("h2", "To run it"), listed(commands), class_="verdict run"),
            *_banners(material),
        ]
    )


def _shown_by(choice: Choice, question: str) -> Html:
    """Links to the questions whose score changes, behind the answer that counts them."""
    links = [
        element("a", f"score {which} ({len(ids):,})", href="#questions", data_outcome=which)
        for which, ids in choice.early.items()
        if question == CHANGED and which != "all" and ids
    ]
    return join(
        [" Show: ", *[part for link in links for part in (", ", link)][1:], "."] * bool(links)
    )


def _titled(choice: Choice, policies: Sequence[Marked], number: int, shown: str) -> Html:
    proven = None if choice.promised is None else choice.promised.rows[number].proven
    if proven is None:
        return join([shown])
    name = proven.candidate.policy.name
    return join([label_of(name, policies, shown), element("code", name)])


def reading_section(_: Material) -> Shown:
    return Shown(finding="what the words mean", blocks=[markup("reading.html")])


def choice_section(choice: Choice, _: Sequence[Marked]) -> Shown:
    """Show all fitted candidates, and what the other questions than the policy's own say."""
    own, fitted = choice.result, choice.comparison.result
    other, what = (fitted, "Fitted policies") if own is choice.whole else (choice.whole, "Paths")
    all_of = f"a part of these {own.questions:,}" if own is choice.whole else "with those above"
    table = replace(other.table, title=f"{what} on {other.questions:,} questions", notes=())
    warned = folded("Warnings of fits", listed(choice.warned, small=True))
    return Shown(
        finding=choice.title,
        blocks=[
            plain(f"{choice.tried}. The figures of the policy are of the questions that prove it."),
            folded("All fitted candidates", choice.named("candidates").html()),
            folded(
                f"{what} on {other.questions:,} questions, {all_of}",
                element("div", table.html(), class_="comparison"),
            ),
            listed(choice.notes, small=True),
            warned if choice.warned else Html(),
        ],
    )


def _boxes(parts: Iterable[tuple[str, Html]], class_: str) -> Html:
    blocks = (element("div", element("h2", name), content) for name, content in parts)
    return element("div", *blocks, class_=class_)


def _banners(material: Material) -> Iterator[Html]:
    for text in dict.fromkeys((*material.data.warnings, *_warnings(material.data.result))):
        yield element("p", text, class_="banner", role="note")


def _warnings(result: ReplayResult) -> Iterator[str]:
    yield from result.banners
    if result.metric.agreement:
        yield result.metric.legend
    elif not result.labelled:
        yield f"No question {result.metric.unscored}: nothing here says whether answers are right."
    if 0 < result.labelled < _FEW:
        width, label = result.width, result.metric.label
        seen = ""
        if width is not None:
            seen = f" Differences below about {100 * width:.0f} {label} points cannot be told from chance."
        yield (
            f"A small record: {counted(result.labelled, 'question')} {result.metric.scored}."
            f"{seen} Read it as an example, not as a result."
        )


def _saved(result: ReplayResult, policies: Sequence[Marked]) -> Html:
    adaptive = [policy for policy in policies if policy.result.adaptive]
    if not adaptive:
        return element("p", "Nothing: fixed budgets and oracles are all that was replayed.")
    items = [
        join([label(policy), " ", result.saving(policy.result), "."])
        for policy in adaptive[:_MOST_SAVING]
    ]
    more = len(adaptive) - _MOST_SAVING
    if more > 0:
        items.append(join([f"{more} more in the comparison below."]))
    return listed(items)


def _promised(material: Material) -> Html:
    said = list(promises(material.parts["guarantees"], material.policies))
    if said:
        return listed(said)
    return element(
        "p",
        "Nothing: no policy here carries a promise. ",
        element("code", "suffice choose"),
        " chooses one whose loss against the full budget is proven small.",
    )


def _of(part: str, show: Callable[..., Shown]) -> Callable[[Material], Shown]:
    return lambda material: show(material.parts[part], material.policies)


SECTIONS = (
    Section("choice", "The choice", _of("choice", choice_section), "choice", opened=True),
    Section("comparison", "Comparison", comparison_section, opened=True),
    Section("charts", "Charts", charts_section, opened=True),
    Section("answer-sets", "Answer sets", lambda m: answer_sets_section(m.data.result, m.policies)),
    Section("guarantees", "Guarantees", _of("guarantees", guarantees_section), "guarantees"),
    Section("search", "Search", _of("search", search_section), "search"),
    Section("calibration", "Calibration", _of("calibrators", calibration_section), "calibrators"),
    Section("selective", "Selective prediction", _of("selective", selective_section), "selective"),
    Section("signals", "Signals", signals_section, "diagnostics"),
    Section("costs", "Costs", _of("costs", costs_section), "costs"),
    Section("reliability", "Reliability", reliability_section, opened=True),
    Section("questions", "Questions", questions_section, opened=True),
    Section("reading", "How to read it", reading_section, opened=True),
)
"""In the order in which they stand on the page."""
_LONGEST_VALUE = 300


def render_report(data: ReportData) -> str:
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
    sections: dict[Section, Shown] = {}
    left_out = dict(material.parts.left_out)
    for section in SECTIONS:
        if section.part is not None and not material.parts[section.part]:
            continue
        shown, why = attempt(partial(section.show, material))
        if why is not None:
            left_out[section.name] = why
        elif shown is not None:
            sections[section] = shown
    first = next(iter(sections))
    headings = {section.part or section.name: section.heading for section in SECTIONS}
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
    rule = "" if choice is None else _value(visible(choice.policy.facts.summary))
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
        else element("h1", choice.decision[0], " ", element("code", rule), class_="long"),
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
        ("Compared by", f"{result.metric.label}, by {result.metric.labels}"),
        ("Baseline", result.baseline_label),
        ("Intervals", f"95%, {count(result.resamples)} {result.draws}, seed {result.seed}"),
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

"""A search: the Pareto chart, the first rules and the front, and what the correction covers."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase

from suffice.replay.choose.search_results import SearchedRule, SearchResult
from suffice.report.draw.scatter import figure
from suffice.report.draw.svg import (
    FRAME,
    SIZE,
    Axes,
    badge,
    canvas,
    dot,
    enclosing,
    line,
    place_badges,
    speck,
    text,
    whisker,
)
from suffice.report.page.section import Section, folded, plain, two_lines, with_interval
from suffice.report.tables.search import search_notes, search_verdict
from suffice.results.formats import amount, bracket, counted, decimal, p_value, percent, signed
from suffice.results.markup import Html, data_table, element, join, shorten, visible

_TOP = 15
_LONGEST_RULE = 400
_MOST_SPECKS = 2_000


def search_section(result: SearchResult, *, naive: bool = False) -> Section:
    """Rules in the order of tune, the front, and the statement about looking at many."""
    settings = result.settings
    front = _front(result)
    intro = (
        f"Every rule of form {settings.form} over {', '.join(settings.signals)}: "
        f"{counted(result.evaluated, 'rule')}, {counted(result.thresholds_tried, 'threshold')} tried. "
        f"Thresholds and order come from split {settings.tune_split}, figures from split "
        f"{settings.eval_split}."
    )
    notes = [*search_notes(result, naive=naive), *result.notes]
    content = join(
        [
            plain(intro),
            element("ul", *(element("li", each) for each in notes), class_="notes"),
            element("div", _pareto_figure(result, front, naive=naive), class_="figures"),
            element("h3", f"The first {min(_TOP, len(result.rules))} rules, best on tune first"),
            _rules("Rules found, best on tune first", _numbered(result), result, naive=naive),
            folded("Thresholds of the conditions", _thresholds(result)),
        ]
    )
    return Section(name="search", heading="Search", finding=_finding(result), content=content)


def _finding(result: SearchResult) -> str:
    verdict = search_verdict(result).replace("No rule", "none", 1)
    return f"{counted(result.evaluated, 'rule')}, {verdict} after correction"


def _front(result: SearchResult) -> list[SearchedRule]:
    return sorted((each for each in result.rules if each.pareto), key=lambda each: each.tune_cost)


def _mark(number: int) -> str:
    return ascii_lowercase[number] if number < len(ascii_lowercase) else ""


def _numbered(result: SearchResult) -> list[tuple[str, SearchedRule]]:
    return [(str(number), each) for number, each in enumerate(result.rules[:_TOP], 1)]


# --- the chart -----------------------------------------------------------------------------------
def _pareto_figure(result: SearchResult, front: Sequence[SearchedRule], *, naive: bool) -> Html:
    ends = [end for each in front for end in (each.interval.low, each.interval.high)]
    rules = result.rules[:_MOST_SPECKS]
    axes = enclosing(
        [each.cost for each in (*rules, *front)],
        [*ends, result.baseline_f1, *(each.f1 for each in rules)],
    )
    level = axes.y(result.baseline_f1)
    drawn = [
        *axes.drawn(f"mean {result.cost.per_question}", "F1, %"),
        line((FRAME.left, level), (FRAME.right, level), "frontier"),
        *_specks(rules, axes),
        *_front_marks(front, axes, naive=naive),
        text((FRAME.right, 16), f"dashed: {shorten(visible(result.baseline), 24)}", "tick end"),
    ]
    picture = canvas(
        SIZE,
        "F1 against cost of the rules searched",
        f"{counted(len(rules), 'rule')} on eval, the Pareto front with intervals.",
        drawn,
    )
    drawn_of = f" The first {_MOST_SPECKS:,} are drawn." if len(rules) < len(result.rules) else ""
    thin = " Thin lines beside them look at one rule alone and hide the search." if naive else ""
    caption = (
        f"Small dots: every rule, on {result.settings.eval_split}.{drawn_of} Letters: the Pareto front "
        f"of {result.settings.tune_split}, with intervals that hold for all "
        f"{result.family:,} rules and thresholds looked at together.{thin}"
    )
    marked = [(_mark(number), each) for number, each in enumerate(front)]
    table = _rules("Pareto front, cheapest first", marked, result, naive=naive)
    return figure(picture, caption, table, "Cost and F1 of the rules")


def _specks(rules: Sequence[SearchedRule], axes: Axes) -> list[Html]:
    """One dot a place: many rules stop alike."""
    places = dict.fromkeys(
        (round(2 * axes.x(each.cost)) / 2, round(2 * axes.y(each.f1)) / 2) for each in rules
    )
    return [speck(place, "speck") for place in places]


def _front_marks(front: Sequence[SearchedRule], axes: Axes, *, naive: bool) -> list[Html]:
    x, y = axes.x, axes.y
    at = [(x(each.cost), y(each.f1)) for each in front]
    wide = [
        ((x(each.cost), y(each.interval.low)), (x(each.cost), y(each.interval.high)))
        for each in front
    ]
    places = place_badges(FRAME, at, wide)
    drawn = [whisker(ends, "whisker adaptive") for ends in wide]
    if naive:
        drawn += [
            line(
                (x(each.cost) + 4, y(each.naive.low)),
                (x(each.cost) + 4, y(each.naive.high)),
                "alone",
            )
            for each in front
        ]
    lettered = [
        (place, end, _mark(number))
        for number, (place, end) in enumerate(zip(at, places, strict=True))
        if _mark(number)
    ]
    drawn += [line(place, end, "leader") for place, end, _ in lettered]
    for each, place in zip(front, at, strict=True):
        hint = f"{shorten(visible(each.rule), 120)}: F1 {percent(each.f1)}%, {amount(each.cost)}"
        drawn.append(dot(place, "adaptive", hint))
    return drawn + [badge(end, mark, "adaptive") for _, end, mark in lettered]


# --- the tables ----------------------------------------------------------------------------------
def _rules(
    caption: str,
    rules: Sequence[tuple[str, SearchedRule]],
    result: SearchResult,
    *,
    naive: bool,
) -> Html:
    own = () if result.cost.name == "rounds" else (result.cost.label,)
    head = (
        "rule",
        "tune F1 %",
        two_lines("F1 %", "[95%, all]"),
        *((two_lines("F1 %", "[95%, alone]"),) if naive else ()),
        "EM %",
        "rounds",
        *own,
        two_lines(f"F1 against {shorten(visible(result.baseline), 20)}", "[95%, all]"),
        two_lines("p", "(Holm)"),
    )
    rows = [
        (
            _rule(mark, each),
            percent(each.tune_f1),
            with_interval(percent(each.f1), each.interval),
            *((bracket(each.naive),) if naive else ()),
            percent(each.em),
            decimal(each.mean_rounds),
            *(amount(each.cost) for _ in own),
            with_interval(signed(each.delta_f1.estimate), each.delta_f1),
            p_value(each.p_holm),
        )
        for mark, each in rules
    ]
    return element("div", data_table(caption, head, rows), class_="rules")


def _rule(mark: str, each: SearchedRule) -> Html:
    sign = element("span", mark, class_="mark adaptive") if mark else ""
    tags = [element("span", "front", class_="tag")] if each.pareto and mark.isdigit() else []
    if not each.within_cap:
        tags.append(element("span", "over the cap", class_="tag"))
    rule = element("code", shorten(visible(each.rule), _LONGEST_RULE))
    shown = element("span", rule, *(join([" ", each]) for each in tags))
    return element("span", sign, shown, class_="who")


def _thresholds(result: SearchResult) -> Html:
    rows = [
        (
            element("code", each.signal),
            element("code", each.condition),
            each.tried,
            "never fires" if each.never else "",
        )
        for each in result.thresholds
    ]
    head = ("signal", "condition", "thresholds tried", "note")
    return data_table("Conditions of the search", head, rows)

"""What was searched: every rule of a form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from string import ascii_lowercase

from suffice.replay.choose.search import SearchedRule, SearchResult
from suffice.report.charts import Point, Scatter, scatter
from suffice.report.section import Chart, Shown, columns, folded, listed
from suffice.results.formats import amount, counted, percent
from suffice.results.markup import Html, element, join, shorten, visible
from suffice.results.table import Table

_TOP = 15
_LONGEST_RULE = 400
_MOST_SPECKS = 2_000


def search_section(result: SearchResult) -> Shown:
    """Rules in the order of tune, the front, and the statement about looking at many."""
    first = [(str(number), rule) for number, rule in enumerate(result.listed[:_TOP], 1)]
    rules, front = result.tables(top=_TOP)
    verdict = result.verdict.replace("No rule", "none", 1)
    return Shown(
        finding=f"{counted(result.evaluated, 'rule')}, {verdict} after correction",
        blocks=[
            listed([*result.explained(naive=False), *result.notes]),
            _front(result, front),
            element("h3", f"The first {len(first)} rules, best on tune first"),
            _table(rules, "Rules found, best on tune first", first, result),
            folded("Thresholds of the conditions", _thresholds(result)),
        ],
    )


def _front(result: SearchResult, table: Table) -> Chart:
    """The Pareto front, lettered, among all rules."""
    pareto = sorted(
        (rule for rule in result.listed if rule.pareto), key=lambda rule: rule.tune_cost
    )
    letters = [*ascii_lowercase, *[""] * len(pareto)]
    front = list(zip(letters, pareto, strict=False))
    rules = result.rules[:_MOST_SPECKS]
    chart = Scatter(
        title=f"{result.metric.label} against cost of the rules searched",
        description=f"{counted(len(rules), 'rule')} on eval, the Pareto front with intervals.",
        x_name=f"mean {result.cost.per_question}",
        y_name=f"{result.metric.label}, %",
        points=[_point(mark, rule) for mark, rule in front],
        specks=[(rule.cost, rule.score) for rule in rules],
        level=(result.baseline_score, f"dashed: {shorten(visible(result.baseline), 24)}"),
    )
    first = f" The first {_MOST_SPECKS:,} are drawn." if len(rules) < len(result.rules) else ""
    return Chart(
        heading=f"Cost and {result.metric.label} of the rules",
        pictures=[scatter(chart)],
        caption=f"Small dots: every rule, on {result.settings.eval_split}.{first} Letters: the Pareto front "
        f"of {result.settings.tune_split}, with intervals that hold for all "
        f"{result.family:,} rules and thresholds looked at together.",
        table=_table(table, "Pareto front, cheapest first", front, result),
    )


def _point(mark: str, rule: SearchedRule) -> Point:
    return Point(
        mark=mark,
        family="adaptive",
        x=rule.cost,
        y=rule.score,
        name=shorten(visible(rule.rule), 120),
        said=f"{rule.metric.label} {percent(rule.score)}%, {amount(rule.cost)}",
        interval=(rule.interval.low, rule.interval.high),
    )


# --- the tables ----------------------------------------------------------------------------------
def _table(
    table: Table, title: str, rules: Sequence[tuple[str, SearchedRule]], result: SearchResult
) -> Html:
    """The rules of a table of the search, each behind its mark."""
    over_rounds = result.cost.name == "rounds"
    figures = [
        column.name
        for column in table.columns
        if column.name not in ("rule", "number") and not (over_rounds and column.name == "cost")
    ]
    shown = replace(table.picked("rule", *figures), title=title, notes=(), names=1)
    dressed = shown.html({"rule": lambda number, _: _rule(*rules[number])})
    return element("div", dressed, class_="rules")


def _rule(mark: str, rule: SearchedRule) -> Html:
    sign = element("span", mark, class_="mark adaptive") if mark else ""
    tags = [element("span", "front", class_="tag")] if rule.pareto and mark.isdigit() else []
    if not rule.within_cap:
        tags.append(element("span", "over the cap", class_="tag"))
    code = element("code", shorten(visible(rule.rule), _LONGEST_RULE))
    shown = element("span", code, *(join([" ", tag]) for tag in tags))
    return element("span", sign, shown, class_="who")


def _thresholds(result: SearchResult) -> Html:
    return columns(
        "Conditions of the search",
        result.thresholds,
        ("signal", lambda condition: element("code", condition.signal)),
        ("condition", lambda condition: element("code", condition.condition)),
        ("thresholds tried", lambda condition: condition.tried),
        ("note", lambda condition: "never fires" if condition.never else ""),
    )

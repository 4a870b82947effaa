"""What was searched: every rule of a form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from suffice.errors import counted
from suffice.evaluation.choose.search import SearchedRule, SearchResult
from suffice.report.charts import Point, Scatter, scatter
from suffice.report.section import Chart, Marked, Shown, columns, folded, listed
from suffice.results.formats import amount, percent
from suffice.results.markup import Html, element, shorten, visible
from suffice.results.table import Table

_TOP = 15
_MOST_SPECKS = 2_000


def search_section(result: SearchResult, _: Sequence[Marked] = ()) -> Shown:
    """Show the best rules on tune, the Pareto front, and the correction for their number."""
    rules, front = result.tables(top=_TOP)
    verdict = result.verdict.replace("No rule", "none", 1)
    return Shown(
        finding=f"{counted(result.evaluated, 'rule')}, {verdict} after correction",
        blocks=[
            listed([*result.explained(naive=False), *result.notes]),
            _front(result, front),
            _table(replace(rules, title="Rules found, best on tune first")),
            folded("Thresholds of the conditions", _thresholds(result)),
        ],
    )


def _table(table: Table) -> Html:
    return element("div", replace(table, notes=()).html(), class_="rules")


def _front(result: SearchResult, table: Table) -> Chart:
    rules = result.rules[:_MOST_SPECKS]
    chart = Scatter(
        title=f"{result.metric.label} against cost of the rules searched",
        description=f"{counted(len(rules), 'rule')} on eval, the Pareto front with intervals.",
        x_name=f"mean {result.cost.per_question}",
        y_name=f"{result.metric.label}, %",
        points=[_point(rule) for rule in result.listed if rule.pareto],
        specks=[(rule.cost, rule.score) for rule in rules],
        level=(result.baseline_score, f"dashed: {shorten(visible(result.baseline), 24)}"),
    )
    first = f" The first {_MOST_SPECKS:,} are drawn." if len(rules) < len(result.rules) else ""
    return Chart(
        heading=f"Cost and {result.metric.label} of the rules",
        pictures=[scatter(chart)],
        caption=f"Small dots: every rule, on {result.settings.eval_split}.{first} Large ones: the Pareto "
        f"front of {result.settings.tune_split}, with intervals that hold for all "
        f"{result.family:,} rules and thresholds looked at together.",
        table=_table(
            replace(
                table.picked("number", result.metric.name, "cost", "rule"),
                title="Pareto front, cheapest first",
            )
        ),
    )


def _point(rule: SearchedRule) -> Point:
    return Point(
        mark="",
        family="adaptive",
        x=rule.cost,
        y=rule.score,
        name=shorten(visible(rule.rule), 120),
        said=f"{rule.metric.label} {percent(rule.score)}%, {amount(rule.cost)}",
        interval=(rule.interval.low, rule.interval.high),
    )


def _thresholds(result: SearchResult) -> Html:
    return columns(
        "Conditions of the search",
        result.thresholds,
        ("signal", lambda condition: element("code", condition.signal)),
        ("condition", lambda condition: element("code", condition.condition)),
        ("thresholds tried", lambda condition: condition.tried),
        ("note", lambda condition: "never fires" if condition.never else ""),
    )

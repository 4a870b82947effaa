"""What signals, calibrated values and confidences are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from suffice.errors import counted
from suffice.evaluation.diagnose.diagnosis import selective_tables
from suffice.evaluation.diagnose.diagnosis import types_table as table_of_types
from suffice.evaluation.diagnose.reliability import CalibratorStudy, Reliability, ReliabilityBucket
from suffice.evaluation.diagnose.signal_diagnostics import Diagnostics
from suffice.report.section import (
    Chart,
    Marked,
    Material,
    Shown,
    folded,
    label,
    label_of,
    labelled,
    legend,
    listed,
    plain,
    short_name_of,
)
from suffice.report.svg import Estimated, Family, Spot, UnitSquare, forest, unit_square
from suffice.results.formats import estimated, fraction, percent
from suffice.results.markup import Html, data_table, element, join, shorten, visible
from suffice.results.table import Table
from suffice.stats.auroc import auroc_use

_LONGEST_NAME = 60
_MOST_ROWS = 40  # of the chart; the tables have all
_MOST_TYPES = 30
_MOST_COLUMNS = 42
_FAMILIES: tuple[Family, ...] = ("fixed", "adaptive")  # of tune and eval, or of all questions


def signals_section(material: Material) -> Shown:
    """Show AUROC, distances and drift of signals, flags, and question types."""
    diagnostics: Diagnostics = material.parts["diagnostics"]
    tables = {table.name: table for table in diagnostics.tables()}
    return Shown(
        finding=_finding(diagnostics),
        blocks=[
            *([_areas(diagnostics, tables)] if diagnostics.signals else []),
            *(_html(tables[name]) for name in _OPEN if name in tables),
            *_flags(diagnostics.signals),
            *(
                folded(summary, element("div", _html(tables[name]), class_="matrix"))
                for name, summary in _FOLDED.items()
                if name in tables
            ),
            types_table(material.parts["types"], material.policies),
            _skipped(diagnostics),
            listed(diagnostics.notes, small=True),
        ],
    )


_OPEN = ("signals", "distances", "margins")
_FOLDED = {
    "concentrations": "Signals of few values: entropy and most common value",
    "types": "Signals by question type",
}


def _finding(diagnostics: Diagnostics) -> str:
    signals = diagnostics.by_use
    flagged = sum(bool(signal["flags"]) for signal in signals)
    warned = f"; {counted(flagged, 'signal')} flagged" if flagged else ""
    known = [signal for signal in signals if diagnostics.area(signal).estimate is not None]
    if not known:
        return f"{counted(len(signals), 'signal')}, none with an AUROC{warned}"
    where = "all questions" if len(diagnostics.parts) == 1 else diagnostics.last
    best = max(known, key=lambda signal: diagnostics.area(signal).estimate or 0.0)
    called = ", uninformative" if best["use"] == "uninformative" else ""
    area = estimated(diagnostics.area(best))
    return f"highest AUROC on {where}: {_name(best['name'])}, {area}{called}{warned}"


def _name(name: str) -> str:
    return shorten(visible(name), _LONGEST_NAME)


# --- AUROC ---------------------------------------------------------------------------------------
def _areas(diagnostics: Diagnostics, tables: Mapping[str, Table]) -> Chart:
    parts = [*diagnostics.parts]
    families = dict(zip(parts, _FAMILIES[-len(parts) :], strict=True))
    drawn = diagnostics.by_use[:_MOST_ROWS]
    picture = forest(
        "AUROC of every signal",
        f"One row a signal, {counted(len(drawn), 'row')}: AUROC with its interval.",
        [
            (
                _name(signal["name"]),
                [_estimated(signal, part, family) for part, family in families.items()],
            )
            for signal in drawn
        ],
        (0.5, "chance"),
    )
    keys = legend((family, part) for part, family in families.items())
    more = len(diagnostics.signals) - len(drawn)
    cut = f" {counted(more, 'more signal')} in the table only." if more else ""
    return Chart(
        heading="AUROC",
        pictures=[picture],
        caption=join([keys, f"All rounds pooled; whiskers: 95% intervals.{cut}"]),
        table=join(_html(tables[f"rounds on {part}"]) for part in parts),
    )


def _estimated(signal: Mapping[str, Any], part: str, family: Family) -> Estimated:
    area = signal["parts"][part]["auroc"]
    known = area.low is not None and area.high is not None
    return Estimated(
        family=family,
        value=area.estimate,
        hint=f"{_name(signal['name'])} on {part}: AUROC {estimated(area)}",
        interval=(area.low or 0.0, area.high or 0.0) if known else None,
    )


def _html(table: Table) -> Html:
    shown = table.picked(*(column.name for column in table.columns[:_MOST_COLUMNS]))
    return shown.html({"signal": lambda _, shown: element("code", _name(shown))})


# --- what speaks against signals -----------------------------------------------------------------
def _flags(signals: Sequence[Mapping[str, Any]]) -> list[Html]:
    tagged = [
        join(
            [
                element("code", _name(signal["name"])),
                f" {flag.message} ",
                element("span", flag.kind.replace("_", " "), class_="tag"),
            ]
        )
        for signal in signals
        for flag in signal["flags"]
    ]
    return [element("h3", "What speaks against signals"), listed(tagged)] if tagged else []


def _skipped(diagnostics: Diagnostics) -> Html:
    if not diagnostics.skipped:
        return Html()
    items = (
        join([element("code", _name(name)), f": {why}"])
        for name, why in diagnostics.skipped.items()
    )
    return folded(
        f"Not here: {counted(len(diagnostics.skipped), 'signal')}", listed(items, small=True)
    )


# --- policies by type ----------------------------------------------------------------------------
def types_table(types: Sequence[Mapping[str, Any]], policies: Sequence[Marked]) -> Html:
    if not types:
        return Html()
    baseline = next((policy.result.name for policy in policies if policy.baseline), None)
    table = table_of_types(types[:_MOST_TYPES], baseline)
    more = len(types) - _MOST_TYPES
    return folded(
        "Policies by question type",
        labelled(table, policies, {"type": lambda _, shown: element("bdi", _name(shown))}),
        plain(f"{counted(more, 'more type')} not shown.", small=True) if more > 0 else "",
    )


def calibration_section(study: CalibratorStudy, _: Sequence[Marked] = ()) -> Shown:
    tables = (table.html() for table in study.tables())
    return Shown(finding=_calibration_finding(study), blocks=[*tables])


def _calibration_finding(study: CalibratorStudy) -> str:
    best = min(study.results, key=lambda score: score["eval"]["brier"].estimate)
    first = study.results[0]["kind"]
    deltas = [score["eval"]["delta_brier"] for score in study.results[1:]]
    differ, others = sum(not one.low <= 0.0 <= one.high for one in deltas), len(deltas)
    apart = (
        f"{differ or 'none'} of {others} other kinds differ{'' if differ > 1 else 's'} from {first}"
    )
    brier = fraction(best["eval"]["brier"].estimate)
    lowest = f"lowest Brier score on {study.eval_split}: {best['kind']}, {brier}"
    return f"{lowest}; {apart}" if others else lowest


# --- reliability ---------------------------------------------------------------------------------
def reliability_section(material: Material) -> Shown | None:
    """Chart every calibrated signal; ``None``: there is none."""
    grouped: dict[tuple[Reliability, ...], list[Marked]] = {}
    for policy in material.policies:  # those with the same calibration share a chart
        diagrams = material.data.reliability.get(policy.result.name, ())
        for signal in dict.fromkeys(diagram.signal for diagram in diagrams):
            rounds = tuple(diagram for diagram in diagrams if diagram.signal == signal)
            grouped.setdefault(rounds, []).append(policy)
    charts = [_chart(sharing, rounds) for rounds, sharing in grouped.items()]
    intro = plain(
        "Is a calibrated value what it says? Among answers with a predicted chance of 40%, "
        "40% should be right."
    )
    finding = "calibrated values against the share that was right"
    return Shown(finding=finding, blocks=[intro, *charts]) if charts else None


def _chart(policies: Sequence[Marked], rounds: Sequence[Reliability]) -> Chart:
    heading = f"calibrated({rounds[0].signal})"
    missing = [f"{shown.undefined} in round {shown.round}" for shown in rounds if shown.undefined]
    without = f" Answers without a value: {', '.join(missing)}." if missing else ""
    return Chart(
        heading=heading,
        whose=element("ul", *(element("li", label(policy)) for policy in policies), class_="marks"),
        pictures=[_panel(shown, heading) for shown in rounds],
        caption="Dots: equal-size groups of answers, larger for more answers; whiskers: 95% Wilson "
        f"intervals. On the diagonal, predictions are kept.{without}",
        table=_reliability_table(rounds, heading),
        panels=True,
    )


def _reliability_table(rounds: Sequence[Reliability], heading: str) -> Html:
    rows = [
        (
            f"round {shown.round}",
            percent(bucket.predicted),
            percent(bucket.right),
            f"[{percent(bucket.low)}, {percent(bucket.high)}]",
            bucket.count,
        )
        for shown in rounds
        for bucket in shown.buckets
    ]
    head = ("round", "predicted %", "right %", "95% interval", "answers")
    return data_table(f"Reliability of {heading}", head, rows)


def _panel(shown: Reliability, heading: str) -> Html:
    most = max((bucket.count for bucket in shown.buckets), default=1)
    return unit_square(
        UnitSquare(
            title=f"{heading}, round {shown.round}",
            description=f"{len(shown.buckets)} groups of answers; the numbers are in the table below.",
            x_name="predicted %",
            y_name="right % ↑",
            name=f"Round {shown.round}",
            spots=[_spot(bucket, most) for bucket in shown.buckets],
            said="no value defined",
        )
    )


def _spot(bucket: ReliabilityBucket, most: int) -> Spot:
    return Spot(
        x=bucket.predicted,
        y=bucket.right,
        hint=f"predicted {percent(bucket.predicted)}%, right {percent(bucket.right)}% "
        f"of {counted(bucket.count, 'answer')}",
        interval=(bucket.low, bucket.high),
        weight=bucket.count / most,
    )


Worth = Mapping[str, Any]
_MOST_PANELS = 12


def selective_section(results: Sequence[Worth], policies: Sequence[Marked]) -> Shown:
    """Show risk-coverage curves, their areas, and answers above and below a threshold."""
    return Shown(
        finding=_selective_finding(results, policies),
        blocks=[
            _curves(results, policies),
            *(labelled(table, policies) for table in selective_tables(results)),
        ],
    )


def _selective_finding(results: Sequence[Worth], policies: Sequence[Marked]) -> str:
    known = [result for result in results if result["auroc"].estimate is not None]
    if not known:
        return f"{counted(len(results), 'confidence')}, none with an AUROC"
    best = max(known, key=lambda result: result["auroc"].estimate or 0.0)
    if auroc_use(best["auroc"]) == "uninformative":
        return (
            f"uninformative: the interval of the highest AUROC holds 0.5 "
            f"({short_name_of(best['policy'], policies)}, {estimated(best['auroc'])})"
        )
    above, below = (percent(best[group]["em"].estimate) for group in ("above", "below"))
    return (
        f"highest AUROC: {short_name_of(best['policy'], policies)}, {estimated(best['auroc'])}; EM {above}% "
        f"where it is confident, {below}% elsewhere"
    )


# --- risk against coverage -----------------------------------------------------------------------
def _curves(results: Sequence[Worth], policies: Sequence[Marked]) -> Chart:
    drawn = results[:_MOST_PANELS]
    more = len(results) - len(drawn)
    cut = f" {more} more in the table only." if more else ""
    panels = [
        element(
            "div",
            element("p", label_of(result["policy"], policies), class_="panel-name"),
            _selective_panel(result, short_name_of(result["policy"], policies)),
        )
        for result in drawn
    ]
    return Chart(
        heading="Risk against coverage",
        pictures=panels,
        caption="Line: share of wrong answers (1 - EM) among the most confident ones; dashed: among all. A "
        "useful confidence rises from left to right."
        f"{cut}",
        panels=True,
    )


def _selective_panel(result: Worth, name: str) -> Html:
    curve = result["curve"].thinned()
    path = list(zip(curve.coverage.tolist(), curve.risk["em"].tolist(), strict=True))
    last = path[-1][1]
    return unit_square(
        UnitSquare(
            title=f"Risk against coverage of {visible(name)}",
            description=f"Risk {percent(last)}% when all are answered.",
            x_name="answered %",
            y_name="risk % ↑",
            path=path,
            level=last,
        )
    )

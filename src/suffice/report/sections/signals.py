"""What every signal says about right and wrong answers, and policies by type of question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from suffice.replay.diagnose.diagnosis import types_table as table_of_types
from suffice.replay.diagnose.signal_diagnostics import Diagnostics
from suffice.report.draw.forest import Estimated, forest
from suffice.report.draw.marks import Marked, labelled, legend
from suffice.report.draw.svg import Family
from suffice.report.page.section import Chart, Shown, folded, listed, plain
from suffice.results.formats import count, counted, estimated
from suffice.results.markup import Html, element, join, shorten, visible
from suffice.results.table import Dress, Plain, Table

_LONGEST_NAME = 60
_MOST_ROWS = 40  # of the chart; the tables have all
_MOST_TYPES = 30
_MOST_CORRELATED = 40
_STRONG = 0.8
_FAMILIES: tuple[Family, ...] = ("fixed", "adaptive")  # of tune and eval, or of all questions


def signals_section(
    diagnostics: Diagnostics, types: Sequence[Mapping[str, Any]], policies: Sequence[Marked]
) -> Shown:
    """AUROC and distance of every signal with drift, what speaks against it, and question types."""
    tables = {table.name: table for table in diagnostics.tables()}
    return Shown(
        finding=_finding(diagnostics),
        blocks=[
            plain(
                "How well each signal alone separates right from wrong answers (exact match). AUROC 0.5 is "
                "no better than chance; below it the signal misleads. Brackets: 95% intervals of "
                f"{count(diagnostics.resamples)} {diagnostics.draws}; drift: the later split minus "
                "the earlier."
            ),
            _areas(diagnostics, tables)
            if diagnostics.signals
            else plain("No signal is defined in these traces."),
            *(
                _html(tables[name].headed(title))
                for name, title in _SEPARATION.items()
                if name in tables
            ),
            *_flags(diagnostics.signals),
            _concentrations(tables),
            _correlated(tables, diagnostics),
            _signals_by_type(tables),
            types_table(types, policies),
            _skipped(diagnostics),
            listed(diagnostics.notes, small=True),
        ],
    )


_SEPARATION = {
    "signals": "AUROC of every signal, all rounds pooled; low: low values speak for stopping; "
    "uninformative: the interval holds 0.5",
    "distances": "Cohen's d of every signal, positive where right answers have the higher values",
    "pearson": "Pearson's r of every signal with exact match",
    "margins": "Mean margin of the answer's first token: raw in nats, and calibrated to P(EM = 1)",
    "wrong and stable": "Answers that are wrong and repeat the round before, of those that could repeat it",
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
    useful, vague = (sum(one["use"] == use for one in known) for use in ("useful", "uninformative"))
    called = ", uninformative" if best["use"] == "uninformative" else ""
    return (
        f"highest AUROC on {where}: {_name(best['name'])}, {estimated(diagnostics.area(best))}{called}; of "
        f"{counted(len(known), 'signal')} {useful} useful, {vague} uninformative (the interval holds 0.5)"
        f"{warned}"
    )


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


def _html(table: Table, dressed: Mapping[str, Dress] | None = None) -> Html:
    """A table with the signals it names as code."""
    signals: Dress = lambda _, shown: element("code", _name(shown))  # noqa: E731
    return table.html({"signal": signals, **(dressed or {})})


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


def _concentrations(tables: Mapping[str, Table]) -> Html:
    table = tables.get("concentrations")
    if table is None:
        return Html()
    return folded("Signals of few values: entropy and most common value", _html(table))


def _correlated(tables: Mapping[str, Table], diagnostics: Diagnostics) -> Html:
    table = tables.get("correlations")
    if table is None:
        return Html()
    names = diagnostics.parts[diagnostics.last]["correlations"]["signals"]
    shown = _MOST_CORRELATED + 2  # number and name come first
    rows = [row[:shown] for row in table.rows[:_MOST_CORRELATED]]
    cut = f" The first {len(rows)} of {len(names)} signals." if len(rows) < len(names) else ""
    first = replace(table, columns=table.columns[:shown], rows=rows)
    strong = {
        column: lambda number, shown, rho=rho: _bold(shown, rho[number])
        for column, rho in first.data().items()
        if column.startswith("rho_")
    }
    return folded(
        "Which signals say the same: rank correlation",
        element("div", _html(first, strong), class_="matrix"),
        plain(
            f"Bold: at least {100 * _STRONG:.0f} in size, the two say nearly the same.{cut}",
            small=True,
        ),
    )


def _bold(shown: str, rho: Plain) -> object:
    strong = isinstance(rho, float) and abs(rho) >= _STRONG
    return element("strong", shown) if shown and strong else shown


def _signals_by_type(tables: Mapping[str, Table]) -> Html:
    table = tables.get("types")
    if table is None:
        return Html()
    names = [column.name for column in table.columns[: _MOST_TYPES + 1]]
    return folded("Signals by question type", _html(table.picked(*names)))


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
    """Every policy on every type of question."""
    if not types:
        return Html()
    baseline = next((policy.result.name for policy in policies if policy.baseline), None)
    table = table_of_types(types[:_MOST_TYPES], baseline)
    more = len(types) - _MOST_TYPES
    cut = f" {counted(more, 'more type')} not shown." if more > 0 else ""
    note = f"Few: under 10 questions, too few to read anything into.{cut}"
    return folded(
        "Policies by question type",
        labelled(
            table.headed("Policies by question type"),
            policies,
            {"type": lambda _, shown: element("bdi", _name(shown))},
        ),
        plain(note, small=True),
    )

"""What every signal says about right and wrong answers, and policies by type of question."""

from __future__ import annotations

from collections.abc import Sequence

from suffice.numbers.intervals.estimate import Estimate
from suffice.replay.diagnose.breakdown import TypeBreakdown
from suffice.replay.diagnose.signal_diagnostics import Diagnostics, Part, SignalDiagnostics
from suffice.report.draw.forest import Estimated, Forest, ForestRow, forest
from suffice.report.draw.marks import Marked, label_of, legend
from suffice.report.draw.svg import Family
from suffice.report.page.section import Chart, Section, Shown, columns, folded, listed, plain
from suffice.results.formats import UNKNOWN, count, counted, decimal, estimated, percent, points
from suffice.results.markup import Html, data_table, element, join, shorten, visible

_LONGEST_NAME = 60
_MOST_ROWS = 40  # of the chart; the tables have all
_MOST_TYPES = 30
_MOST_CORRELATED = 40
_STRONG = 0.8
_FAMILIES: tuple[Family, ...] = ("fixed", "adaptive")  # of tune and eval, or of all questions


def signals_section(
    diagnostics: Diagnostics, types: Sequence[TypeBreakdown], policies: Sequence[Marked]
) -> Shown:
    """AUROC and distance of every signal with drift, what speaks against it, and question types."""
    return Shown(
        finding=_finding(diagnostics),
        blocks=[
            plain(
                "How well each signal alone separates right from wrong answers (exact match). AUROC 0.5 is "
                "no better than chance; below it the signal misleads. Brackets: 95% intervals of "
                f"{count(diagnostics.resamples)} resamples of the questions; drift: the later split minus "
                "the earlier."
            ),
            _areas(diagnostics)
            if diagnostics.signals
            else plain("No signal is defined in these traces."),
            _separation(diagnostics),
            *_flags(diagnostics.signals),
            _concentrations(diagnostics.signals),
            *(_correlated(part) for part in diagnostics.parts[-1:]),
            _signals_by_type(diagnostics),
            types_table(types, policies),
            _skipped(diagnostics),
            listed(diagnostics.notes, small=True),
        ],
    )


SECTION = Section(
    name="signals",
    heading="Signals",
    part="diagnostics",
    show=lambda material: signals_section(
        material.parts["diagnostics"], material.parts["types"], material.policies
    ),
)


def _finding(diagnostics: Diagnostics) -> str:
    part = diagnostics.parts[-1].name
    best = next(
        (signal for signal in _ordered(diagnostics) if _area(signal, part).estimate is not None),
        None,
    )
    flagged = sum(bool(signal.flags) for signal in diagnostics.signals)
    warned = f"; {counted(flagged, 'signal')} flagged" if flagged else ""
    if best is None:
        return f"{counted(len(diagnostics.signals), 'signal')}, none with an AUROC{warned}"
    where = "all questions" if len(diagnostics.parts) == 1 else part
    return f"highest AUROC on {where}: {_name(best.name)}, {estimated(_area(best, part))}{warned}"


def _name(name: str) -> str:
    return shorten(visible(name), _LONGEST_NAME)


def _area(signal: SignalDiagnostics, part: str) -> Estimate:
    return signal.parts[part].pooled.auroc


def _ordered(diagnostics: Diagnostics) -> list[SignalDiagnostics]:
    """Highest AUROC on the last part first, undefined ones last."""
    part = diagnostics.parts[-1].name

    def key(signal: SignalDiagnostics) -> tuple[bool, float]:
        value = _area(signal, part).estimate
        return value is None, -(value or 0.0)

    return sorted(diagnostics.signals, key=key)


# --- AUROC ---------------------------------------------------------------------------------------
def _areas(diagnostics: Diagnostics) -> Chart:
    parts = [part.name for part in diagnostics.parts]
    families = dict(zip(parts, _FAMILIES[-len(parts) :], strict=True))
    drawn = _ordered(diagnostics)[:_MOST_ROWS]
    chart = Forest(
        title="AUROC of every signal",
        description=f"One row a signal, {counted(len(drawn), 'row')}: AUROC with its interval.",
        rows=[
            ForestRow(
                name=_name(signal.name),
                estimates=[_estimated(signal, part, family) for part, family in families.items()],
            )
            for signal in drawn
        ],
        none=(0.5, "chance"),
    )
    keys = legend((family, part) for part, family in families.items())
    more = len(diagnostics.signals) - len(drawn)
    cut = f" {counted(more, 'more signal')} in the table only." if more else ""
    return Chart(
        heading="AUROC",
        pictures=[forest(chart)],
        caption=join([keys, f"All rounds pooled; whiskers: 95% intervals.{cut}"]),
        table=_areas_table(diagnostics),
    )


def _estimated(signal: SignalDiagnostics, part: str, family: Family) -> Estimated:
    area = _area(signal, part)
    known = area.low is not None and area.high is not None
    return Estimated(
        family=family,
        value=area.estimate,
        hint=f"{_name(signal.name)} on {part}: AUROC {estimated(area)}",
        interval=(area.low or 0.0, area.high or 0.0) if known else None,
    )


def _areas_table(diagnostics: Diagnostics) -> Html:
    rounds = max(
        (len(on.rounds) for signal in diagnostics.signals for on in signal.parts.values()),
        default=0,
    )
    rows = [
        (
            _oriented(signal),
            part,
            percent(on.defined),
            estimated(on.pooled.auroc),
            *(
                decimal(on.rounds[number].separation.auroc.estimate)
                if number < len(on.rounds)
                else UNKNOWN
                for number in range(rounds)
            ),
        )
        for signal in _ordered(diagnostics)
        for part, on in signal.parts.items()
    ]
    head = (
        *("signal", "on", "defined %", "all rounds [95%]"),
        *(f"round {number}" for number in range(1, rounds + 1)),
    )
    return data_table("AUROC of every signal, pooled and by round", head, rows)


def _oriented(signal: SignalDiagnostics) -> Html:
    name = element("code", _name(signal.name))
    return (
        join([name, element("small", " low speaks for stopping")])
        if signal.direction == "low"
        else name
    )


def _separation(diagnostics: Diagnostics) -> Html:
    if not diagnostics.signals:
        return Html()
    parts = [part.name for part in diagnostics.parts]
    drift = len(parts) > 1
    head = (
        "signal",
        *(f"AUROC {part}" for part in parts),
        *(["drift"] if drift else []),
        *(f"d {part}" for part in parts),
        *(["drift of d"] if drift else []),
    )
    rows = [
        (
            _oriented(signal),
            *(estimated(_area(signal, part)) for part in parts),
            *([estimated(signal.drift_auroc, sign=True)] if drift else []),
            *(estimated(signal.parts[part].pooled.d_signed, sign=True) for part in parts),
            *([estimated(signal.drift_d, sign=True)] if drift else []),
        )
        for signal in _ordered(diagnostics)
    ]
    table = data_table("Separation of right from wrong answers by each signal", head, rows)
    note = "d: Cohen's d, positive where right answers have the higher values."
    return join([table, plain(note, small=True)])


# --- what speaks against signals -----------------------------------------------------------------
def _flags(signals: Sequence[SignalDiagnostics]) -> list[Html]:
    tagged = [
        join(
            [
                element("code", _name(signal.name)),
                f" {flag.message} ",
                element("span", flag.kind.replace("_", " "), class_="tag"),
            ]
        )
        for signal in signals
        for flag in signal.flags
    ]
    return [element("h3", "What speaks against signals"), listed(tagged)] if tagged else []


def _concentrations(signals: Sequence[SignalDiagnostics]) -> Html:
    few = [
        (signal.name, part, on.distinct, on.concentration)
        for signal in signals
        for part, on in signal.parts.items()
        if on.concentration is not None
    ]
    if not few:
        return Html()
    table = columns(
        "Signals of at most 12 values; near 0 bits, one value is given nearly always",
        few,
        ("signal", lambda row: element("code", _name(row[0]))),
        ("on", lambda row: row[1]),
        ("values", lambda row: row[2]),
        ("entropy, bits", lambda row: decimal(row[3].entropy_bits)),
        ("mode", lambda row: f"{row[3].mode:g}"),
        ("mode's share, %", lambda row: percent(row[3].mode_share)),
    )
    return folded("Signals of few values: entropy and most common value", table)


def _correlated(part: Part) -> Html:
    correlations = part.correlations
    names = correlations.signals[:_MOST_CORRELATED]
    if len(names) < 2:
        return Html()
    rows = [
        (
            join([f"{row + 1} ", element("code", _name(name))]),
            *(
                _hundredths(correlations.rho[row][column]) if column < row else ""
                for column in range(len(names) - 1)
            ),
        )
        for row, name in enumerate(names)
    ]
    head = ("signal", *range(1, len(names)))
    cut = (
        f" The first {len(names)} of {len(correlations.signals)} signals."
        if len(names) < len(correlations.signals)
        else ""
    )
    table = data_table(f"Spearman's rank correlation in hundredths, on {part.name}", head, rows)
    note = f"Bold: at least {100 * _STRONG:.0f} in size, the two say nearly the same.{cut}"
    return folded(
        "Which signals say the same: rank correlation",
        element("div", table, class_="matrix"),
        plain(note, small=True),
    )


def _hundredths(rho: float | None) -> object:
    if rho is None:
        return UNKNOWN
    shown = f"{100 * rho:z.0f}"
    return element("strong", shown) if abs(rho) >= _STRONG else shown


def _signals_by_type(diagnostics: Diagnostics) -> Html:
    if not diagnostics.signals:
        return Html()
    part = diagnostics.parts[-1].name
    types = list(diagnostics.signals[0].parts[part].types)[:_MOST_TYPES]
    if len(types) < 2:
        return Html()
    head = ("signal", *(element("bdi", _name(kind)) for kind in types))
    rows = [
        (_oriented(signal), *(estimated(signal.parts[part].types[kind].auroc) for kind in types))
        for signal in _ordered(diagnostics)
    ]
    table = data_table(f"AUROC by question type on {part}, all rounds pooled", head, rows)
    return folded("Signals by question type", table)


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
def types_table(types: Sequence[TypeBreakdown], policies: Sequence[Marked]) -> Html:
    """Every policy on every type of question."""
    if not types:
        return Html()
    baseline = next((policy.result.name for policy in policies if policy.baseline), None)
    scored = [(kind, policy) for kind in types[:_MOST_TYPES] for policy in kind.policies]
    table = columns(
        "Policies by question type",
        scored,
        (
            "type",
            lambda row: element("bdi", "(no type)" if row[0].type is None else _name(row[0].type)),
        ),
        (
            "with gold",
            lambda row: f"{counted(row[0].labelled, 'question')}{', few' if row[0].few else ''}",
        ),
        ("policy", lambda row: label_of(row[1].policy, policies)),
        ("EM %", lambda row: percent(row[1].em)),
        ("F1 %", lambda row: percent(row[1].f1)),
        ("rounds", lambda row: decimal(row[1].mean_rounds)),
        (
            "F1 against the baseline [95%]",
            lambda row: (
                element("span", "baseline", class_="tag")
                if row[1].policy == baseline
                else points(row[1].delta_f1)
            ),
        ),
    )
    more = len(types) - _MOST_TYPES
    cut = f" {counted(more, 'more type')} not shown." if more > 0 else ""
    note = f"Few: under 10 questions, too few to read anything into.{cut}"
    return folded("Policies by question type", table, plain(note, small=True))

"""What every signal says about right and wrong answers, and policies by type of question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from suffice.numbers.intervals.estimate import Estimate
from suffice.replay.diagnose.breakdown import TypeBreakdown
from suffice.replay.diagnose.signal_diagnostics import Diagnostics, Part, SignalDiagnostics
from suffice.report.draw.marks import Family, Marked, label
from suffice.report.draw.scatter import figure, legend
from suffice.report.draw.svg import Scale, canvas, dot, line, text, ticks, whisker
from suffice.report.page.section import Section, folded, plain
from suffice.results.formats import UNKNOWN, count, counted, decimal, estimated, percent, points
from suffice.results.markup import Html, data_table, element, join, shorten, visible

_WIDTH, _NAMES, _ROW, _TOP = 460.0, 172.0, 30.0, 30.0
_LONGEST_IN_CHART, _LONGEST_NAME = 22, 60
_MOST_ROWS = 40  # of the chart; the tables have all
_MOST_TYPES = 30
_MOST_CORRELATED = 40
_STRONG = 0.8
_FAMILIES: tuple[Family, ...] = ("fixed", "adaptive")  # of tune and eval, or of all questions


def signals_section(
    found: Diagnostics, types: Sequence[TypeBreakdown], policies: Sequence[Marked]
) -> Section:
    """AUROC and distance of every signal with drift, what speaks against it, and question types."""
    blocks = [
        plain(
            "How well each signal alone separates right from wrong answers (exact match). AUROC 0.5 is no "
            "better than chance; below it the signal misleads. Brackets: 95% intervals of "
            f"{count(found.resamples)} resamples of the questions; drift: the later split minus the earlier."
        ),
        _areas_figure(found) if found.signals else plain("No signal is defined in these traces."),
        _separation(found),
        _flags(found.signals),
        _concentrations(found.signals),
        *(_correlated(part) for part in found.parts[-1:]),
        _signals_by_type(found),
        types_table(types, policies),
        _skipped(found),
        element("ul", *(element("li", each) for each in found.notes), class_="notes small")
        if found.notes
        else "",
    ]
    return Section(name="signals", heading="Signals", finding=_finding(found), content=join(blocks))


def _finding(found: Diagnostics) -> str:
    part = found.parts[-1].name
    best = next((each for each in _ordered(found) if _area(each, part).estimate is not None), None)
    flagged = sum(bool(each.flags) for each in found.signals)
    warned = f"; {counted(flagged, 'signal')} flagged" if flagged else ""
    if best is None:
        return f"{counted(len(found.signals), 'signal')}, none with an AUROC{warned}"
    where = "all questions" if len(found.parts) == 1 else part
    return f"highest AUROC on {where}: {_name(best.name)}, {estimated(_area(best, part))}{warned}"


def _name(name: str) -> str:
    return shorten(visible(name), _LONGEST_NAME)


def _area(each: SignalDiagnostics, part: str) -> Estimate:
    return each.parts[part].pooled.auroc


def _ordered(found: Diagnostics) -> list[SignalDiagnostics]:
    """Highest AUROC on the last part first, undefined ones last."""
    part = found.parts[-1].name

    def key(each: SignalDiagnostics) -> tuple[bool, float]:
        value = _area(each, part).estimate
        return value is None, -(value or 0.0)

    return sorted(found.signals, key=key)


# --- AUROC ---------------------------------------------------------------------------------------
def _areas_figure(found: Diagnostics) -> Html:
    parts = [part.name for part in found.parts]
    families = dict(zip(parts, _FAMILIES[-len(parts) :], strict=True))
    shown = _ordered(found)[:_MOST_ROWS]
    ends = [
        end
        for each in shown
        for part in parts
        for area in [_area(each, part)]
        for end in (area.estimate, area.low, area.high)
        if end is not None
    ]
    marks = ticks(min([0.5, *ends]), max([0.5, *ends]))
    x = Scale(marks[0], marks[-1], _NAMES + 8, _WIDTH - 10)
    bottom = _TOP + _ROW * len(shown)
    drawn = [line((x(value), _TOP - 6), (x(value), bottom), "grid") for value in marks]
    drawn += [text((x(value), bottom + 16), f"{value:g}", "tick mid") for value in marks]
    drawn.append(line((x(0.5), _TOP - 6), (x(0.5), bottom), "diagonal"))
    drawn.append(text((x(0.5), _TOP - 12), "chance", "tick mid"))
    for row, each in enumerate(shown):
        drawn += _area_row(each, families, x, _TOP + _ROW * (row + 0.5))
    picture = canvas(
        (_WIDTH, bottom + 26),
        "AUROC of every signal",
        f"One row a signal, {counted(len(shown), 'row')}: AUROC with its interval.",
        drawn,
    )
    keys = legend((family, part) for part, family in families.items())
    more = len(found.signals) - len(shown)
    cut = f" {counted(more, 'more signal')} in the table only." if more else ""
    caption = join([keys, f"All rounds pooled; whiskers: 95% intervals.{cut}"])
    return element("div", figure(picture, caption, _areas_table(found), "AUROC"), class_="figures")


def _area_row(
    each: SignalDiagnostics, families: dict[str, Family], x: Scale, middle: float
) -> Iterator[Html]:
    name = shorten(visible(each.name), _LONGEST_IN_CHART)
    titled = join([element("title", _name(each.name)), name])
    yield text((_NAMES, middle + 4), titled, "row-name end")
    for number, (part, family) in enumerate(families.items()):
        height = middle + 5.5 * (2 * number - 1) * (len(families) > 1)
        area = _area(each, part)
        if area.low is not None and area.high is not None:
            yield whisker(((x(area.low), height), (x(area.high), height)), f"whisker {family}")
        if area.estimate is None:
            yield text((x(0.5) + 6, height + 4), UNKNOWN, "value")
        else:
            hint = f"{_name(each.name)} on {part}: AUROC {estimated(area)}"
            yield dot((x(area.estimate), height), family, hint)


def _areas_table(found: Diagnostics) -> Html:
    rounds = max(
        (len(on.rounds) for each in found.signals for on in each.parts.values()), default=0
    )
    rows = [
        (
            _oriented(each),
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
        for each in _ordered(found)
        for part, on in each.parts.items()
    ]
    head = (
        *("signal", "on", "defined %", "all rounds [95%]"),
        *(f"round {number}" for number in range(1, rounds + 1)),
    )
    return data_table("AUROC of every signal, pooled and by round", head, rows)


def _oriented(each: SignalDiagnostics) -> Html:
    name = element("code", _name(each.name))
    return (
        join([name, element("small", " low speaks for stopping")])
        if each.direction == "low"
        else name
    )


def _separation(found: Diagnostics) -> Html:
    if not found.signals:
        return Html()
    parts = [part.name for part in found.parts]
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
            _oriented(each),
            *(estimated(_area(each, part)) for part in parts),
            *([estimated(each.drift_auroc, sign=True)] if drift else []),
            *(estimated(each.parts[part].pooled.d_signed, sign=True) for part in parts),
            *([estimated(each.drift_d, sign=True)] if drift else []),
        )
        for each in _ordered(found)
    ]
    table = data_table("Separation of right from wrong answers by each signal", head, rows)
    note = "d: Cohen's d, positive where right answers have the higher values."
    return join([table, element("p", note, class_="plain small")])


# --- what speaks against signals -----------------------------------------------------------------
def _flags(signals: Sequence[SignalDiagnostics]) -> Html:
    flags = [
        element(
            "li",
            element("code", _name(each.name)),
            f" {flag.message} ",
            element("span", flag.kind.replace("_", " "), class_="tag"),
        )
        for each in signals
        for flag in each.flags
    ]
    if not flags:
        return Html()
    return join(
        [element("h3", "What speaks against signals"), element("ul", *flags, class_="notes")]
    )


def _concentrations(signals: Sequence[SignalDiagnostics]) -> Html:
    rows = [
        (
            element("code", _name(each.name)),
            part,
            on.distinct,
            decimal(on.concentration.entropy_bits),
            f"{on.concentration.mode:g}",
            percent(on.concentration.mode_share),
        )
        for each in signals
        for part, on in each.parts.items()
        if on.concentration is not None
    ]
    if not rows:
        return Html()
    caption = "Signals of at most 12 values; near 0 bits, one value is given nearly always"
    head = ("signal", "on", "values", "entropy, bits", "mode", "mode's share, %")
    return folded(
        "Signals of few values: entropy and most common value", data_table(caption, head, rows)
    )


def _correlated(part: Part) -> Html:
    found = part.correlations
    names = found.signals[:_MOST_CORRELATED]
    if len(names) < 2:
        return Html()
    rows = [
        (
            join([f"{row + 1} ", element("code", _name(name))]),
            *(
                _hundredths(found.rho[row][column]) if column < row else ""
                for column in range(len(names) - 1)
            ),
        )
        for row, name in enumerate(names)
    ]
    head = ("signal", *range(1, len(names)))
    cut = (
        f" The first {len(names)} of {len(found.signals)} signals."
        if len(names) < len(found.signals)
        else ""
    )
    table = data_table(f"Spearman's rank correlation in hundredths, on {part.name}", head, rows)
    note = f"Bold: at least {100 * _STRONG:.0f} in size, the two say nearly the same.{cut}"
    return folded(
        "Which signals say the same: rank correlation",
        element("div", table, class_="matrix"),
        element("p", note, class_="plain small"),
    )


def _hundredths(rho: float | None) -> object:
    if rho is None:
        return UNKNOWN
    shown = f"{100 * rho:z.0f}"
    return element("strong", shown) if abs(rho) >= _STRONG else shown


def _signals_by_type(found: Diagnostics) -> Html:
    if not found.signals:
        return Html()
    part = found.parts[-1].name
    types = list(found.signals[0].parts[part].types)[:_MOST_TYPES]
    if len(types) < 2:
        return Html()
    head = ("signal", *(element("bdi", _name(each)) for each in types))
    rows = [
        (_oriented(each), *(estimated(each.parts[part].types[kind].auroc) for kind in types))
        for each in _ordered(found)
    ]
    table = data_table(f"AUROC by question type on {part}, all rounds pooled", head, rows)
    return folded("Signals by question type", table)


def _skipped(found: Diagnostics) -> Html:
    if not found.skipped:
        return Html()
    items = (
        element("li", element("code", _name(name)), f": {why}")
        for name, why in found.skipped.items()
    )
    return folded(
        f"Not here: {counted(len(found.skipped), 'signal')}",
        element("ul", *items, class_="notes small"),
    )


# --- policies by type ----------------------------------------------------------------------------
def types_table(types: Sequence[TypeBreakdown], policies: Sequence[Marked]) -> Html:
    """Every policy on every type of question."""
    if not types:
        return Html()
    of_name = {each.result.name: each for each in policies}
    rows = [
        (
            element("bdi", "(no type)" if kind.type is None else _name(kind.type)),
            join([counted(kind.labelled, "question"), ", few" if kind.few else ""]),
            label(of_name[each.policy]) if each.policy in of_name else each.policy,
            percent(each.em),
            percent(each.f1),
            decimal(each.mean_rounds),
            element("span", "baseline", class_="tag")
            if each.policy in of_name and of_name[each.policy].baseline
            else points(each.delta_f1),
        )
        for kind in types[:_MOST_TYPES]
        for each in kind.policies
    ]
    head = (
        "type",
        "with gold",
        "policy",
        "EM %",
        "F1 %",
        "rounds",
        "F1 against the baseline [95%]",
    )
    table = data_table("Policies by question type", head, rows)
    more = len(types) - _MOST_TYPES
    cut = f" {counted(more, 'more type')} not shown." if more > 0 else ""
    note = f"Few: under 10 questions, too few to read anything into.{cut}"
    return folded("Policies by question type", table, element("p", note, class_="plain small"))

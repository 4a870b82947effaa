"""The evaluation of Stop-RAG as one page: F1 against rounds, differences, and every number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_uppercase

from suffice._version import VERSION
from suffice.bench.stop_rag.found import Contender, Contrast, FitFacts, Scored, StopRAGStudy
from suffice.bench.stop_rag.table import (
    explained,
    f1_spread,
    milliseconds,
    named,
    of_what,
    roles,
    rounds_spread,
    simultaneous,
    worth_of_text,
)
from suffice.report.draw.marks import Family
from suffice.report.draw.scatter import figure
from suffice.report.draw.svg import (
    FRAME,
    SIZE,
    Scale,
    badge,
    bar,
    canvas,
    dot,
    enclosing,
    line,
    place_badges,
    speck,
    text,
    ticks,
    whisker,
)
from suffice.report.page.frame import page
from suffice.report.page.section import folded, plain
from suffice.results.formats import UNKNOWN, decimal, percent, points, tick
from suffice.results.markup import Html, data_table, element, join, visible

_ROW = 24.0
_NAMES = 176.0  # where the differences begin, right of what they are of
_WIDTH = 460.0


@dataclass(frozen=True, slots=True)
class _Point:
    """A contender in the plane of rounds and F1."""

    each: Contender
    mark: str
    family: Family
    rounds: float
    f1: float

    @property
    def shown(self) -> str:
        return f"{self.mark}  {self.each.name}"


def stop_rag_page(study: StopRAGStudy) -> str:
    """One self-contained HTML document; texts of the record are escaped."""
    worth = worth_of_text(study)
    notes = element("ul", *(element("li", visible(note)) for note in study.notes), class_="notes")
    body = element(
        "section",
        element("h2", named(study)),
        plain(of_what(study)),
        plain(worth) if worth else "",
        element("div", _frontier(study), _differences(study), class_="figures"),
        folded("Every policy and seed", element("div", _policies(study), class_="rules")),
        folded("Every training", element("div", _fits(study), class_="rules")),
        notes if study.notes else "",
        class_="more",
    )
    return page(
        "Stop-RAG: what a learned value of stopping is worth",
        element(
            "header",
            element("p", "Suffice bench stop-rag", class_="eyebrow"),
            element("h1", "Stop-RAG: is it worth learning when to stop?"),
            plain(roles(study), " ", explained(study)),
        ),
        element("main", body),
        element("footer", f"Suffice {VERSION}. This file loads nothing from anywhere."),
    )


# --- F1 against rounds -----------------------------------------------------------------------
def _points(study: StopRAGStudy) -> list[_Point]:
    letters = iter(ascii_uppercase)
    found = []
    for each in study.of_kind("learned", "llm-stop", "fixed"):
        fixed = each.kind == "fixed"
        mark = each.name.partition("-")[2] if fixed else next(letters)
        found.append(_Point(each, mark, "fixed" if fixed else "adaptive", *each.point))
    return found


def _frontier(study: StopRAGStudy) -> Html:
    found = _points(study)
    key = element(
        "span",
        *(
            element(
                "span", element("span", each.mark, class_=f"mark {each.family}"), each.each.name
            )
            for each in found
            if each.family == "adaptive"
        ),
        class_="keys",
    )
    caption = join(
        [
            key,
            "Up is better, left is cheaper. Line and squares: fixed budgets. Small points: the seeds of a "
            "variant, whose mean is the circle. The oracle is in the table only.",
        ]
    )
    rows = [(each.name, f1_spread(each), rounds_spread(each)) for each in study.contenders]
    table = data_table(
        "F1 and rounds of every policy", ("policy", "F1 %, seeds", "rounds, seeds"), rows
    )
    heading = "F1 against mean rounds"
    return figure(_scatter(found, heading), caption, table, heading)


def _scatter(found: Sequence[_Point], heading: str) -> Html:
    runs = [(run.mean_rounds, run.f1) for each in found for run in each.each.runs]
    axes = enclosing([rounds for rounds, _ in runs], [f1 for _, f1 in runs])
    x, y = axes.x, axes.y
    at = [(x(each.rounds), y(each.f1)) for each in found]
    path = [place for place, each in zip(at, found, strict=True) if each.family == "fixed"]
    drawn = axes.drawn("mean rounds", "F1, %")
    drawn += [line(*ends, class_="frontier") for ends in pairwise(path)]
    for each, place in zip(found, at, strict=True):
        for run in each.each.runs if len(each.each.runs) > 1 else ():
            seed = (x(run.mean_rounds), y(run.f1))
            drawn += [line(place, seed, f"whisker {each.family}"), speck(seed, each.family)]
    places = place_badges(FRAME, at, [*pairwise(path)])
    drawn += [line(start, end, "leader") for start, end in zip(at, places, strict=True)]
    for each, place in zip(found, at, strict=True):
        scored = f"F1 {percent(each.f1)}%, {decimal(each.rounds)} rounds"
        drawn.append(dot(place, each.family, f"{each.shown}: {scored}"))
    for each, place in zip(found, places, strict=True):
        drawn.append(badge(place, each.mark, each.family))
    described = f"{len(found)} policies; the key names the marks, the table has the numbers."
    return canvas(SIZE, heading, described, drawn)


# --- differences -----------------------------------------------------------------------------
def _differences(study: StopRAGStudy) -> Html:
    rows = [(_pair(each), points(each.interval), simultaneous(each)) for each in study.contrasts]
    table = data_table(
        "Differences of F1 in points",
        ("F1 of, minus", "difference [95%]", "all at once [95%]"),
        rows,
    )
    caption = (
        "Points of F1, paired by question, averaged over seeds. Thick: the 95% interval of each; thin: "
        "those that hold for all at once. Right of the line the first is better."
    )
    heading = "Differences of F1"
    return figure(_forest(study.contrasts, heading), caption, table, heading)


def _pair(each: Contrast) -> str:
    return f"{each.of} - {each.against}"


def _forest(found: Sequence[Contrast], heading: str) -> Html:
    ends = [end for each in found for end in (each.low, each.high)]
    ends += [end for each in found for end in (each.interval.low, each.interval.high)]
    marked = ticks(100 * min(0.0, *ends), 100 * max(0.0, *ends), most=6)
    x = Scale(marked[0], marked[-1], _NAMES, _WIDTH - 12)
    bottom = _ROW * len(found) + 6
    drawn = [line((x(value), 0), (x(value), bottom), "grid") for value in marked]
    drawn.append(line((x(0.0), 0), (x(0.0), bottom), "axis"))
    for number, each in enumerate(found):
        middle = _ROW * (number + 0.5) + 3
        low, high = (x(100 * end) for end in (each.interval.low, each.interval.high))
        drawn += [
            text((0, middle + 4), _pair(each), "row-name"),
            whisker(
                ((x(100 * each.low), middle), (x(100 * each.high), middle)), "whisker adaptive"
            ),
            bar((low, middle - 2), (high - low, 4), "bar adaptive"),
            dot(
                (x(100 * each.interval.estimate), middle),
                "adaptive",
                f"{_pair(each)}: {points(each.interval)}",
            ),
        ]
    drawn += [text((x(value), bottom + 16), tick(value), "tick mid") for value in marked]
    drawn.append(text(((_NAMES + _WIDTH) / 2, bottom + 36), "points of F1", "axis-name mid"))
    described = "One row a difference, with both intervals; the numbers are in the table below."
    return canvas((_WIDTH, bottom + 44), heading, described, drawn)


# --- everything ------------------------------------------------------------------------------
def _policies(study: StopRAGStudy) -> Html:
    rows = [_run(each, run) for each in study.contenders for run in each.runs]
    head = ("policy", "EM %", "F1 %", "Acc %", "rounds", "calls", "precision %", "recall %")
    return data_table("Every policy in every seed", head, rows)


def _run(each: Contender, run: Scored) -> tuple[object, ...]:
    return (
        each.name if run.seed is None else f"{each.name}, seed {run.seed}",
        percent(run.em),
        percent(run.f1),
        percent(run.acc),
        decimal(run.mean_rounds),
        decimal(run.llm_calls),
        percent(run.precision),
        percent(run.recall),
    )


def _fits(study: StopRAGStudy) -> Html:
    rows = [_fit(each.name, fit) for each in study.of_kind("learned") for fit in each.fits]
    head = (
        "training",
        "threshold",
        "trajectories",
        "states in the loss",
        "validated on",
        "steps",
        "seconds",
        "states cut %",
        "ms a state",
    )
    return data_table("Every training", head, rows)


def _fit(name: str, fit: FitFacts) -> tuple[object, ...]:
    return (
        f"{name}, seed {fit.seed}",
        f"{fit.threshold:+.3f}",
        f"{fit.trajectories:,}",
        f"{fit.informative:,} of {fit.decisions:,}",
        f"{fit.validated:,}",
        f"{fit.steps:,}",
        f"{fit.seconds:.0f}",
        UNKNOWN if fit.truncated is None else percent(fit.truncated),
        milliseconds(fit.state_seconds),
    )

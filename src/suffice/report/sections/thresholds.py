"""The swept threshold of a rule: its curve on both splits, the choice, the knee and the gaps."""

from __future__ import annotations

from collections.abc import Sequence

from suffice.replay.choose.sweep import SweepResult, SweptThreshold
from suffice.report.draw.scatter import figure, legend
from suffice.report.draw.svg import (
    FRAME,
    SIZE,
    Axes,
    area,
    canvas,
    dot,
    enclosing,
    line,
    polyline,
    text,
)
from suffice.report.page.section import Section, plain
from suffice.report.tables.sweep import (
    knee_in_words,
    sweep_notes,
    threshold_figures,
    threshold_marks,
)
from suffice.results.formats import decimal, percent
from suffice.results.markup import Html, data_table, element, join


def thresholds_section(result: SweepResult) -> Section:
    """F1 and rounds over the threshold, with the chosen one and the knee."""
    chosen = next(each for each in result.points if each.threshold == result.chosen)
    finding = (
        f"{result.chosen:g} chosen on {result.settings.tune_split}: F1 {percent(chosen.eval_f1)}% at "
        f"{decimal(chosen.eval_rounds)} rounds on {result.settings.eval_split}; "
        f"{_knee(result)}"
    )
    content = join(
        [
            plain("The number written ? in ", element("code", result.settings.rule), "."),
            element("div", _f1_figure(result), _rounds_figure(result), class_="figures"),
            element("ul", *(element("li", each) for each in sweep_notes(result)), class_="notes"),
        ]
    )
    return Section(name="thresholds", heading="Thresholds", finding=finding, content=content)


def _knee(result: SweepResult) -> str:
    if result.knee.warning is not None or result.knee.threshold is None:
        return "no clear knee"
    return f"knee at {result.knee.threshold:g}"


def _f1_figure(result: SweepResult) -> Html:
    swept = result.points
    low = [each.tune_f1 - each.tune_error for each in swept]
    high = [each.tune_f1 + each.tune_error for each in swept]
    across = [each.threshold for each in swept]
    axes = enclosing(across, [*low, *high, *(each.eval_f1 for each in swept)])
    x, y = axes.x, axes.y
    band = [(x(at), y(value)) for at, value in zip(across, high, strict=True)]
    band += [(x(at), y(value)) for at, value in zip(across[::-1], low[::-1], strict=True)]
    drawn = [
        *axes.drawn("threshold", "F1, %"),
        area(band, "band"),
        *_marked(result, axes),
        *_curve(swept, [each.tune_f1 for each in swept], axes, "fixed"),
        *_curve(swept, [each.eval_f1 for each in swept], axes, "adaptive"),
    ]
    picture = canvas(
        SIZE, "F1 over the threshold", f"{len(swept)} thresholds, tune and eval.", drawn
    )
    caption = join(
        [
            _legend(result),
            "Band: one standard error of tune F1, out of fold. ",
            f"Chosen: the cheapest within one standard error of the best. Knee: {knee_in_words(result)}",
        ]
    )
    return figure(picture, caption, _table(result), "F1 over the threshold")


def _rounds_figure(result: SweepResult) -> Html:
    swept = result.points
    rounds = [*(each.tune_rounds for each in swept), *(each.eval_rounds for each in swept)]
    axes = enclosing([each.threshold for each in swept], rounds)
    drawn = [
        *axes.drawn("threshold", "mean rounds", shares=False),
        *_marked(result, axes),
        *_curve(swept, [each.tune_rounds for each in swept], axes, "fixed", "rounds"),
        *_curve(swept, [each.eval_rounds for each in swept], axes, "adaptive", "rounds"),
    ]
    picture = canvas(
        SIZE, "Rounds over the threshold", f"{len(swept)} thresholds, tune and eval.", drawn
    )
    table = data_table(
        "Mean rounds at every threshold",
        ("threshold", "rounds tune", "rounds eval"),
        [
            (f"{each.threshold:g}", decimal(each.tune_rounds), decimal(each.eval_rounds))
            for each in swept
        ],
    )
    caption = join([_legend(result), "Down is cheaper."])
    return figure(picture, caption, table, "Rounds over the threshold")


def _legend(result: SweepResult) -> Html:
    settings = result.settings
    return legend((("fixed", settings.tune_split), ("adaptive", settings.eval_split)))


def _curve(
    swept: Sequence[SweptThreshold],
    values: Sequence[float],
    axes: Axes,
    family: str,
    what: str = "F1",
) -> list[Html]:
    at = [
        (axes.x(each.threshold), axes.y(value)) for each, value in zip(swept, values, strict=True)
    ]
    hints = [
        f"{each.threshold:g}: {f'F1 {percent(value)}%' if what == 'F1' else f'{decimal(value)} {what}'}"
        for each, value in zip(swept, values, strict=True)
    ]
    drawn = [polyline(at, f"curve {family}")]
    if family == "fixed":
        return drawn + [dot(place, "fixed", hint) for place, hint in zip(at, hints, strict=True)]
    return drawn + [dot(place, "adaptive", hint) for place, hint in zip(at, hints, strict=True)]


def _marked(result: SweepResult, axes: Axes) -> list[Html]:
    """Upright lines at the chosen threshold and the knee; one line with both names where they agree."""
    knee = result.knee.threshold
    names = {result.chosen: "chosen"}
    if knee is not None:
        named = "knee" if result.knee.warning is None else "knee, unclear"
        names[knee] = f"chosen, {named}" if knee == result.chosen else named
    drawn = []
    for row, (threshold, name) in enumerate(names.items()):
        x = axes.x(threshold)
        top = FRAME.top - 2 + 14 * row
        side, away = ("end", -5.0) if x > (FRAME.left + FRAME.right) / 2 else ("", 5.0)
        drawn.append(line((x, top - 8), (x, FRAME.bottom), "chosen"))
        drawn.append(text((x + away, top), name, f"value {side}".strip()))
    return drawn


def _table(result: SweepResult) -> Html:
    head = (
        "threshold",
        "choice",
        "tune F1 %",
        "s.e.",
        "tune rounds",
        "F1 per round",
        "eval F1 %",
        "eval EM %",
        "eval rounds",
    )
    rows = [
        (
            f"{each.threshold:g}",
            threshold_marks(result, each.threshold),
            *threshold_figures(each),
        )
        for each in result.points
    ]
    return data_table("Every threshold on both splits", head, rows)

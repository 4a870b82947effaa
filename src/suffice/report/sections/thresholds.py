"""The swept threshold of a rule: its curve on both splits, the choice, the knee and the gaps."""

from __future__ import annotations

from collections.abc import Iterable

from suffice.replay.choose.sweep import SweepResult
from suffice.report.draw.marks import legend
from suffice.report.draw.svg import (
    FRAME,
    SIZE,
    Family,
    area,
    canvas,
    dot,
    enclosing,
    line,
    polyline,
    text,
)
from suffice.report.page.section import Chart, Shown, listed, plain
from suffice.results.formats import decimal, percent
from suffice.results.markup import element, join


def thresholds_section(result: SweepResult) -> Shown:
    """The score and rounds over the threshold, with the chosen one and the knee."""
    chosen = next(point for point in result.points if point["threshold"] == result.chosen)
    return Shown(
        finding=f"{result.chosen:g} chosen on {result.settings.tune_split}: "
        f"{result.metric.label} {percent(chosen[f'eval_{result.metric.name}'])}% at "
        f"{decimal(chosen['eval_rounds'])} rounds on "
        f"{result.settings.eval_split}; {_knee(result)}",
        blocks=[
            plain("The number written ? in ", element("code", result.settings.rule), "."),
            _chart(result),
            listed(result.explained()),
        ],
    )


def _knee(result: SweepResult) -> str:
    if result.knee.warning is not None or result.knee.threshold is None:
        return "no clear knee"
    return f"knee at {result.knee.threshold:g}"


def _chart(result: SweepResult) -> Chart:
    """The score on both splits, with the band of its standard error on tune."""
    settings, points, metric = result.settings, result.points, result.metric
    label, title = metric.label, f"{metric.label} over the threshold"
    thresholds, tune, held, errors = (
        [point[name] for point in points]
        for name in (
            "threshold",
            f"tune_{metric.name}",
            f"eval_{metric.name}",
            "tune_standard_error",
        )
    )
    low, high = (
        [score + sign * error for score, error in zip(tune, errors, strict=True)]
        for sign in (-1, 1)
    )
    axes = enclosing(thresholds, [*tune, *held, *low, *high])
    at = [axes.x(threshold) for threshold in thresholds]

    def path(values: Iterable[float]) -> list[tuple[float, float]]:
        return list(zip(at, map(axes.y, values), strict=True))

    drawn = axes.drawn("threshold", f"{label}, %")
    drawn.append(area([*path(high), *reversed(path(low))], "band fixed"))
    for row, (value, name) in enumerate(_marked(result)):
        x, top = axes.x(value), FRAME.top - 2 + 14 * row
        side, away = ("end", -5.0) if x > (FRAME.left + FRAME.right) / 2 else ("", 5.0)
        drawn.append(line((x, top - 8), (x, FRAME.bottom), "chosen"))
        drawn.append(text((x + away, top), name, f"value {side}".strip()))
    families: tuple[tuple[Family, list[float]], ...] = (("fixed", tune), ("adaptive", held))
    for family, values in families:
        drawn.append(polyline(path(values), f"curve {family}"))
        drawn += [
            dot(place, family, f"{threshold:g}: {label} {percent(value)}%")
            for place, threshold, value in zip(path(values), thresholds, values, strict=True)
        ]
    splits = legend((("fixed", settings.tune_split), ("adaptive", settings.eval_split)))
    caption = (
        f"Band: one standard error of tune {label}, out of fold. Chosen: the cheapest within one standard "
        "error of the best. Knee, where more cost buys less from there on: "
        f"{result.knee.in_words}"
    )
    return Chart(
        heading=title,
        pictures=[canvas(SIZE, title, f"{len(points)} thresholds, tune and eval.", drawn)],
        caption=join([splits, caption]),
        table=result.table().headed("Every threshold on both splits").html(),
    )


def _marked(result: SweepResult) -> list[tuple[float, str]]:
    """The chosen threshold and the knee; one with both names where they agree."""
    knee = result.knee.threshold
    names = {result.chosen: "chosen"}
    if knee is not None:
        named = "knee" if result.knee.warning is None else "knee, unclear"
        names[knee] = f"chosen, {named}" if knee == result.chosen else named
    return list(names.items())

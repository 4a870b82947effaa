"""The swept threshold of a rule: its curve on both splits, the choice, the knee and the gaps."""

from __future__ import annotations

from collections.abc import Callable

from suffice.replay.choose.sweep import SweepResult
from suffice.report.draw.lines import Line, Lines, lines
from suffice.report.draw.marks import legend
from suffice.report.page.section import Chart, Shown, listed, plain
from suffice.results.formats import decimal, percent
from suffice.results.markup import Html, element, join


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
            _score_chart(result),
            _rounds_chart(result),
            listed(result.explained()),
        ],
    )


def _knee(result: SweepResult) -> str:
    if result.knee.warning is not None or result.knee.threshold is None:
        return "no clear knee"
    return f"knee at {result.knee.threshold:g}"


def _score_chart(result: SweepResult) -> Chart:
    chart = _lines(
        result,
        f"{result.metric.label} over the threshold",
        result.metric.name,
        lambda value: f"{result.metric.label} {percent(value)}%",
        shares=True,
    )
    caption = (
        f"Band: one standard error of tune {result.metric.label}, out of fold. Chosen: the cheapest "
        "within one standard error of the best. Knee, where more cost buys less from there on: "
        f"{result.knee.in_words}"
    )
    return _chart(chart, result, caption, _table(result))


def _rounds_chart(result: SweepResult) -> Chart:
    chart = _lines(
        result,
        "Rounds over the threshold",
        "rounds",
        lambda value: f"{decimal(value)} rounds",
        shares=False,
    )
    rounds = result.table().headed("Mean rounds at every threshold", _heads(result))
    table = rounds.picked("threshold", "tune_rounds", "eval_rounds")
    return _chart(chart, result, "Down is cheaper.", table.html())


def _chart(chart: Lines, result: SweepResult, caption: str, table: Html) -> Chart:
    settings = result.settings
    splits = legend((("fixed", settings.tune_split), ("adaptive", settings.eval_split)))
    return Chart(
        heading=chart.title, pictures=[lines(chart)], caption=join([splits, caption]), table=table
    )


def _lines(
    result: SweepResult,
    title: str,
    of: str,
    said: Callable[[float], str],
    *,
    shares: bool,
) -> Lines:
    """Tune and eval over the thresholds; ``shares``: the score, which has its standard error on tune."""

    def column(name: str) -> list[float]:
        return [float(point[name] or 0.0) for point in result.points]

    at, on_splits = column("threshold"), (column(f"tune_{of}"), column(f"eval_{of}"))
    errors = [
        (score - error, score + error)
        for score, error in zip(on_splits[0], column("tune_standard_error"), strict=True)
    ]
    tune, held = (
        [f"{threshold:g}: {said(value)}" for threshold, value in zip(at, values, strict=True)]
        for values in on_splits
    )
    return Lines(
        title=title,
        description=f"{len(at)} thresholds, tune and eval.",
        x_name="threshold",
        y_name=f"{result.metric.label}, %" if shares else "mean rounds",
        lines=[
            Line(
                colour="fixed",
                at=at,
                values=on_splits[0],
                band=errors if shares else (),
                hints=tune,
            ),
            Line(colour="adaptive", at=at, values=on_splits[1], hints=held),
        ],
        shares=shares,
        uprights=_marked(result),
    )


def _marked(result: SweepResult) -> list[tuple[float, str]]:
    """The chosen threshold and the knee; one with both names where they agree."""
    knee = result.knee.threshold
    names = {result.chosen: "chosen"}
    if knee is not None:
        named = "knee" if result.knee.warning is None else "knee, unclear"
        names[knee] = f"chosen, {named}" if knee == result.chosen else named
    return list(names.items())


def _table(result: SweepResult) -> Html:
    heads = _heads(result) | {
        f"{split}_cost": f"{split} {' '.join(result.cost.head).strip()}"
        for split in ("tune", "eval")
    }
    return result.table().headed("Every threshold on both splits", heads).html()


def _heads(result: SweepResult) -> dict[str, str]:
    metric = result.metric
    return {
        f"tune_{metric.name}": f"tune {metric.label} %",
        "tune_rounds": "tune rounds",
        "gain_per_round": f"{metric.label} per round",
        f"eval_{metric.name}": f"eval {metric.label} %",
        f"eval_{metric.key(metric.beside)}": f"eval {metric.head(metric.beside)} %",
        "eval_rounds": "eval rounds",
        "choice": "choice",
    }

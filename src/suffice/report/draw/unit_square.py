"""Reliability diagrams: calibrated values against the share that was right, round by round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from suffice.replay.diagnose.reliability import Reliability, ReliabilityBucket
from suffice.report.draw.marks import Marked, label
from suffice.report.draw.svg import Box, Scale, canvas, line, text
from suffice.results.formats import percent
from suffice.results.markup import Html, data_table, element, join

_SIZE = (220.0, 216.0)
_FRAME = Box(36, 26, 210, 178)


def reliability_figures(
    of_policy: Mapping[str, tuple[Reliability, ...]], policies: Sequence[Marked]
) -> list[Html]:
    """A figure for every calibrated signal; policies with the same calibration share it."""
    grouped: dict[tuple[Reliability, ...], list[Marked]] = {}
    for policy in policies:
        found = of_policy.get(policy.result.name, ())
        for signal in dict.fromkeys(each.signal for each in found):
            rounds = tuple(each for each in found if each.signal == signal)
            grouped.setdefault(rounds, []).append(policy)
    return [_figure(policies, rounds) for rounds, policies in grouped.items()]


def _figure(policies: Sequence[Marked], rounds: Sequence[Reliability]) -> Html:
    heading = f"calibrated({rounds[0].signal})"
    whose = element("ul", *(element("li", label(each)) for each in policies), class_="marks")
    rows = [
        (
            f"round {each.round}",
            percent(bucket.predicted),
            percent(bucket.right),
            f"[{percent(bucket.low)}, {percent(bucket.high)}]",
            bucket.count,
        )
        for each in rounds
        for bucket in each.buckets
    ]
    table = data_table(
        f"Reliability of {heading}",
        ("round", "predicted %", "right %", "95% interval", "answers"),
        rows,
    )
    missing = [f"{each.undefined} in round {each.round}" for each in rounds if each.undefined]
    caption = (
        "Dots: equal-size groups of answers, larger for more answers; whiskers: 95% Wilson intervals. "
        "On the diagonal, predictions are kept. "
    )
    without = f"Answers without a value: {', '.join(missing)}." if missing else ""
    return element(
        "figure",
        element("h3", heading),
        whose,
        element("div", *(_panel(each, heading) for each in rounds), class_="panels"),
        element("figcaption", caption, without),
        element("details", element("summary", f"Numbers: {heading}"), table),
        class_="wide",
    )


def _panel(shown: Reliability, heading: str) -> Html:
    x, y = Scale(0, 1, _FRAME.left, _FRAME.right), Scale(0, 1, _FRAME.bottom, _FRAME.top)
    drawn: list[Html] = [text((_FRAME.left, 16), f"Round {shown.round}", "axis-name")]
    for value in (0.0, 0.5, 1.0):
        label = f"{100 * value:g}"
        drawn.append(line((x(0), y(value)), (x(1), y(value)), "grid"))
        drawn.append(text((_FRAME.left - 5, y(value) + 4), label, "tick end"))
        drawn.append(text((x(value), _FRAME.bottom + 15), label, "tick mid"))
    drawn.append(line((x(0), y(0)), (x(1), y(1)), "diagonal"))
    drawn.append(text(((x(0) + x(1)) / 2, _FRAME.bottom + 32), "predicted %", "tick mid"))
    drawn.append(text((_FRAME.right, 16), "right % ↑", "tick end"))
    most = max((bucket.count for bucket in shown.buckets), default=1)
    drawn += [_bucket((x(bucket.predicted), y), bucket, most) for bucket in shown.buckets]
    if not shown.buckets:
        drawn.append(text((x(0.5), y(0.5)), "no value defined", "value mid"))
    description = f"{len(shown.buckets)} groups of answers; the numbers are in the table below."
    return canvas(_SIZE, f"{heading}, round {shown.round}", description, drawn)


def _bucket(at: tuple[float, Scale], bucket: ReliabilityBucket, most: int) -> Html:
    x, y = at
    hint = (
        f"predicted {percent(bucket.predicted)}%, right {percent(bucket.right)}% "
        f"of {bucket.count} answers"
    )
    return join(
        [
            line((x, y(bucket.low)), (x, y(bucket.high)), "whisker adaptive"),
            element(
                "circle",
                element("title", hint),
                cx=f"{x:.1f}",
                cy=f"{y(bucket.right):.1f}",
                r=f"{2.5 + 3 * math.sqrt(bucket.count / most):.1f}",
                class_="dot adaptive",
            ),
        ]
    )

from __future__ import annotations

import re
from dataclasses import replace

from tests.reports import build_report, oslo_records

from suffice.report.comparison import cost_chart, score_charts, stops_chart
from suffice.report.section import marked
from suffice.results.formats import points

RECORDS = oslo_records()


def heights(picture: str, class_: str) -> list[float]:
    return [
        float(found) for found in re.findall(rf'height="([\d.]+)" class="bar {class_}"', picture)
    ]


def test_points_lie_where_cost_and_score_say() -> None:
    data = build_report(RECORDS, ["fixed-1", "fixed-3", "oracle-f1"])
    drawn = score_charts(data.result, marked(data.result))[0].html()
    squares = re.findall(r'points="([\d., ]+)" class="dot fixed"', drawn)
    (x1, y1), (x3, y3) = ([float(n) for n in each.split()[0].split(",")] for each in squares)
    first, third = data.result.policies[:2]
    assert first.f1 is not None
    assert third.f1 is not None
    assert (x1 < x3) == (first.mean_rounds < third.mean_rounds)
    assert (y1 > y3) == (first.f1 < third.f1)
    assert len(re.findall('class="whisker', drawn)) == 3  # the oracle's; fixed budgets are the line
    assert len(re.findall('class="frontier"', drawn)) == 2


def test_the_cost_asked_for_is_the_axis() -> None:
    data = build_report(RECORDS, ["fixed-1", "fixed-3"], cost="usd")
    for chart in score_charts(data.result, marked(data.result)):
        drawn = chart.html()
        assert "mean price per question, USD" in drawn
        assert "calls" not in drawn
        # 100 and 300 prompt tokens at 0.5 USD a million
        assert "<td>0.0000500</td>" in drawn
        assert "<td>0.000150</td>" in drawn
        assert "e-0" not in drawn
    bars = cost_chart(data.result, marked(data.result)).html()
    assert ">price, USD</text>" in bars
    assert "0.000150 USD" in bars
    assert "mean price, USD and mean tokens" in bars


def test_stop_bars_grow_with_their_share() -> None:
    data = build_report(RECORDS, ["fixed-2", "oracle-em"])
    drawn = stops_chart(data.result, marked(data.result)).html()
    assert heights(drawn, "fixed") == [24.0]
    counts = data.result.policies[1].to_json()["stop_rounds"].values()
    assert heights(drawn, "oracle") == [24 * number / 12 for number in counts]


def test_tokens_are_split_by_what_is_known() -> None:
    data = build_report(RECORDS, ["fixed-1", "fixed-3"])
    split = cost_chart(data.result, marked(data.result)).html()
    assert "prompt, uncached" in split
    assert "cached share not recorded" not in split
    third = data.result.policies[1]
    # 300 prompt tokens in round 3, of them 160 cached there and none in round 1
    assert (third.costs["prompt_tokens"], third.costs["cached_tokens"]) == (300.0, 0.0)
    assert "300 uncached prompt tokens" in split
    assert "0 cached prompt tokens" in split
    unknown = replace(third, costs={**third.costs, "cached_tokens": None})
    policies = marked(replace(data.result, policies=(data.result.policies[0], unknown)))
    assert "prompt, cached share not recorded" in cost_chart(data.result, policies).html()


def test_whiskers_are_paired_with_the_line_that_is_drawn() -> None:
    data = build_report(RECORDS, ["fixed-1", "fixed-3"], ["answer_stable"])
    result = data.result
    rule = result.policies[2]
    assert result.cost.name == "evaluated_tokens"
    gain = next(one.gain for one in rule.against_fixed if one.cost == "evaluated_tokens")
    drawn = score_charts(result, marked(result))[0].html()
    number = r"([\d.]+)"
    ends = re.search(rf'y1="{number}" x2="{number}" y2="{number}" class="whisker adaptive"', drawn)
    dot = re.search(rf'cy="{number}" r="4.5" class="dot adaptive"', drawn)
    assert ends is not None
    assert dot is not None
    low, high, at = float(ends[1]), float(ends[3]), float(dot[1])
    share = (gain.estimate - gain.low) / (gain.high - gain.low)
    assert abs((low - at) / (low - high) - share) < 0.02
    assert points(gain) in drawn
    assert "the best fixed budget or mix of two" in drawn

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.html_reader import Page
from tests.reports import build_report, oslo_records

from suffice.evaluation.diagnose.report_data import ReportData, report_data
from suffice.evaluation.replay.compare import compare
from suffice.evaluation.settings import ComparisonSettings
from suffice.report.charts import Point, Scatter, scatter
from suffice.report.comparison import cost_chart, score_charts, stops_chart
from suffice.report.explorer import explorer
from suffice.report.section import label, marked, short_name
from suffice.report.svg import FRAME, enclosing, ticks
from suffice.results.formats import points
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Passage, QuestionRecord

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
    assert ">price</text>" in bars
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


def test_fixed_budgets_get_their_number_and_others_letters() -> None:
    data = build_report(RECORDS, ["fixed-2", "fixed-2", "oracle-em"], ["round >= 2", "round >= 1"])
    found = marked(data.result)
    assert [each.mark for each in found] == ["2", "A", "B", "C", "D"]
    assert [each.family for each in found] == ["fixed", "fixed", "oracle", "adaptive", "adaptive"]
    assert [each.baseline for each in found] == [True, False, False, False, False]


def test_long_names_are_cut_in_the_middle_and_escaped() -> None:
    rule = "round < 3 and " * 10 + "round >= 1"
    found = marked(build_report(RECORDS, ["fixed-1"], [rule]).result)[1]
    assert len(short_name(found)) == 40
    assert "&lt;" in label(found)
    assert rule.partition(" and ")[0] in short_name(found)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0.27, 0.63),
        (1, 5),
        (0, 1),
        (0.3, 0.3),
        (-0.02, 0.31),
        (1, 100),
        (0.4149, 0.4151),
        (0, 12345),
    ],
)
def test_ticks_enclose_the_values_at_even_round_steps(low: float, high: float) -> None:
    found = ticks(low, high)
    assert found[0] <= low
    assert found[-1] >= high
    assert 2 <= len(found) <= 7
    steps = np.diff(found)
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)
    mantissa = steps[0] / 10 ** math.floor(math.log10(steps[0]) + 1e-9)
    assert min(abs(mantissa - round_step) for round_step in (1, 2, 5)) < 1e-6


def test_every_value_lies_inside_the_frame_and_up_is_more() -> None:
    axes = enclosing([1.05, 4.6], [0.231, 0.557])
    assert FRAME.left < axes.x(1.05) < axes.x(4.6) < FRAME.right
    assert FRAME.top < axes.y(0.557) < axes.y(0.231) < FRAME.bottom


def test_the_line_of_savings_stays_inside_the_frame_where_the_smallest_loss_is_proven() -> None:
    """It rises from no saving at no loss, so both belong to the axes, whatever the points are."""
    for saved in ((0.64, 0.66, 0.7), (0.04, 0.07), (0.0, 0.0), (-0.2, 0.1)):
        steps = [(0.0, 0.0), *((n + 1.0, of) for n, of in enumerate(saved))]
        points = [
            Point(mark="A", family="adaptive", name="a", said="b", x=x, y=y) for x, y in steps[1:]
        ]
        chart = Scatter(
            title="t", description="", x_name="x", y_name="y", points=points, steps=steps
        )
        lines = [of for name, of in Page.of(scatter(chart)).tags if name == "line"]
        drawn = [of for of in lines if of["class"] == "curve adaptive"]
        assert len(drawn) == 2 * len(saved) - 1
        for of in drawn:
            assert FRAME.left <= float(of["x1"] or 0) <= float(of["x2"] or 0) <= FRAME.right
            assert all(FRAME.top <= float(of[y] or 0) <= FRAME.bottom for y in ("y1", "y2"))


def test_a_chart_without_scores_says_so() -> None:
    chart = Scatter(
        title="F1 against rounds", description="", x_name="rounds", y_name="F1 %", points=()
    )
    assert "F1 %: not known" in scatter(chart)


def made(data: ReportData) -> tuple[dict[str, Any], list[str]]:
    return explorer(data, marked(data.result))


def with_passages(record: QuestionRecord, texts: list[str]) -> QuestionRecord:
    passages = tuple(Passage(id=f"p{i}", title=f"T{i}", text=text) for i, text in enumerate(texts))
    return replace(record, rounds=tuple(replace(each, passages=passages) for each in record.rounds))


def test_the_document_holds_what_the_stories_hold() -> None:
    data = build_report(RECORDS, ["fixed-2", "tasr", "oracle-f1"])
    document, cuts = made(data)
    document = json.loads(json.dumps(document))
    assert cuts == []
    for story, (name, text, type_, gold, rounds, stops) in zip(
        data.stories, document["questions"], strict=True
    ):
        record = story.record
        assert (name, text) == (record.question.id, record.question.text)
        assert (type_, tuple(gold)) == (record.question.type, record.gold.answers)
        for at, (told, (answer, (em, f1), passages, signals, usage, failure)) in enumerate(
            zip(record.rounds, rounds, strict=True)
        ):
            assert (answer, failure) == (told.answer, told.parse_failure)
            assert em == story.scores["em"][at]
            assert f1 == pytest.approx(story.scores["f1"][at], rel=1e-5)
            by_name = dict(zip(document["signals"], signals, strict=True))
            assert by_name.keys() == story.signals.keys()
            for signal, values in story.signals.items():
                shown = math.nan if by_name[signal] is None else by_name[signal]
                assert shown == pytest.approx(values[at], rel=1e-5, nan_ok=True)
            spent = dict(zip(document["usage"], usage, strict=True))
            assert spent["prompt tokens"] == told.usage.prompt_tokens
            assert "completion tokens" not in spent
            assert [document["passages"][index] for index, _ in passages] == [
                [each.title, each.text] for each in told.passages or ()
            ]
        assert [(r, at, document["reasons"][reason]) for r, at, reason in stops] == [
            (stop.round, stop.answer_round, stop.reason) for stop in story.stops
        ]


def test_a_stop_points_to_the_answer_that_is_returned() -> None:
    """Under the majority of three samples a stop in the last round returns an earlier answer."""
    traces = to_trace_set([make_record("q", ["Oslo", "Oslo", "Rome"], gold=["Oslo"])])
    settings = ComparisonSettings(policies=("fixed-1",), answer="majority", resamples=5)
    compared = compare(traces, settings)
    document, _ = made(report_data(traces, compared.result))
    ((*_, stops),) = document["questions"]
    assert [stop[:2] for stop in stops] == [[1, 1], [3, 2]]


def test_passages_and_reasons_are_stored_once() -> None:
    shared = [with_passages(record, ["one text", "another"]) for record in RECORDS]
    document, _ = made(build_report(shared))
    assert document["passages"] == [["T0", "one text"], ["T1", "another"]]
    assert len(document["reasons"]) == len(set(document["reasons"])) == 4


def test_long_texts_are_cut() -> None:
    long = with_passages(RECORDS[0], ["x" * 2_001, "y" * 2_000])
    document, _ = made(build_report([long, *RECORDS[1:]]))
    texts = {text for _, text in document["passages"]}
    assert texts >= {"x" * 2_000 + "…", "y" * 2_000}


def test_questions_that_do_not_fit_are_left_out_and_counted() -> None:
    data = build_report(RECORDS)
    story = data.stories[0]
    wide = replace(story.record.rounds[0], answer="x" * 400, parse_failure="y" * 600)
    story = replace(
        story,
        record=replace(story.record, rounds=(wide,) * 50),
        scores={name: np.zeros(50) for name in story.scores},
        signals={name: np.zeros(50) for name in story.signals},
    )
    stories = (story,) * 100
    document, cuts = made(replace(data, stories=stories, left_out=7))
    shown = len(document["questions"])
    assert 0 < shown < 100
    assert f"shows {shown} questions of 107: of every type and outcome" in cuts[0]

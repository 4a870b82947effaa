from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.reports import build_report, oslo_records

from suffice.evaluation.diagnose.report_data import ReportData
from suffice.report.explorer import explorer
from suffice.report.section import marked
from suffice.trace.rounds.records import Passage, QuestionRecord

RECORDS = oslo_records()


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
        for at, (told, (answer, em, f1, passages, signals, usage, failure)) in enumerate(
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
        assert [(r, document["reasons"][reason]) for r, reason in stops] == [
            (stop.round, stop.reason) for stop in story.stops
        ]


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

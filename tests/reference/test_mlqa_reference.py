"""MLQA's scores against its official script, mlqa_evaluation_v1.py.

``mlqa.jsonl`` holds answers and gold answers of ours in its seven languages, with what the script computes
of them: the normal form, exact match and F1. Made by importing the script of
github.com/facebookresearch/MLQA at commit 24bf470.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from tests.commands import refused, run, run_json

from suffice.scoring import METRICS, mlqa_form
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.writer import write_traces

ROWS: list[dict[str, Any]] = [
    json.loads(line)
    for line in Path(__file__).with_name("mlqa.jsonl").read_text(encoding="utf-8").splitlines()
]


def asked(rows: list[dict[str, Any]]) -> list[QuestionRecord]:
    records = []
    for number, row in enumerate(rows):
        record = make_record(f"q{number:02}", [row["answer"]], gold=row["gold"])
        question = replace(record.question, type=row["language"])
        records.append(replace(record, question=question))
    return records


def replayed(records: list[QuestionRecord], path: Path, metric: str) -> dict[str, Any]:
    write_traces(to_trace_set(records), path)
    command = ("replay", path, "--policy", "fixed-1", "--baseline", "fixed-1", "--metric", metric)
    result = run_json(*command)
    return {**result["policies"][0], "notes": result["notes"]}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['language']}-{row['answer']}")
def test_one_answer(row: dict[str, Any]) -> None:
    language, metric = row["language"], METRICS["f1-mlqa"]
    assert mlqa_form(f"{language}\n{row['answer']}") == row["form"]
    for score in ("em", "f1"):
        found = metric.of(score, row["answer"], row["gold"], language)
        assert found == pytest.approx(row[score], abs=1e-15)


@pytest.mark.parametrize("metric", ["f1-mlqa", "em-mlqa"])
def test_records_of_one_language_and_of_all(metric: str, tmp_path: Path) -> None:
    languages = {name: [*rows] for name, rows in groupby(ROWS, key=lambda row: row["language"])}
    for name, rows in {**languages, "all": ROWS}.items():
        found = replayed(asked(rows), tmp_path / f"{name}.parquet", metric)
        for score in ("em", "f1"):
            expected = sum(row[score] for row in rows) / len(rows)
            assert found[f"{score}-mlqa"] == pytest.approx(expected, abs=1e-12)
        assert not any("ASCII" in note for note in found["notes"])


def test_the_official_scripts_of_english_say_that_they_score_other_languages(
    tmp_path: Path,
) -> None:
    records = asked([row for row in ROWS if row["language"] == "zh"])
    (note,) = [n for n in replayed(records, tmp_path / "zh.parquet", "f1")["notes"] if "ASCII" in n]
    assert "--metric f1-mlqa" in note
    english = asked([{"language": "en", "answer": "Oslo – 5 °", "gold": ["Oslo"]}])
    notes = replayed(english, tmp_path / "en.parquet", "f1")["notes"]
    assert not any("ASCII" in note for note in notes)  # a dash and a degree are no letters


def test_a_question_without_a_language_of_mlqa_is_refused(tmp_path: Path) -> None:
    records = asked([ROWS[0], {**ROWS[1], "language": "bridge"}])
    write_traces(to_trace_set(records), tmp_path / "t.parquet")
    done = run("replay", tmp_path / "t.parquet", "--metric", "f1-mlqa")
    refused(done, "'bridge'", "question_type", "en, es, de, vi, ar, hi, zh")

"""Sheets for people, their verdicts read back, and agreement of raters."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studies.hidden_constraints.__main__ import main
from studies.hidden_constraints.checker import CHECKER
from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import BenchmarkSettings
from studies.hidden_constraints.people import (
    JUDGE,
    PEOPLE,
    TOGETHER,
    Rated,
    agree,
    judging,
    new_verdicts,
    recorded_verdicts,
)
from studies.hidden_constraints.sheet import Run, drawn_runs, read_labels, read_records, write_sheet

from suffice.errors import DataError, UsageError
from suffice.testing.models import ScriptedModel
from suffice.trace.plans.file import write_plans
from suffice.trace.plans.records import PlanOutcome, PlanRecord

SMALL = BenchmarkSettings(tasks=6, hard_small=3, documents=36)


def recorded(
    folder: Path, *, judge: str = "model", satisfied: Sequence[bool] = (True, False)
) -> str:
    """A record of six tasks with two agents: one names the token; verdicts in turn."""
    records = []
    for number, task in enumerate(generate(SMALL).tasks):
        for agent, plan in (("a", f"1) Apply {task.constraint.token}"), ("b", "1) Go home")):
            ok = satisfied[(number + (agent == "b")) % len(satisfied)]
            records.append(
                PlanRecord(
                    task=task.visible,
                    agent=agent,
                    retriever=None,
                    seed=42,
                    steps=(),
                    outcome=PlanOutcome(
                        plan=plan, ended="complete", semantic=ok, verdict="json: because"
                    ),
                    gold=task.gold,
                )
            )
    run = {
        "experiment": "hidden-constraints",
        "benchmark": {
            name: getattr(SMALL, name)
            for name in ("seed", "tasks", "hard_small", "documents", "gap")
        },
        "judge": judge,
    }
    write_plans(records, folder / "plans.parquet", run=run)
    return str(folder)


@pytest.fixture
def record(tmp_path: Path) -> str:
    (tmp_path / "record").mkdir()
    return recorded(tmp_path / "record")


def filled(sheet: Path, verdict: Callable[[dict[str, str]], str]) -> None:
    """Write verdicts into a sheet."""
    rows = list(csv.DictReader(io.StringIO(sheet.read_text())))
    with sheet.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(row | {"satisfied": verdict(row)} for row in rows)


def test_a_sheet_is_blind_and_comes_back(record: str, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.csv"
    assert main(["sheet", record, "--all", "--out", str(sheet)]) == 0
    rows = list(csv.DictReader(io.StringIO(sheet.read_text())))
    assert len(rows) == 12
    assert set(rows[0]).isdisjoint({"agent", "retriever", "judge", "semantic", "verdict"})
    assert {row["satisfied"] for row in rows} == {""}
    assert "because" not in sheet.read_text()
    assert [row["task"] for row in rows] != sorted(row["task"] for row in rows)
    filled(sheet, lambda row: "Yes" if "Apply" in row["plan"] else " no ")
    records = read_records([record])
    labels, elsewhere = read_labels(sheet, records)
    assert elsewhere == 0
    for run in records[0].runs:
        assert labels[run.id] == (run.record.agent == "a") == run.checked


def change(column: str, value: str) -> Callable[[list[dict[str, str]]], None]:
    def changed(rows: list[dict[str, str]]) -> None:
        rows[1][column] = value

    return changed


@pytest.mark.parametrize(
    ("spoil", "row", "column"),
    [
        (change("task", "task_999"), 1, "task"),
        (change("constraint", "another"), 1, "constraint"),
        (change("satisfied", "maybe"), 1, "satisfied"),
        (lambda rows: rows.append(dict(rows[0])), 4, "run"),
        (lambda rows: [row.pop("run") for row in rows], None, None),
        (lambda rows: [row.update(run=f"run-{at}") for at, row in enumerate(rows)], None, None),
        (lambda rows: [row.update(satisfied="") for row in rows], None, None),
    ],
    ids=["task", "constraint", "word", "twice", "no column", "no overlap", "not filled in"],
)
def test_wrong_labels_are_refused_where_they_stand(
    record: str, tmp_path: Path, spoil: Any, row: int | None, column: str | None
) -> None:
    records = read_records([record])
    sheet = tmp_path / "sheet.csv"
    write_sheet(drawn_runs(records, 4, 1), sheet)
    rows = [one | {"satisfied": "yes"} for one in csv.DictReader(io.StringIO(sheet.read_text()))]
    spoil(rows)
    with sheet.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    with pytest.raises(DataError) as refused:
        read_labels(sheet, records)
    assert (refused.value.row, refused.value.column) == (row, column)
    assert refused.value.file == str(sheet)
    assert main(["judge", record, "--labels", str(sheet)]) == 2


def rated(run: Run, **verdicts: bool) -> Rated:
    said = {PEOPLE: None, JUDGE: None, CHECKER: None} | verdicts
    return Rated(run=run, verdicts=said, unreadable=False)


def test_kappa_is_that_of_scikit_learn(record: str) -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="the extra 'cluster' is missing")
    (runs,) = (one.runs for one in read_records([record]))
    generator = np.random.default_rng(3)
    for _ in range(50):
        people, judge = generator.random((2, 12)) < generator.random((2, 1)) * 0.6 + 0.2
        if len(set(people)) < 2 or len(set(judge)) < 2:
            continue
        rows = [
            rated(run, people=bool(p), judge=bool(j))
            for run, p, j in zip(runs, people, judge, strict=True)
        ]
        found = agree("r", rows, (PEOPLE, JUDGE), resamples=400, seed=1)
        assert found is not None
        kappa = found["kappa"]
        assert kappa.estimate == pytest.approx(metrics.cohen_kappa_score(people, judge))
        assert kappa.low <= kappa.estimate <= kappa.high
        assert metrics.confusion_matrix(people, judge).tolist() == [
            [found["neither"], found["second_alone"]],
            [found["first_alone"], found["both"]],
        ]


def test_several_records_stand_by_themselves_and_together(tmp_path: Path) -> None:
    paths = []
    for name, satisfied in (("one", (True, False)), ("two", (False,)), ("three", (True,))):
        (tmp_path / name).mkdir()
        paths.append(recorded(tmp_path / name, satisfied=satisfied))
    (tmp_path / "checked").mkdir()
    paths.append(recorded(tmp_path / "checked", judge="checker"))
    records = read_records(paths)
    result = judging(
        recorded_verdicts(records, {}),
        {one.name: one.judge for one in records},
        resamples=20,
        seed=1,
    )
    table = result.table("Satisfied").data()
    assert table["record"] == [*paths, TOGETHER]
    assert table["judge"] == pytest.approx([0.5, 0.0, 1.0, None, 0.5])
    assert table["checker"] == [0.5] * 5
    assert table["runs"] == [12, 12, 12, 12, 48]
    agreed = {one["record"]: one["runs"] for one in result.document["agreement"]}
    assert agreed == {paths[0]: 12, paths[1]: 12, paths[2]: 12, TOGETHER: 36}
    with pytest.raises(UsageError):
        read_records([paths[0], paths[0]])


def test_a_new_judge_is_asked_once_a_plan(record: str) -> None:
    asked: list[str] = []

    def reply(request: Any, _: int) -> str:
        asked.append(str(request.prompt))
        return '{"ok": "YES"}' if "Apply" in asked[-1] else "perhaps"

    records = read_records([record])
    for told in ("token", "requirement"):
        asked.clear()
        found = new_verdicts(records, {}, ScriptedModel(reply, api="chat"), told, lambda *_: None)[
            record
        ]
        assert [one.verdicts[JUDGE] for one in found] == [one.run.checked for one in found]
        assert [one.unreadable for one in found] == [not one.run.checked for one in found]
        assert len(asked) == 12
        sentence = found[0].run.requirement
        assert any(sentence in prompt for prompt in asked) == (told == "requirement")


def test_the_command_prints_one_document(record: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", record, "--json", "--bootstrap", "20"]) == 0
    document = json.loads(capsys.readouterr().out)
    (agreed,) = document["agreement"]
    assert agreed["raters"] == [CHECKER, JUDGE]
    parts = ("both", "first_alone", "second_alone", "neither")
    assert sum(agreed[part] for part in parts) == agreed["runs"] == 12
    assert main(["judge", record, "--told", "token"]) == 2

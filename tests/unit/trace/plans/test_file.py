"""A plan trace is read back as it was written, run by run; what is broken in it is named."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from tests.builders import keep
from tests.plan_records import make_plan, plan_records
from tests.properties import examples

from suffice.errors import DataError, SufficeWarning, UsageError
from suffice.testing.traces import make_record
from suffice.trace.parquet import write_table
from suffice.trace.plan_traces import (
    PLAN_ROWS,
    PLANS,
    Candidate,
    ConstraintDecision,
    PlanGold,
    PlanRecord,
    PlanStep,
    inspect_plans,
    plan_writer,
    read_plans,
)
from suffice.trace.rounds.reader import inspect_traces, read_traces
from suffice.trace.rounds.records import Passage, Usage, as_document
from suffice.trace.rounds.writer import write_traces


def write_runs(file: Path, *runs: Any, version: bytes | None = b"2") -> Path:
    """Runs as JSON texts, as somebody else's program may have written them."""
    rows = [
        {"task_id": "a", "agent": "gate", "retriever": "bm25", "seed": 0, "run": run}
        for run in runs
    ]
    table = pa.Table.from_pylist(rows, schema=PLANS.arrow)
    stated = {} if version is None else {PLANS.key: version}
    pq.write_table(table.replace_schema_metadata(stated), file)
    return file


def as_json(**changes: Any) -> str:
    return json.dumps(as_document(make_plan("a")) | changes)


# --- there and back -------------------------------------------------------------------------------
@settings(deadline=None, max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(records=plan_records())
def test_runs_come_back_as_they_were(records: list[PlanRecord], tmp_path: Path) -> None:
    write_table(PLAN_ROWS.table(reversed(records), {"m": 1}), tmp_path / "p.parquet")
    found = read_plans(tmp_path / "p.parquet")
    assert found.records == tuple(records)
    assert (found.run, found.skipped, found.failures) == ({"m": 1}, (), 0)


@pytest.mark.parametrize(
    ("run", "column"),
    [
        ("{", "run"),
        ("[]", "run"),
        (None, "run"),
        (as_json(mine=1), "run"),
        (as_json(agent="none"), "agent"),
        (as_json(steps=[{"number": 2, "action": "STOP"}]), "step"),
        (as_json(steps=[{"number": 1, "action": "WAIT"}]), "action"),
        (as_json(steps=[{"number": 1, "action": "STOP", "usage": {"llm_calls": -1}}]), "llm_calls"),
        (as_json(outcome={"plan": "", "ended": "done"}), "ended"),
        (as_json(), "task_id"),
    ],
)
def test_a_broken_run_is_named_and_the_rest_is_read(
    run: str | None, column: str, tmp_path: Path
) -> None:
    file = write_runs(tmp_path / "p.parquet", as_json(), run)
    with pytest.raises(DataError) as caught:
        read_plans(file)
    error = caught.value
    assert (error.file, error.row, error.column) == (str(file), 1, column)
    assert read_plans(file, skip_invalid=True).records == (make_plan("a"),)


def test_nothing_valid_is_an_error(tmp_path: Path) -> None:
    file = write_runs(tmp_path / "p.parquet", "{")
    assert len(inspect_plans(file).skipped) == 1
    with pytest.raises(DataError):
        read_plans(file, skip_invalid=True)


def test_files_of_other_versions_and_empty_ones(tmp_path: Path) -> None:
    for version in (b"1", b"3"):
        with pytest.raises(DataError, match=r"version|newer"):
            read_plans(write_runs(tmp_path / "p.parquet", as_json(), version=version))
    with pytest.warns(SufficeWarning, match=r"does not state suffice\.plan_schema"):
        assert read_plans(write_runs(tmp_path / "p.parquet", as_json(), version=None)).records
    with pytest.raises(DataError, match="the plan trace is empty"):
        read_plans(write_runs(tmp_path / "p.parquet"))


def test_neither_kind_is_read_as_the_other(tmp_path: Path) -> None:
    write_traces([make_record("q", ["Oslo"])], tmp_path / "q.parquet")
    write_table(PLAN_ROWS.table([make_plan("a")], {}), tmp_path / "p.parquet")
    with pytest.raises(DataError, match=r"this is a trace \(.*, not a plan trace .*suffice.read"):
        read_plans(tmp_path / "q.parquet")
    with pytest.raises(DataError, match=r"this is a plan trace \(.*, not a trace .*read_plans"):
        read_traces(tmp_path / "p.parquet")
    # a folder of both is read as far as it is of the kind asked for
    assert len(read_plans(tmp_path, skip_invalid=True).records) == 1
    assert inspect_traces(tmp_path).traces.n_questions == 1


def test_what_cannot_be_gone_on_with_is_refused(tmp_path: Path) -> None:
    with plan_writer(tmp_path / "p", run={"model": "a"}) as writer:
        keep(writer, [make_plan("a")])
        with pytest.raises(UsageError, match="another recorder is writing"):
            plan_writer(tmp_path / "p", run={"model": "a"})
        with pytest.raises(DataError, match="this is a plan trace"):
            read_traces(tmp_path / "p")
    with pytest.raises(UsageError, match="model was 'a', now 'b'"):
        plan_writer(tmp_path / "p", run={"model": "b"})
    write_traces([make_record("q", ["Oslo"])], tmp_path / "q.parquet")
    with pytest.raises(DataError, match="not a plan trace"):
        plan_writer(tmp_path / "q.parquet", run={})


RECORD = make_plan("t")
STEP = PlanStep(number=1, action="EXECUTE")


@pytest.mark.parametrize(
    ("made", "changes", "column"),
    [
        (RECORD.task, {"id": ""}, "task_id"),
        (RECORD.task, {"total_steps": 0}, "total_steps"),
        (STEP, {"number": 0}, "step"),
        (STEP, {"values": {"risk": math.nan}}, "signals"),
        (STEP, {"values": {"risk": "0.5"}}, "signals"),
        (STEP, {"sampled_again": True}, "sampled_again"),
        (STEP, {"candidates": ("a",)}, "candidates"),
        (STEP, {"usage": None}, "usage"),
        (Candidate("a"), {"text": None}, "candidates.text"),
        (PlanGold(), {"constraints": "limit_001"}, "gold_constraints"),
        (RECORD.outcome, {"parsed": "regex"}, "parsed"),
        (RECORD.outcome, {"semantic": 1}, "semantic"),
        (
            ConstraintDecision(constraint="a", enforced=True),
            {"enforced": "YES"},
            "decisions.enforced",
        ),
        (RECORD, {"agent": ""}, "agent"),
        (RECORD, {"gold": ("a",)}, "gold"),
        (RECORD, {"steps": (replace(STEP, number=2),)}, "step"),
    ],
)
def test_what_no_trace_may_hold_is_refused(made: Any, changes: dict[str, Any], column: str) -> None:
    with pytest.raises(DataError) as caught:
        replace(made, **changes)
    assert caught.value.column == column


def test_a_retrieval_is_known_from_its_cost_or_its_query() -> None:
    asked = replace(STEP, query="what?")
    assert asked.retrievals == 1
    assert replace(asked, blocked="budget").retrievals == 0
    assert replace(asked, usage=Usage(retrievals=3)).retrievals == 3
    assert replace(STEP, passages=(Passage(id="a"),)).retrievals == 0

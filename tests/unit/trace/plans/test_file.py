"""A plan trace is read back as it was written, run by run; what is broken in it is named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
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
from suffice.trace.plans.file import (
    PLAN_COLUMNS,
    PLAN_SCHEMA_KEY,
    PLANS,
    inspect_plans,
    plan_to_rows,
    plan_writer,
    read_plans,
    write_plans,
)
from suffice.trace.plans.records import (
    Candidate,
    ConstraintDecision,
    PlanOutcome,
    PlanRecord,
    PlanStep,
)
from suffice.trace.rounds.reader import inspect_traces, read_traces
from suffice.trace.rounds.records import Passage, Usage
from suffice.trace.rounds.writer import write_traces

SAMPLE = Path(__file__).parent / "plans_v1.parquet"
Rows = list[dict[str, Any]]


def write_rows(file: Path, rows: Rows, *, version: bytes | None = b"1") -> Path:
    """Rows as somebody else's program may have written them."""
    table = pa.Table.from_pylist(rows, schema=PLANS.arrow)
    stated = {} if version is None else {PLAN_SCHEMA_KEY: version}
    pq.write_table(table.replace_schema_metadata(stated), file)
    return file


def two_runs() -> Rows:
    """Rows 0-2: run a; rows 3-5: run b."""
    return [row for name in "ab" for row in plan_to_rows(make_plan(name))]


# --- there and back -------------------------------------------------------------------------------
@settings(deadline=None, max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(records=plan_records())
def test_runs_come_back_as_they_were(records: list[PlanRecord], tmp_path: Path) -> None:
    write_plans(reversed(records), tmp_path / "p.parquet", run={"m": 1})
    found = read_plans(tmp_path / "p.parquet")
    assert found.records == tuple(records)
    assert (found.run, found.skipped, found.failures) == ({"m": 1}, (), 0)


FULL_COSTS = Usage(
    **{each.name: number for number, each in enumerate(dataclasses.fields(Usage), start=1)}
)
FULL_STEP = PlanStep(
    number=1,
    action="REPLAN",
    candidates=(Candidate("a", "b"),),
    reason="c",
    values={"risk": 0.5},
    k=3,
    query="d",
    passages=(Passage(id="e", text="f", title="g", score=1.5, rerank_score=-2.5),),
    redrawn=(Candidate("t"),),
    chosen="h",
    dropped="i",
    sampled_again=2,
    blocked="budget",
    question="j",
    reply="k",
    verdict="l",
    usage=FULL_COSTS,
)
FULL_OUTCOME = PlanOutcome(
    plan="m",
    ended="max-steps",
    constraints=("n",),
    decisions=(ConstraintDecision(constraint="o", enforced=True, reason="p"),),
    response="q",
    attempts=3,
    parsed="repaired",
    parse_failure="r",
    usage=FULL_COSTS,
    semantic=True,
    verdict="s",
)


def test_no_field_is_forgotten(tmp_path: Path) -> None:
    """A field that the rows leave out would come back as its default."""
    for part in (FULL_STEP, FULL_OUTCOME, FULL_STEP.passages[0], FULL_COSTS):
        for each in dataclasses.fields(part):
            nothing: tuple[Any, ...] = (None, (), {}, "", Usage(), each.default)
            assert getattr(part, each.name) not in nothing, each.name
    record = dataclasses.replace(make_plan("t"), steps=(FULL_STEP,), outcome=FULL_OUTCOME)
    write_plans([record], tmp_path / "p.parquet")
    assert read_plans(tmp_path / "p.parquet").records == (record,)


def test_every_column_is_written(tmp_path: Path) -> None:
    """A column that no row fills would come back as null and nobody would notice."""
    written = {name for row in two_runs() for name in row}
    assert written == {column.name for column in PLAN_COLUMNS}


def test_the_outcome_stands_in_the_last_row_alone() -> None:
    rows = plan_to_rows(make_plan("a"))
    assert [row.get("ended") for row in rows] == [None, None, "stop"]
    assert [row.get("outcome_prompt_tokens") for row in rows] == [None, None, 200]
    assert [row["gold_constraints"] for row in rows] == [["limit_001"]] * 3


def test_rows_may_come_in_any_order_and_from_several_files(tmp_path: Path) -> None:
    rows = two_runs()
    write_rows(tmp_path / "x.parquet", rows[4::-2])
    write_rows(tmp_path / "y.parquet", rows[5::-2])
    assert read_plans(tmp_path).records == (make_plan("a"), make_plan("b"))


def test_foreign_types_and_missing_columns_are_read(tmp_path: Path) -> None:
    needed = [column for column in PLAN_COLUMNS if column.required]
    table = pa.Table.from_pylist(two_runs(), schema=PLANS.arrow)
    table = table.select([column.name for column in needed])
    wide = [
        pa.field(each.name, pa.large_string() if pa.types.is_string(each.type) else pa.int64())
        for each in needed
    ]
    table = table.cast(pa.schema(wide)).append_column("mine", pa.array(range(6)))
    pq.write_table(table.replace_schema_metadata({PLAN_SCHEMA_KEY: b"1"}), tmp_path / "p.parquet")
    found = read_plans(tmp_path / "p.parquet").records
    assert [each.key for each in found] == [("a", "gate", None, 0), ("b", "gate", None, 0)]
    assert [step.action for step in found[0].steps] == ["RETRIEVE", "EXECUTE", "STOP"]
    assert (found[0].gold, found[0].outcome.plan) == (None, "1) do part 1 of a")


def test_null_and_nan_values_are_undefined(tmp_path: Path) -> None:
    rows = two_runs()
    rows[0]["signals"] = [("risk", None), ("confidence", float("nan")), ("other", 0.5)]
    found = read_plans(write_rows(tmp_path / "p.parquet", rows)).records[0]
    assert found.steps[0].values == {"other": 0.5}


def test_the_sample_of_version_1_is_read_as_ever() -> None:
    """Written once by version 1; no later version may read it as anything else."""
    plans = read_plans(SAMPLE)
    assert plans.run == {"note": "a sample of version 1"}
    assert [each.key for each in plans.records] == [
        ("t1", "gate", "bm25", 0),
        ("t1", "none", None, 0),
        ("t2", "gate", "bm25", 7),
    ]
    assert [[step.action for step in run.steps] for run in plans.records] == [
        ["RETRIEVE", "REPLAN", "ASK", "EXECUTE", "STOP"],
        [],
        ["EXECUTE", "RETRIEVE"],
    ]
    first, bare, last = plans.records
    assert first.steps[0].values == {"confidence": 0.25, "risk": 0.75}
    assert [each.id for each in first.steps[0].passages] == ["d1", "d2"]
    assert first.steps[1].dropped == "do part 1 of t1"
    assert (first.steps[2].question, first.steps[2].reply) == ("Which region?", "eu-west")
    assert (first.steps[3].blocked, first.steps[3].verdict) == ("cool-down", "YES, I need it")
    assert (first.outcome.semantic, first.outcome.verdict) == (True, "json: holds")
    assert first.outcome.decisions[0].enforced
    assert (bare.gold, bare.outcome.plan, bare.outcome.parse_failure) == (None, "", "no object")
    assert last.outcome.usage == make_plan("t2", ("EXECUTE", "RETRIEVE")).outcome.usage


# --- bad files ------------------------------------------------------------------------------------
def change(row: int, **values: Any) -> Callable[[Rows], None]:
    return lambda rows: rows[row].update(values)


@pytest.mark.parametrize(
    ("damage", "row", "column"),
    [
        (change(1, step=1), 1, "step"),
        (lambda rows: rows.append(rows[5]), 6, "step"),
        (lambda rows: rows.pop(1), 1, "step"),
        (lambda rows: rows.pop(0), 0, "step"),
        (lambda rows: rows.pop(2), 1, "ended"),
        (change(0, step=0), 0, "step"),
        (change(0, step=-1), 0, "step"),
        (change(2, plan=None), 2, "plan"),
        (change(0, ended="stop"), 0, "ended"),
        (change(1, goal="x"), 1, "goal"),
        (change(1, gold_constraints=[]), 1, "gold_constraints"),
        (change(1, task_id=None), 1, "task_id"),
        (change(1, step=None), 1, "step"),
        (change(1, action=None), 1, "action"),
        (change(1, action="WAIT"), 1, "action"),
        (change(1, blocked="tired"), 1, "blocked"),
        (change(1, signals=[("risk", float("inf"))]), 1, "signals"),
        (change(1, k=-1), 1, "k"),
        (change(1, llm_calls=-1), 1, "llm_calls"),
        (change(2, outcome_llm_calls=-1), 2, "outcome_llm_calls"),
        (change(1, candidates=[None]), 1, "candidates"),
        (change(1, passages=[None]), 1, "passages"),
        (change(2, ended="done"), 2, "ended"),
    ],
)
def test_a_broken_run_is_named_and_the_rest_is_read(
    damage: Callable[[Rows], None], row: int, column: str, tmp_path: Path
) -> None:
    rows = two_runs()
    damage(rows)
    file = write_rows(tmp_path / "p.parquet", rows)
    with pytest.raises(DataError, match="suffice traces validate") as caught:
        read_plans(file)
    error = caught.value
    assert (error.file, error.row, error.column) == (str(file), row, column)
    found = read_plans(file, skip_invalid=True)
    assert [each.task.id for each in found.records] == (["a"] if row == 6 else ["b"])
    assert found.skipped[0].row == row


def test_of_every_broken_run_it_is_listed_what_is_wrong_first(tmp_path: Path) -> None:
    rows = two_runs()
    change(1, action="WAIT")(rows)
    change(2, ended="done")(rows)
    change(4, k=-1)(rows)
    file = write_rows(tmp_path / "p.parquet", rows)
    assert [each.row for each in inspect_plans(file).skipped] == [1, 4]
    with pytest.raises(DataError, match="nothing valid is left to read; 2 parts were skipped"):
        read_plans(file, skip_invalid=True)


def test_newer_unstated_and_empty_files(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "p.parquet", two_runs(), version=b"2")
    with pytest.raises(DataError, match=r"plan trace schema 2 is newer than 1.*upgrade"):
        read_plans(file)
    write_rows(file, two_runs(), version=None)
    with pytest.warns(SufficeWarning, match=r"does not state suffice\.plan_schema"):
        assert len(read_plans(file).records) == 2
    write_rows(file, [])
    with pytest.raises(DataError, match="the plan trace is empty"):
        read_plans(file)


def test_neither_kind_is_read_as_the_other(tmp_path: Path) -> None:
    write_traces([make_record("q", ["Oslo"])], tmp_path / "q.parquet")
    write_plans([make_plan("a")], tmp_path / "p.parquet")
    with pytest.raises(DataError, match=r"this is a trace \(.*, not a plan trace .*read_traces"):
        read_plans(tmp_path / "q.parquet")
    with pytest.raises(DataError, match=r"this is a plan trace \(.*, not a trace .*read_plans"):
        read_traces(tmp_path / "p.parquet")
    # a folder of both is read as far as it is of the kind asked for
    assert len(read_plans(tmp_path, skip_invalid=True).records) == 1
    assert inspect_traces(tmp_path).traces.n_questions == 1


# --- a set ----------------------------------------------------------------------------------------
def test_runs_are_chosen_by_agent_retriever_and_seed(tmp_path: Path) -> None:
    runs = [
        make_plan("a"),
        make_plan("a", seed=1),
        make_plan("a", agent="none", retriever=None),
        make_plan("b", retriever="dense"),
    ]
    write_plans(runs, tmp_path / "p.parquet", run={"m": 1})
    plans = read_plans(tmp_path / "p.parquet")

    def keys(**chosen: Any) -> list[Any]:
        return [each.key for each in plans.only(**chosen).records]

    assert len(keys()) == 4
    assert keys(seed=1) == [("a", "gate", "bm25", 1)]
    assert keys(retriever=None) == [("a", "none", None, 0)]
    assert keys(agent="gate", retriever="dense") == [("b", "gate", "dense", 0)]
    assert plans.only(seed=1).run == {"m": 1}
    with pytest.raises(
        DataError, match="has agent/retriever/seed gate/none/any; found: gate/bm25/0"
    ):
        plans.only(agent="gate", retriever=None)


@pytest.mark.parametrize("name", ["plans", "plans.parquet"])
def test_a_recording_goes_on_where_it_ended(tmp_path: Path, name: str) -> None:
    with plan_writer(tmp_path / name, run={"m": (1,)}) as writer:
        assert writer.done == frozenset()
        keep(writer, [make_plan("a"), make_plan("b", retriever=None)])
        writer.fail(("c", "gate", None, 0), "no reply")
        writer.fail(("c", "gate", None, 0), "no reply again")
        assert writer.done == {("a", "gate", "bm25", 0), ("b", "gate", None, 0)}
        if name == "plans":
            assert len(read_plans(tmp_path / name).records) == 2
    assert read_plans(tmp_path / name).failures == 1
    with plan_writer(tmp_path / name, run={"m": [1], "version": "2"}) as writer:
        assert len(writer.done) == 2
        assert writer.failed == {("c", "gate", None, 0)}
        keep(writer, [make_plan("c", retriever=None)])
        keep(writer, [make_plan("a")])  # which stays as it is
        assert writer.failed == frozenset()
    plans = read_plans(tmp_path / name)
    assert [each.task.id for each in plans.records] == ["a", "b", "c"]
    assert plans.failures == 0


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

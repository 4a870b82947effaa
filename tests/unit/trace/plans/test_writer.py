"""Plans are written run by run: a recording goes on where it ended, and a kill loses nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from suffice.errors import DataError, UsageError
from suffice.testing.plans import make_plan
from suffice.testing.traces import make_record
from suffice.trace.plans.file import inspect_plans, plan_writer, read_plans, write_plans
from suffice.trace.rounds.writer import write_traces


@pytest.mark.parametrize("name", ["plans", "plans.parquet"])
def test_a_recording_goes_on_where_it_ended(tmp_path: Path, name: str) -> None:
    with plan_writer(tmp_path / name, run={"m": (1,)}, shard_runs=2) as writer:
        assert writer.done == frozenset()
        writer.add([make_plan("a"), make_plan("b")])
        writer.fail(("c", "gate", None, 0), "no reply")
        writer.fail(("c", "gate", None, 0), "no reply again")
        assert writer.done == {("a", "gate", "bm25", 0), ("b", "gate", "bm25", 0)}
    assert read_plans(tmp_path / name).failures == 1
    with plan_writer(tmp_path / name, run={"m": [1], "version": "2"}, shard_runs=2) as writer:
        assert len(writer.done) == 2
        assert writer.failed == {("c", "gate", None, 0)}
        with pytest.raises(UsageError, match=r"'b', 'gate', 'bm25', 0.*recorded already"):
            writer.add([make_plan("c"), make_plan("b")])
        with pytest.raises(UsageError, match="recorded already"):
            writer.add([make_plan("c"), make_plan("c")])
        writer.add([make_plan("c", retriever=None)])
        writer.add([])
        assert writer.failed == frozenset()
    plans = read_plans(tmp_path / name)
    assert [each.task.id for each in plans.records] == ["a", "b", "c"]
    assert plans.failures == 0
    if name == "plans":
        assert sorted(each.name for each in (tmp_path / name).glob("*.parquet")) == [
            "part-00000.parquet",
            "part-00001.parquet",
        ]


def test_a_shard_counts_runs_with_and_without_a_retriever(tmp_path: Path) -> None:
    for seed in range(4):
        with plan_writer(tmp_path, run={}, shard_runs=3) as writer:
            writer.add([make_plan("a", seed=seed, retriever="bm25" if seed % 2 else None)])
    sizes = [len(inspect_plans(each).records) for each in sorted(tmp_path.glob("*.parquet"))]
    assert sizes == [3, 1]


def test_a_failure_line_names_the_run(tmp_path: Path) -> None:
    with plan_writer(tmp_path, run={}) as writer:
        writer.fail(("t", "gate", None, 3), "no reply")
    assert json.loads((tmp_path / "failures.jsonl").read_text()) == {
        "task_id": "t",
        "agent": "gate",
        "retriever": None,
        "seed": 3,
        "reason": "no reply",
        "attempts": 1,
    }


def test_a_kill_between_rows_and_failures_leaves_no_failure(tmp_path: Path) -> None:
    with plan_writer(tmp_path, run={}) as writer:
        writer.fail(make_plan("a").key, "no reply")
    write_plans([make_plan("a")], tmp_path)
    with plan_writer(tmp_path, run={}) as writer:
        assert writer.failed == frozenset()
    assert read_plans(tmp_path).failures == 0


def test_what_cannot_be_gone_on_with_is_refused(tmp_path: Path) -> None:
    with plan_writer(tmp_path / "p", run={"model": "a"}) as writer:
        writer.add([make_plan("a")])
        with pytest.raises(UsageError, match="another recorder is writing"):
            plan_writer(tmp_path / "p", run={"model": "a"})
    with pytest.raises(UsageError, match="model was 'a', now 'b'"):
        plan_writer(tmp_path / "p", run={"model": "b"})
    with plan_writer(tmp_path / "p", run={"model": "a"}):
        pass  # a refusal leaves no lock behind
    write_traces([make_record("q", ["Oslo"])], tmp_path / "q.parquet")
    with pytest.raises(DataError, match="not a plan trace"):
        plan_writer(tmp_path / "q.parquet", run={})


def test_what_cannot_be_stored_is_named_and_nothing_is_added(tmp_path: Path) -> None:
    broken = make_plan("a")
    broken = replace(broken, outcome=replace(broken.outcome, response="\ud800"))
    with plan_writer(tmp_path, run={}) as writer:
        with pytest.raises(
            DataError, match="task 'a', agent 'gate', step 3: cannot be stored"
        ) as error:
            writer.add([make_plan("b"), broken])
        assert error.value.column == "response"
        assert writer.done == frozenset()
        writer.add([make_plan("b")])
    assert [each.task.id for each in read_plans(tmp_path).records] == ["b"]


SCRIPT = """
import sys
from suffice.testing.plans import make_plan
from suffice.trace.plans.file import plan_writer

with plan_writer(sys.argv[1], run={"m": 1}, shard_runs=7) as writer:
    print("started", len(writer.done), flush=True)
    for number in range(1000):
        made = make_plan(f"t{number:04d}")
        if made.key not in writer.done:
            writer.add([made])
            print(number, flush=True)
"""


def test_killed_and_gone_on_with_every_run_is_there_once(tmp_path: Path) -> None:
    told = 0
    for runs in (3, 11, 6):
        with subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert int(process.stdout.readline().split()[1]) >= told
            for _ in range(runs):
                told = int(process.stdout.readline()) + 1
            process.send_signal(signal.SIGKILL)
        records = read_plans(tmp_path).records
        assert len(records) >= told
        assert records == tuple(make_plan(f"t{number:04d}") for number in range(len(records)))

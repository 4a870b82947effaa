"""``suffice traces`` checks records, says what is in them, splits, joins and narrows them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.builders import keep
from tests.commands import refused, run
from tests.plan_records import make_plan

from suffice.cli.main import main
from suffice.testing.traces import make_record
from suffice.trace.parquet import write_table
from suffice.trace.plan_traces import PLAN_ROWS, plan_writer
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.writer import write_traces


def test_validate_checks_a_plan_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with plan_writer(tmp_path / "p", run={}) as writer:
        keep(writer, [make_plan("a"), make_plan("b", ("EXECUTE",))])
        writer.fail(("c", "gate", None, 0), "no reply")
    assert main(["traces", "validate", str(tmp_path / "p")]) == 0
    file = tmp_path / "bad.parquet"
    write_table(PLAN_ROWS.table([make_plan("a"), make_plan("b")], {}), file)
    table = pq.read_table(file)
    runs = table.column("run").to_pylist()
    runs[1] = runs[1].replace("EXECUTE", "WAIT")
    pq.write_table(table.set_column(table.column_names.index("run"), "run", [runs]), file)
    capsys.readouterr()
    assert main(["traces", "validate", str(file), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    (error,) = document.pop("errors")
    assert document == {"plans": 1, "steps": 3, "failures": 0}
    assert (error["file"], error["row"], error["column"]) == (str(file), 1, "action")
    assert main(["traces", "validate", str(file), "--skip-invalid"]) == 0


def test_a_record_is_looked_into_split_narrowed_and_joined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*words: str) -> Any:
        assert main(["traces", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    raw, halved = str(tmp_path / "raw.parquet"), str(tmp_path / "halved")
    write_traces(
        [make_record(f"q{n}", ["Oslo", "Rome"]) for n in range(4)], raw, run={"model": "m"}
    )
    written = told("split", raw, "--splits", "a=0.5,b=0.5", "--seed", "1", "--out", halved)
    assert (written["questions"], written["splits"]) == (4, {"a": 2, "b": 2})
    parts = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    told("filter", halved, "--split", "a", "--model", "m", "--max-rounds", "1", "--out", parts[0])
    told("filter", halved, "--without", parts[0], "--out", parts[1])
    joined = told("merge", *parts, "--out", str(tmp_path / "joined.parquet"))
    assert (joined["questions"], joined["rounds"], joined["splits"]) == (4, 6, {"a": 2, "b": 2})
    assert main(["traces", "validate", str(tmp_path / "joined.parquet")]) == 0
    refused(run("traces", "split", raw, "--out", halved), "--out")


@pytest.mark.parametrize(
    "words",
    [
        ("replay", "--policy", "tasr"),
        ("replay", "--stop-when", "calibrated(overlap) > 0.5"),
        ("replay", "--policy", "fixed-1", "--split", "eval"),
        ("fit", "micp", "--out", "p.json"),
        ("search", "--signals", "answer_token_margin"),
    ],
    ids=" ".join,
)
def test_a_refusal_for_want_of_splits_ends_with_a_command_that_draws_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    raw, new = str(tmp_path / "my traces.parquet"), str(tmp_path / "new.parquet")
    records = [
        make_record(f"q{n}", ["Oslo", "Rome"], gold=["Rome"], margins=[n, n + 1.0])
        for n in range(8)
    ]
    write_traces(records, raw)
    command, *options = words
    at = 1 if command == "fit" else 0
    assert main([command, *options[:at], raw, *options[at:]]) == 2
    said = capsys.readouterr().err
    (typed,) = re.findall(r"suffice (traces split .* --out NEW)", said)
    assert main(shlex.split(typed.replace("NEW", new))) == 0
    assert {"tune", "optimize"} & set(read_traces(new).splits)


def test_labels_are_added_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, new = str(tmp_path / "raw"), str(tmp_path / "new")
    write_traces([make_record("a", ["Oslo"]), make_record("b", ["Rome"])], raw)
    (tmp_path / "l.csv").write_text("id,gold\na,Oslo\nz,Rome\n")
    words = ["traces", "label", raw, str(tmp_path / "l.csv"), "--out", new]
    words += ["--columns", "question_id=id,gold_answers=gold"]
    refused(run(*words), "1 of 2 labeled questions")
    assert main([*words, "--skip-unknown"]) == 0
    told = capsys.readouterr()
    assert told.out == f"wrote {new}: 2 questions, 2 rounds\n"
    (tmp_path / "raw/labels.jsonl").write_text('{"question_id": "a", "gold_answers": ["Oslo"]}\n')
    assert main(["traces", "info", raw]) == 0

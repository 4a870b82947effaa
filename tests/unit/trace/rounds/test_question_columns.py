"""What belongs to a question as a whole, whichever of its rows states it and however they come in."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import suffice
from suffice.errors import DataError, UsageError
from suffice.trace.rounds.derive import TraceFilter
from suffice.trace.rounds.reader import inspect_traces, read_traces
from suffice.trace.rounds.schema import SCHEMA, SCHEMA_KEY
from suffice.trace.rounds.trace_set import TraceSet

ROUNDS, QUESTIONS = 3, 40
KEYWORDS: dict[str, Any] = read_traces.__kwdefaults__ or {}
GOLD: dict[str, Callable[[list[str], int], list[str] | None]] = {
    "first": lambda gold, at: gold if at == 1 else None,
    "last": lambda gold, at: gold if at == ROUNDS else None,
    "two": lambda gold, at: gold if at > 1 else [],
    "empty texts": lambda gold, at: gold if at == 2 else [""],
    "other order": lambda gold, at: gold[::-1] if at == 2 else gold,
}


def rows(**cells: Any) -> list[dict[str, Any]]:
    """Questions of three rounds, right from round 2 on; ``cells`` make a value from question and round."""
    made = []
    for number in range(QUESTIONS):
        for at in range(1, ROUNDS + 1):
            row = {
                "question_id": f"q{number:02}",
                "round": at,
                "question": f"Which is town {number}?",
                "answer": f"Town {number}" if at > 1 else "nowhere",
                "gold_answers": [f"Town {number}", f"City {number}"],
            }
            made.append(row | {name: cell(number, at) for name, cell in cells.items()})
    return made


def parquet(file: Path, table: list[dict[str, Any]]) -> Path:
    schema = pa.schema([SCHEMA.field(name) for name in table[0]]).with_metadata({SCHEMA_KEY: b"2"})
    pq.write_table(pa.Table.from_pylist(table, schema), file)
    return file


def lazily(place: Path) -> TraceSet:
    return read_traces(place, lazily_above=0)


def two_files(folder: Path, table: list[dict[str, Any]]) -> Path:
    (folder / "two").mkdir()
    parquet(folder / "two" / "a.parquet", table[::2])
    parquet(folder / "two" / "b.parquet", table[1::2])
    return folder / "two"


def imported(folder: Path, table: list[dict[str, Any]], name: str) -> TraceSet:
    file = folder / name
    if name.endswith("csv"):
        with file.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(table[0])
            for row in table:
                writer.writerow(json.dumps(v) if isinstance(v, list) else v for v in row.values())
    else:
        file.write_text("".join(f"{json.dumps(row)}\n" for row in table))
    suffice.traces.import_(file, folder / "imported.parquet", format="columns")
    return suffice.read(folder / "imported.parquet")


WAYS: dict[str, Callable[[Path, list[dict[str, Any]]], TraceSet]] = {
    "a file": lambda folder, table: suffice.read(parquet(folder / "t.parquet", table)),
    "rows in another order": lambda f, table: suffice.read(parquet(f / "t.parquet", table[::-1])),
    "two files": lambda folder, table: suffice.read(two_files(folder, table)),
    "lazily": lambda folder, table: lazily(parquet(folder / "t.parquet", table)),
    "lazily, two files": lambda folder, table: lazily(two_files(folder, table)),
    "lazily, in another order": lambda f, table: lazily(parquet(f / "t.parquet", table[::-1])),
    "lines": lambda folder, table: imported(folder, table, "log.jsonl"),
    "csv": lambda folder, table: imported(folder, table, "log.csv"),
}


@pytest.mark.parametrize("variant", GOLD)
@pytest.mark.parametrize("way", WAYS)
def test_gold_answers_of_any_row_are_the_question_s(tmp_path: Path, way: str, variant: str) -> None:
    table = rows(gold_answers=lambda n, at: GOLD[variant]([f"Town {n}", f"City {n}"], at))
    result = suffice.replay(WAYS[way](tmp_path, table), "fixed-2", baseline="fixed-1", metric="em")
    assert [policy.em for policy in result.policies] == [1.0, 0.0]
    assert result.labelled == QUESTIONS


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("gold_answers", (["Oslo"], ["Rome"])),
        ("gold_answers", (["Oslo"], ["Oslo", "Rome"])),
        ("gold_passage_ids", (["p1"], ["p2"])),
        ("question", ("Which is town 3?", "Which one?")),
        ("question_type", ("bridge", "7")),
        ("split", ("tune", "eval")),
        ("split", ("tune", None)),
        ("group", ("a", "b")),
        ("propensity", (0.5, 0.25)),
        ("propensity", (0.5, None)),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_rows_that_contradict_are_refused(
    tmp_path: Path, way: str, column: str, values: tuple[Any, Any]
) -> None:
    usual = {"question": "Which is town 3?"}.get(column, values[0])
    at_odds = {(3, 1): values[0], (3, 2): values[0], (3, 3): values[1]}
    table = rows(**{column: lambda number, at: at_odds.get((number, at), usual)})
    if column == "question":
        table = [row if row["question_id"] == "q03" else row | {"question": "x"} for row in table]
    if None in values and way in ("lines", "csv"):  # there an empty cell says nothing
        return
    with pytest.raises(DataError) as caught:
        WAYS[way](tmp_path, table).first_rounds(column)
    error = caught.value
    assert (error.column, "q03" in error.message) == (column, True)
    assert error.file is not None
    found = Path(error.file)
    assert isinstance(error.row, int)
    if found.suffix == ".parquet":
        row = pq.read_table(found).to_pylist()[error.row]
        assert (row["question_id"], row[column] in values) == ("q03", True)
    for value in values:
        assert str(value) in error.message


@pytest.mark.parametrize("lazily_above", [0, 1 << 30])
def test_a_question_that_contradicts_itself_is_skipped(tmp_path: Path, lazily_above: int) -> None:
    file = parquet(
        tmp_path / "t.parquet", rows(gold_answers=lambda n, at: [str(at if n == 5 else 1)])
    )
    kept = read_traces(file, skip_invalid=True, lazily_above=lazily_above)
    assert (kept.n_questions, "q05" in kept.question_ids) == (QUESTIONS - 1, False)
    assert [(e.row, e.column) for e in inspect_traces(file).errors] == [(16, "gold_answers")]


@pytest.mark.parametrize("read", [suffice.read, lazily])
def test_what_round_0_alone_states_is_the_question_s(tmp_path: Path, read: Any) -> None:
    table = rows(gold_answers=lambda n, at: [f"Town {n}"] if at == 1 else None)
    for row in table:
        row["round"] -= 1
    del table[-ROUNDS]  # one question has no round 0, so that they do not look like the first round
    traces = read(parquet(tmp_path / "t.parquet", table))
    assert [gold.answers for gold in traces.gold[:2]] == [("Town 0",), ("Town 1",)]
    table[0]["gold_answers"], table[1]["gold_answers"] = ["Oslo"], ["Rome"]
    with pytest.raises(DataError, match=r"Oslo.*Rome"):
        read(parquet(tmp_path / "t.parquet", table))


def test_a_shorter_copy_keeps_what_a_later_row_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_traces, "__kwdefaults__", KEYWORDS | {"lazily_above": 0})
    table = rows(gold_answers=lambda n, at: GOLD["last"]([f"Town {n}"], at))
    file, out = parquet(tmp_path / "t.parquet", table), tmp_path / "short.parquet"
    suffice.traces.filter(file, out, TraceFilter(max_rounds=2))
    assert suffice.read(out).gold == lazily(file).gold
    other = tmp_path / "u.parquet"
    parquet(other, [row | {"question_id": f"u{row['question_id']}"} for row in table])
    assert suffice.read(file, other).gold == lazily(file).gold + lazily(other).gold


def test_a_large_record_without_gold_in_the_first_row_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suffice.measures.shards.SHARD_ROWS", 30)
    table = rows(gold_answers=lambda n, at: GOLD["last"]([f"Town {n}"], at))
    traces = lazily(parquet(tmp_path / "t.parquet", table))
    assert suffice.replay(traces, "fixed-2", baseline="fixed-2", metric="em").policies[0].em == 1.0


def test_the_gold_of_a_row_that_repeats_a_round_is_kept(tmp_path: Path) -> None:
    table = rows(gold_answers=lambda n, at: [f"Town {n}"] if at == 1 else None)
    again = [row | {"gold_answers": None} for row in table]
    file = tmp_path / "log.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in [*table, *again]))
    out = tmp_path / "t.parquet"
    suffice.traces.import_(file, out, format="columns", duplicates="last")
    assert suffice.read(out).gold[7].answers == ("Town 7",)


def test_rows_and_frames_are_refused_by_name(tmp_path: Path) -> None:
    frame = pa.Table.from_pylist(rows())
    for handed in (rows(), frame):
        with pytest.raises(UsageError, match="suffice traces import"):
            suffice.write(handed, tmp_path / "t.parquet")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=type(handed).__name__):
            suffice.read(handed)  # type: ignore[arg-type]
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("stated", [1, 3])
def test_a_label_beside_the_record_meets_what_any_row_states(tmp_path: Path, stated: int) -> None:
    (tmp_path / "r").mkdir()
    table = rows(gold_answers=lambda n, at: [f"Town {n}"] if at == stated else None)
    parquet(tmp_path / "r" / "t.parquet", table)
    labels = tmp_path / "r" / "labels.jsonl"
    labels.write_text(json.dumps({"question_id": "q01", "gold_answers": ["Town 1"]}))
    assert suffice.read(tmp_path / "r").gold[1].answers == ("Town 1",)
    labels.write_text(json.dumps({"question_id": "q01", "gold_answers": ["Rome"]}))
    with pytest.raises(DataError, match=r"Town 1.*Rome"):
        suffice.read(tmp_path / "r")

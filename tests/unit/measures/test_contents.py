"""What a record holds is counted and named."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders import keep

from suffice.measures.contents import traces_info
from suffice.results.table import Column, Table
from suffice.testing.traces import make_record
from suffice.trace.rounds.records import Round
from suffice.trace.rounds.writer import question_writer, write_traces


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two models in two parts; one question is labelled and has a split."""
    root = tmp_path / "my record"
    with question_writer(root, run={"model": "small", "rounds": 3}) as writer:
        named = make_record(
            "a",
            ["Rome", "Oslo", "Oslo"],
            gold=["Oslo"],
            split="eval",
            closed_book=Round(answer="x"),
        )
        keep(writer, [named])
        writer.fail(("z",), "no reply")
    write_traces(
        [make_record("b", ["Rome", "Rome"], margins=[0.5, 0.5])], root, run={"model": "big"}
    )
    file = root / "part-00000.parquet"
    table = pq.read_table(file).append_column("mine", pa.array([1, 2]))
    pq.write_table(table, file)
    return root


def test_a_record_is_counted(folder: Path) -> None:
    contents = traces_info(folder)
    assert (contents.files, contents.questions, contents.rounds, contents.max_rounds) == (
        2,
        2,
        5,
        3,
    )
    assert (contents.labelled, contents.closed_book, contents.failures) == (1, 1, 1)
    assert contents.ending == {2: 1, 3: 1}
    groups = {
        (g["what"], g["name"]): (g["questions"], g["labelled"], g["rounds"])
        for g in contents.groups
    }
    assert groups == {
        ("split", "eval"): (1, 1, 3),
        ("split", None): (1, 0, 2),
        ("model", "small"): (1, 1, 3),
        ("model", "big"): (1, 0, 2),
    }
    columns = {column["name"]: column for column in contents.columns}
    assert (columns["tokens"]["known"], columns["mine"]["known"]) == (True, False)
    assert [columns[name]["empty"] for name in ("tokens", "mine")] == pytest.approx([4 / 6, 4 / 6])
    assert contents.run == {}


def test_signals_are_given_or_lacking_with_the_reason(folder: Path) -> None:
    contents = traces_info(folder)
    signals = {signal["name"]: signal for signal in contents.signals}
    stable = signals["answer_stable"]
    assert [stable[key] for key in ("stored", "undefined", "undefined_after_1")] == [
        False,
        0.4,
        0.0,
    ]
    assert signals["answer_token_margin"]["undefined"] == pytest.approx(3 / 5)
    assert contents.lacking["self_consistency"] == "the trace has no samples"
    undefined = {name for name, why in contents.lacking.items() if "every round" in why}
    assert undefined
    assert not undefined & set(signals)
    text = " ".join(contents.text().split())
    for said in ("my record", "eval", "big", "answer_stable", "the trace has no samples"):
        assert said in text


def test_columns_that_hold_nothing_are_named_below_the_others(tmp_path: Path) -> None:
    write_traces([make_record("a", ["Rome", "Rome"], gold=[])], tmp_path / "bare")
    contents = traces_info(tmp_path / "bare")
    empty = {column["name"]: column["empty"] for column in contents.columns}
    assert (empty["gold_answers"], empty["answer"]) == (1.0, 0.0)
    (table,) = [table for table in contents.tables() if table.name == "columns"]
    assert "gold_answers" not in [row[0] for row in table.rows]
    assert any("gold_answers" in note for note in table.notes)


def test_a_table_without_rows_is_its_title_and_notes() -> None:
    table = Table(name="t", title="Tests", columns=(Column(name="kind"),), notes=("none yet",))
    assert table.text() == "Tests\n\nnone yet"

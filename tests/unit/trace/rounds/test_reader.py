"""Bad input is named by file, row and column; good input is read whatever wrote it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice.errors import DataError, SufficeWarning
from suffice.testing.traces import make_record
from suffice.trace.rounds.reader import inspect_traces, read_traces
from suffice.trace.rounds.schema import SCHEMA, SCHEMA_KEY
from suffice.trace.rounds.writer import write_traces

ROWS: dict[str, list[Any]] = {
    "question_id": ["a", "a", "b", "b"],
    "round": [1, 2, 1, 2],
    "question": ["A?", "A?", "B?", "B?"],
    "answer": ["Oslo", "Oslo", "Rome", ""],
}


def write(
    file: Path,
    *,
    metadata: dict[bytes, bytes] | None = None,
    without: str | None = None,
    **columns: Any,
) -> Path:
    """The four rows above with these columns, lists or Arrow arrays, changed or added."""
    arrays: dict[str, Any] = {**ROWS, **columns}
    arrays.pop(without or "", None)
    typed = {
        name: values
        if isinstance(values, pa.Array)
        else pa.array(values, SCHEMA.field(name).type if name in SCHEMA.names else None)
        for name, values in arrays.items()
    }
    table = pa.table(typed)
    stated = {SCHEMA_KEY: b"1"} if metadata is None else metadata
    pq.write_table(table.replace_schema_metadata(stated), file)
    return file


def refused(path: Path) -> DataError:
    with pytest.raises(DataError) as caught:
        read_traces(path)
    error = caught.value
    assert str(path.name) in str(error)
    return error


def tokens(logprob: float | None, top: float | None = -0.1) -> list[Any]:
    return [{"token": " Oslo", "logprob": logprob, "top": [{"token": " Oslo", "logprob": top}]}]


@pytest.mark.parametrize(
    ("columns", "row", "column"),
    [
        ({"round": [1, 1, 1, 2]}, 1, "round"),
        ({"question_id": ["a", "a", "a", "a"]}, 2, "round"),
        ({"round": [1, 3, 1, 2]}, 1, "round"),
        ({"round": [1, 2, 2, 3]}, 2, "round"),
        ({"round": [1, 2, 0, 2]}, 3, "round"),
        ({"question_id": ["a", "a", "b", "c"], "round": [1, 2, 1, 0]}, 3, "round"),
        ({"question_id": ["a", "a", None, "b"]}, 2, "question_id"),
        ({"round": [1, None, 1, 2]}, 1, "round"),
        ({"question": ["A?", "A?", "B?", None]}, 3, "question"),
        ({"split": ["tune", "eval", "eval", "eval"]}, 1, "split"),
        ({"split": ["eval", "eval", "eval", None]}, 3, "split"),
        ({"llm_calls": [1, 1, -1, 1]}, 2, "llm_calls"),
        ({"judge_prompt_tokens": [1, -7, 1, 1]}, 1, "judge_prompt_tokens"),
        ({"latency_s": [0.5, -0.5, 1.0, 1.0]}, 1, "latency_s"),
        ({"tokens": [None, tokens(float("nan")), None, None]}, 1, "tokens.logprob"),
        ({"tokens": [None, [], tokens(float("inf")), None]}, 2, "tokens.logprob"),
        ({"tokens": [None, None, None, tokens(None)]}, 3, "tokens.logprob"),
        ({"tokens": [None, tokens(0.001), None, None]}, 1, "tokens.logprob"),
        ({"tokens": [tokens(-1), tokens(-1, 0.001)] * 2}, 1, "tokens.top.logprob"),
        ({"tokens": [tokens(-1), tokens(-1, float("nan"))] * 2}, 1, "tokens.top.logprob"),
        ({"tokens": [[], None, tokens(-1), tokens(-1, float("inf"))]}, 3, "tokens.top.logprob"),
        ({"answer_starts": [0, None, -3, 1]}, 2, "answer_starts"),
        ({"passages": [[], None, [], [{"id": "1"}, None]]}, 3, "passages"),
        ({"tokens": [None, [None], None, None]}, 1, "tokens.logprob"),
        *(
            (
                {"samples": [["x", "y"]] * 4, "sample_clusters": [[0, 0], None, [0, 1], bad]},
                3,
                "sample_clusters",
            )
            for bad in ([0], [1, 1])
        ),
    ],
)
def test_a_bad_value_is_named(
    tmp_path: Path, columns: dict[str, Any], row: int, column: str
) -> None:
    error = refused(write(tmp_path / "bad.parquet", **columns))
    assert (error.row, error.column) == (row, column)
    assert f"row {row}, column {column}" in str(error)


def test_a_bad_value_is_named_when_its_column_is_read(tmp_path: Path) -> None:
    file = write(tmp_path / "bad.parquet", tokens=[None, None, None, tokens(0.001)])
    with pytest.raises(DataError) as caught:
        read_traces(file, lazily_above=0).table.column("tokens")
    error = caught.value
    assert (error.file, error.row, error.column) == (str(file), 3, "tokens.logprob")


@pytest.mark.parametrize(
    ("name", "values", "row"),
    [
        ("answer", pa.array([1, 2, 3, 4]), None),
        ("round", pa.array(["1", "2", "1", "2"]), None),
        ("round", pa.array([1.0, 2.0, 1.5, 2.0]), 2),
        ("round", pa.array([1, 2, 1, 70_000]), 3),
        ("round", pa.array([True, False, True, False]), None),
        ("prompt_tokens", pa.array([1, 2, 3, 4], pa.timestamp("us")), None),
        ("prompt_tokens", pa.array([1.0, float("nan"), 1.0, 1.0]), 1),
        ("latency_s", pa.array([1.0, 1.0, 1e300, 1.0]), 2),
        ("samples", pa.array([[1], [2], [3], [4]]), None),
        ("passages", pa.array([["x"]] * 4), None),
        ("passages", pa.array([[{"page": "x"}]] * 4), None),
        ("tokens", pa.array([[{"token": "x", "logprob": "y"}]] * 4), None),
        ("signals", pa.array([{"a": "text"}] * 4), 0),
        ("signals", pa.array([[], [], [{"key": None, "value": 1.0}], []]), 2),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else str(value),
)
def test_a_wrong_type_is_named(
    tmp_path: Path, name: str, values: pa.Array, row: int | None
) -> None:
    error = refused(write(tmp_path / "bad.parquet", **{name: values}))
    assert (error.row, error.column) == (row, name)
    assert "the schema wants" in error.message


def test_a_missing_required_column_is_named_with_what_may_be_it(tmp_path: Path) -> None:
    file = write(tmp_path / "bad.parquet", without="answer", Answer=["x"] * 4)
    assert re.search("'answer' is missing; found .*; was 'Answer' meant", refused(file).message)


def test_a_column_that_appears_twice_is_named(tmp_path: Path) -> None:
    names = [*ROWS, "answer"]
    arrays = [pa.array(ROWS[name], SCHEMA.field(name).type) for name in names]
    pq.write_table(pa.Table.from_arrays(arrays, names=names), tmp_path / "bad.parquet")
    with pytest.warns(SufficeWarning), pytest.raises(DataError, match=r"column answer: .*twice"):
        read_traces(tmp_path / "bad.parquet")


def test_minus_infinity_is_a_log_probability(tmp_path: Path) -> None:
    rows = [tokens(-float("inf"), -float("inf"))] * 4
    first = next(iter(read_traces(write(tmp_path / "good.parquet", tokens=rows)).records()))
    assert first.rounds[0].tokens is not None
    assert first.rounds[0].tokens[0].logprob == -float("inf")


# --- files that are no trace files -----------------------------------------------------------
@pytest.mark.parametrize("share", [0.0, 0.0005, 0.01, 0.5, 0.99, 0.9999])
def test_a_truncated_file_is_named(tmp_path: Path, share: float) -> None:
    file = write(tmp_path / "cut.parquet")
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    refused(file)


@pytest.mark.parametrize(
    "content", [b"PAR1", b"question_id,round\na,1\n", b"PAR1" + b"\0" * 50 + b"PAR1"]
)
def test_a_file_that_is_not_parquet_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "table.parquet"
    file.write_bytes(content)
    refused(file)
    assert "--policy" in refused(file.rename(tmp_path / "policy.json")).message


def test_text_that_is_not_unicode_is_named(tmp_path: Path) -> None:
    bad = pa.Array.from_buffers(
        pa.string(),
        4,
        [None, pa.array([0, 1, 2, 3, 4], pa.int32()).buffers()[1], pa.py_buffer(b"ab\xffd")],
    )
    error = refused(write(tmp_path / "bad.parquet", answer=bad))
    assert (error.row, error.column) == (2, "answer")


def test_missing_and_empty_places_are_refused(tmp_path: Path) -> None:
    refused(tmp_path / "nothing.parquet")
    refused(tmp_path)
    no_rows: dict[str, Any] = {name: [] for name in ROWS}
    refused(write(tmp_path / "empty.parquet", **no_rows))


# --- the schema's number ----------------------------------------------------------------------
@pytest.mark.parametrize("stated", ["3", "one", "1.0", "0", "-3", ""])
def test_a_schema_that_is_newer_or_no_version_is_refused(tmp_path: Path, stated: str) -> None:
    metadata = {SCHEMA_KEY: stated.encode()}
    error = refused(write(tmp_path / "odd.parquet", metadata=metadata))
    assert ("upgrade" if stated == "3" else "version number") in error.message


def test_a_missing_schema_reads_as_version_1_with_a_warning(tmp_path: Path) -> None:
    file = write(tmp_path / "plain.parquet", metadata={})
    with pytest.warns(SufficeWarning, match=r"plain\.parquet does not state suffice\.schema"):
        assert read_traces(file).n_questions == 2


# --- sets of files ----------------------------------------------------------------------------
def test_rows_in_any_order_and_in_several_files(tmp_path: Path) -> None:
    same = ["Where?"] * 4
    ids = ["b", "a", "b", "a"]
    write(tmp_path / "1.parquet", question_id=ids, round=[2, 2, 1, 1], question=same)
    ids = ["d", "0", "d", "c"]
    write(tmp_path / "2.parquet", question_id=ids, round=[1, 1, 2, 1], question=same)
    (tmp_path / "notes.txt").write_text("not read")
    (tmp_path / ".hidden.parquet").write_bytes(b"not read")
    traces = read_traces(tmp_path)
    assert traces.question_ids == ("0", "a", "b", "c", "d")
    assert traces.last_rounds.tolist() == [1, 2, 2, 1, 2]
    (b,) = traces.only_questions(["b"]).records()
    assert [r.answer for r in b.rounds] == ["Rome", "Oslo"]


def test_two_files_with_the_same_question_name_the_second(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet")
    write(tmp_path / "2.parquet", question_id=["c", "c", "b", "b"])
    with pytest.raises(DataError) as caught:
        read_traces(tmp_path)
    assert caught.value.file == str(tmp_path / "2.parquet")
    assert (caught.value.row, caught.value.column) == (2, "round")


def test_files_with_different_columns_are_one_set(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", llm_calls=[1, 1, 1, 1])
    write(tmp_path / "2.parquet", question_id=["c", "c", "d", "d"], split=["eval"] * 4)
    traces = read_traces(tmp_path)
    calls = traces.column("llm_calls")
    assert calls is not None
    assert calls.tolist()[0] == [1.0, 1.0]
    assert [q.split for q in traces.questions] == [None, None, "eval", "eval"]


def test_closed_book_rows_are_kept_apart(tmp_path: Path) -> None:
    traces = read_traces(write(tmp_path / "t.parquet", round=[0, 1, 1, 2]))
    a, b = traces.records()
    assert a.closed_book is not None
    assert (a.closed_book.answer, len(a.rounds)) == ("Oslo", 1)
    assert (b.closed_book, traces.n_rounds) == (None, 2)


def test_unknown_columns_are_left_out_or_kept_and_may_differ_between_files(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", mine=pa.array([1, 2, 3, 4], pa.int32()))
    second = tmp_path / "2.parquet"
    write(second, question_id=["c", "c", "d", "d"], mine=pa.array([5, 6, 7, 8], pa.int64()))
    assert read_traces(tmp_path).column("mine") is not None  # a number may be a score
    write(tmp_path / "3.parquet", question_id=["e", "e", "f", "f"], named=["x"] * 4)
    assert "named" not in read_traces(tmp_path).table.column_names
    (tmp_path / "3.parquet").unlink()
    kept = read_traces(tmp_path, keep_unknown=True).table.column("mine")
    assert kept.to_pylist() == [1, 2, 3, 4, 5, 6, 7, 8]
    write(second, question_id=["c", "c", "d", "d"], mine=pa.array(["x"] * 4))
    assert read_traces(tmp_path).n_questions == 4
    with pytest.raises(DataError, match="disagree on a column"):
        read_traces(tmp_path, keep_unknown=True)


def test_empty_gold_answers_are_dropped(tmp_path: Path) -> None:
    gold: list[Any] = [["Oslo", ""], ["Oslo", ""], [""], None]
    traces = read_traces(write(tmp_path / "t.parquet", gold_answers=gold))
    assert [gold.answers for gold in traces.gold] == [("Oslo",), ()]


# --- read, perhaps not as it was meant --------------------------------------------------------------
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"gold_answer": [["x"]] * 4}, "'gold_answer'.*'gold_answers'"),
        ({"splt": ["tune"] * 4}, "'splt'.*'split'"),
        ({"round": [0, 1, 0, 1], "query": ["who"] * 4}, "2 of 2 questions.*retrieved something"),
        ({"round": [0, 1, 0, 1]}, "count from 0"),
    ],
)
def test_what_was_likely_meant_otherwise_is_said(
    tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    file = write(tmp_path / "t.parquet", **columns)
    with pytest.warns(SufficeWarning, match=message):
        read_traces(file)
    (remark,) = inspect_traces(file).remarks
    assert re.search(message, remark)


def test_what_is_plain_is_not_remarked_on(tmp_path: Path) -> None:
    own = {"mine": [1] * 4, "question_text": ["A?"] * 4, "Split": ["x"] * 4, "split": ["tune"] * 4}
    closed_book: dict[str, Any] = {"round": [0, 1, 0, 1]}
    for columns in (own, {**closed_book, "passages": [None, [{"id": "p"}]] * 2}):
        assert inspect_traces(write(tmp_path / "t.parquet", **columns)).remarks == ()


# --- going on without the invalid ---------------------------------------------------------------
def test_skip_invalid_keeps_the_rest_and_counts(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", round=[1, 3, 1, 2])
    write(tmp_path / "2.parquet", question_id=["c", "c", "d", "d"], llm_calls=[1, 1, -1, -1])
    (tmp_path / "3.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(DataError, match=r"\(3 more\).*--skip-invalid"):
        read_traces(tmp_path)
    traces = read_traces(tmp_path, skip_invalid=True)
    assert traces.question_ids == ("b", "c")
    places = {(Path(e.file or "").name, e.row, e.column) for e in traces.origin.skipped}
    assert places == {
        ("1.parquet", 1, "round"),
        ("2.parquet", 2, "llm_calls"),
        ("2.parquet", 3, "llm_calls"),
        ("3.parquet", None, None),
    }


def test_inspection_lists_everything(tmp_path: Path) -> None:
    file = write(tmp_path / "t.parquet", round=[1, 1, 1, 2], question=["x", "x", None, "z"])
    inspection = inspect_traces(file)
    assert [(e.row, e.column) for e in inspection.errors] == [(2, "question"), (1, "round")]
    assert inspection.traces.n_questions == 0
    with pytest.raises(DataError, match="nothing valid"):
        read_traces(file, skip_invalid=True)


def test_failures_beside_the_shards_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet")
    (tmp_path / "failures.jsonl").write_bytes(b'{"question_id": "x"}\n\n\xff\xfe broken\n')
    assert read_traces(tmp_path).origin.failures == 2


def test_the_run_document_comes_with_the_set(tmp_path: Path) -> None:
    write_traces([make_record("q", ["Oslo"])], tmp_path / "t.parquet", run={"model": "m", "n": 3})
    assert read_traces(tmp_path / "t.parquet").origin.run == {"model": "m", "n": 3}
    write(tmp_path / "odd.parquet", metadata={SCHEMA_KEY: b"1", b"suffice.run": b"{broken"})
    with pytest.raises(DataError, match=r"suffice\.run"):
        read_traces(tmp_path / "odd.parquet")

"""Any Arrow type that converts without loss is read, whoever wrote it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice.errors import SufficeWarning
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.schema import SCHEMA, SCHEMA_KEY
from suffice.trace.stored_file import coerce_table

TOKEN = {"token": " Oslo", "logprob": -0.5, "top": [{"token": " Oslo", "logprob": -0.5}]}
PASSAGE = {"id": "p", "title": "T", "text": "x", "score": 1.5, "rerank_score": None}


def coerced(name: str, values: pa.Array) -> list[Any]:
    """A column through the conversion, checked to be valid and of the schema's type."""
    count = len(values)
    rows = {"question_id": [str(n) for n in range(count)], "round": [1] * count}
    texts = {"question": [""] * count, "answer": [""] * count}
    column = coerce_table(pa.table({**rows, **texts, name: values}), "file").column(name)
    column.validate(full=True)
    assert column.type == SCHEMA.field(name).type
    result: list[Any] = column.to_pylist()
    return result


TEXT = ["a", None, "a", ""]
LISTS = [["a", "b"], None, [], ["c"]]
COUNTS = [3, None, 7]


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("query", TEXT, pa.large_string()),
        ("query", TEXT, pa.string_view()),
        ("query", TEXT, pa.dictionary(pa.int32(), pa.large_string())),
        ("samples", LISTS, pa.large_list(pa.large_string())),
        ("samples", LISTS, pa.list_(pa.dictionary(pa.int16(), pa.string()))),
        ("samples", LISTS, pa.list_view(pa.string())),
        ("samples", LISTS, pa.large_list_view(pa.string())),
        ("samples", [["a", "b"], None, ["c", "d"]], pa.list_(pa.string(), 2)),
        ("llm_calls", COUNTS, pa.int64()),
        ("llm_calls", COUNTS, pa.uint64()),
        ("llm_calls", COUNTS, pa.float64()),
        ("llm_calls", COUNTS, pa.decimal128(6, 2)),
        ("verbalized_confidence", COUNTS, pa.float16()),
        ("verbalized_confidence", COUNTS, pa.int64()),
    ],
)
def test_types_of_other_writers(name: str, values: list[Any], kind: pa.DataType) -> None:
    held = [values[0], *values]
    of_numbers = values is COUNTS  # which Arrow gives no other way
    array = pa.array(held, pa.float64()).cast(kind) if of_numbers else pa.array(held, kind)
    assert coerced(name, array) == [values[0], *values]
    assert coerced(name, array[1:]) == values


# --- structs ------------------------------------------------------------------------------------
def test_struct_fields_missing_in_other_order_and_extra() -> None:
    kind = pa.list_(pa.struct([("url", pa.string()), ("text", pa.string()), ("id", pa.string())]))
    values = [[{"url": "u", "text": "x", "id": "p"}], None]
    found = coerced("passages", pa.array(values, kind))
    assert found == [[{**PASSAGE, "title": None, "score": None}], None]
    skipped = pa.array([[{"id": "skipped"}, {"id": "too"}], *values], kind)
    assert coerced("passages", skipped[1:]) == found


# --- the signals map ------------------------------------------------------------------------------
MAP_VALUES: list[Any] = [[("b", 2.0), ("a", None)], None, [], [("a", 1.0)]]


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.float64()),
        pa.map_(pa.large_string(), pa.float32()),
        pa.map_(pa.dictionary(pa.int32(), pa.string()), pa.int64()),
    ],
    ids=str,
)
def test_maps(kind: pa.DataType) -> None:
    assert coerced("signals", pa.array(MAP_VALUES, kind)) == MAP_VALUES
    assert coerced("signals", pa.array([[("z", 9)], *MAP_VALUES], kind)[1:]) == MAP_VALUES


def test_a_key_given_twice_means_the_same_live_and_in_replay(tmp_path: Path) -> None:
    row = {"question_id": "q", "round": 1, "question": "", "answer": ""}
    twice = {**row, "signals": [("x", 1.0), ("x", 2.0)]}
    traces = read_traces(written([twice], tmp_path))
    assert traces.stored_signal("x")[0].tolist() == [[2.0]]
    assert next(iter(traces.records())).rounds[0].signals == {"x": 2.0}


# --- files of other libraries ---------------------------------------------------------------------
ROWS: list[dict[str, Any]] = [
    {
        "question_id": question,
        "round": number,
        "question": f"{question}?",
        "gold_answers": ["Oslo"],
        "answer": answer,
        "split": "eval",
        "samples": [answer, "x"],
        "llm_calls": 3,
        "verbalized_confidence": 4.0,
        "candidate_scores": [2.5, 1.25],
        "passages": [{"id": f"{question}{number}", "title": "T", "text": "x", "score": 1.5}],
        "tokens": [TOKEN],
        "signals": {"judge_support": 0.5 * number, "mine": 1.0},
    }
    for question in ("a", "b")
    for number, answer in ((1, "Oslo"), (2, "Rome"))
]


def written(rows: list[dict[str, Any]], folder: Path) -> Path:
    schema = pa.schema([SCHEMA.field(name) for name in SCHEMA.names if name in rows[0]])
    table = pa.Table.from_pylist(rows, schema).replace_schema_metadata({SCHEMA_KEY: b"1"})
    pq.write_table(table, folder / "ours.parquet")
    return folder / "ours.parquet"


def same(file: Path) -> None:
    ours = [{**row, "signals": sorted(row["signals"].items())} for row in ROWS]
    expected = read_traces(written(ours, file.parent))
    with pytest.warns(SufficeWarning, match=r"does not state suffice\.schema"):
        found = read_traces(file)
    assert list(found.records()) == list(expected.records())
    for name in ("judge_support", "mine"):
        assert found.stored_signal(name)[0].tolist() == expected.stored_signal(name)[0].tolist()


@pytest.mark.parametrize("signals", ["struct", "pairs"])
def test_a_file_written_by_polars(tmp_path: Path, signals: str) -> None:
    pl = pytest.importorskip("polars")
    rows = ROWS
    if signals == "pairs":
        pairs = [[{"key": k, "value": v} for k, v in row["signals"].items()] for row in ROWS]
        rows = [{**row, "signals": held} for row, held in zip(ROWS, pairs, strict=True)]
    shuffled = pl.DataFrame(rows).sample(fraction=1.0, shuffle=True, seed=3)
    shuffled.write_parquet(tmp_path / "t.parquet")
    same(tmp_path / "t.parquet")


def test_a_file_written_by_pandas(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(ROWS).sample(frac=1.0, random_state=5)
    frame["split"] = frame["split"].astype("category")
    frame["llm_calls"] = frame["llm_calls"].astype("float64")
    frame.to_parquet(tmp_path / "t.parquet")
    same(tmp_path / "t.parquet")
    frame["prompt_tokens"] = math.nan  # a missing value of pandas
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.warns(SufficeWarning):
        first = next(iter(read_traces(tmp_path / "t.parquet").records()))
    assert [each.usage.prompt_tokens for each in first.rounds] == [None, None]

"""A name that stands twice in one JSON object is refused wherever somebody's JSON is read."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import suffice
from suffice.contracts import strict_json
from suffice.datasets.runs import loaded
from suffice.errors import DataError
from suffice.retrieval.corpus import read_corpus
from suffice.testing.traces import make_record


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '[{"b": {"a": 1, "c": 2, "a": 3}}]'])
def test_a_name_that_stands_twice_is_named(text: str) -> None:
    with pytest.raises(DataError, match="'a'"):
        strict_json(text)


def test_all_else_reads_as_json_does() -> None:
    text = '{"a": [1, {"a": null}], "b": {"a": "é"}}'
    assert strict_json(text) == json.loads(text)


def test_many_names_are_looked_through_once() -> None:
    names = [f'"{number}": 1' for number in range(200_000)]
    with pytest.raises(DataError, match="'199999'"):
        strict_json("{" + ", ".join([*names, names[-1]]) + "}")


def test_labels_beside_a_record(tmp_path: Path) -> None:
    suffice.write([make_record("a", ["Oslo"])], tmp_path / "rec")
    labels = tmp_path / "rec" / "labels.jsonl"
    labels.write_text('{"question_id": "a", "gold_answers": ["Oslo"], "gold_answers": ["Rome"]}')
    with pytest.raises(DataError, match="gold_answers") as caught:
        suffice.read(tmp_path / "rec")
    assert (caught.value.file, caught.value.row) == (str(labels), 0)


def test_a_policy(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text('{"suffice_policy": 1, "kind": "fixed", "kind": "tasr"}')
    with pytest.raises(DataError, match="'kind'"):
        suffice.load_policy(file)


def test_a_corpus(tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text('{"id": "a", "text": "one"}\n{"id": "b", "text": "two", "text": "three"}\n')
    with pytest.raises(DataError, match="'text'") as caught:
        read_corpus(file)
    assert caught.value.row == 1


def test_a_run_document(tmp_path: Path) -> None:
    file = tmp_path / "rec.parquet"
    suffice.write([make_record("a", ["Oslo"])], file)
    table = pq.read_table(file)
    twice = {**table.schema.metadata, b"suffice.run": b'{"model": "a", "model": "b"}'}
    pq.write_table(table.replace_schema_metadata(twice), file)
    with pytest.raises(DataError, match="'model'") as caught:
        suffice.read(file)
    assert (caught.value.file, caught.value.column) == (str(file), "suffice.run")


def test_what_an_imported_tool_said_stays_a_text() -> None:
    """A model's call with a name twice is kept as it was written, so that nothing is lost."""
    text = '{"query": "one", "query": "two"}'
    assert loaded(text) == text

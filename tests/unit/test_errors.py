"""What is told of a foreign error, and which name a slip was meant for."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import suffice
from suffice.contracts import Action, Decision, loaded, repaired_json, strict_json
from suffice.errors import (
    BackendError,
    DataError,
    UsageError,
    did_you_mean,
    first_line,
    keep_secret,
    near_misses,
    struck,
)
from suffice.retrieval.corpus import read_corpus
from suffice.testing.traces import make_record


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("cannot load\nTraceback: ...", "cannot load"),
        ("\n\n  too large \nmore", "too large"),
        ("", "KeyError"),
        (" \n\t", "KeyError"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_the_first_line_with_text(message: str, told: str) -> None:
    class KeyError(Exception):  # noqa: A001 - its name is told; Python's own quotes its text
        pass

    assert first_line(KeyError(message)) == told


@pytest.mark.parametrize(
    ("word", "meant"),
    [("splt", "split"), ("Gold-Answer", "gold_answers"), ("SPLIT", "split"), ("notes", None)],
)
def test_the_name_a_slip_was_meant_for(word: str, meant: str | None) -> None:
    near = near_misses(word, ["split", "gold_answers", "query"])
    assert near[:1] == ([] if meant is None else [meant])
    assert did_you_mean(word, ["split", "gold_answers"]) == (
        "" if meant is None else f"; did you mean {meant!r}?"
    )


@pytest.mark.parametrize(
    "told",
    [
        *("Authorization: Bearer {}", '{{"authorization": "Basic {}"}}', "api_key={}&x=1"),
        *("x-api-key: {}", "https://host/v1?key={}", "http://me:{}@host/v1", "used {} there"),
    ],
)
def test_keys_are_struck_from_every_error(told: str) -> None:
    keep_secret("in-use-0815")
    for key in ("in-use-0815", "sk-proj-abcdef0123456789", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.c2ln"):
        error = BackendError(told.format(key))
        assert key not in str(error)
        assert "[struck]" in first_line(error)
        assert struck(str(error)) == str(error)


def test_words_that_are_no_keys_stay() -> None:
    text = (
        "http://127.0.0.1:8000/v1: 401: the skeleton key of hf_data is a basic password; see tokens"
    )
    assert struck(text) == text


@pytest.mark.parametrize("text", ["eyJ", "sk-", "Bearer ", "://a:", "api_key = ", "key ", "a@"])
def test_striking_is_linear_work(text: str) -> None:
    started = time.process_time()
    struck(text * (100_000 // len(text)))
    assert time.process_time() - started < 5  # quadratic work takes minutes


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


@pytest.mark.parametrize("action", list(Action))
def test_a_decision_is_neither_true_nor_false(action: Action) -> None:
    decision = Decision(action=action, reason="", values={})
    with pytest.raises(UsageError, match=r"if controller\.observe\(\.\.\.\)\.stop:"):
        bool(decision)


@pytest.mark.parametrize("sign", ["{", "{,", "[{", "{1", '{"a": ['])
def test_a_repair_that_would_take_long_is_refused(sign: str) -> None:
    with pytest.raises(ValueError, match="too many to repair"):
        repaired_json(sign * 50 + "y" * 100_000)


def test_a_long_flat_text_is_repaired_whole() -> None:
    steps = [f"step {number}" for number in range(5_000)]
    assert repaired_json(f"{{'steps': {steps!r}, }}") == {"steps": steps}

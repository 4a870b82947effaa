"""Columns are measured once and kept beside a large record; other records and other code do not see them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.cli.main import main
from suffice.measures import measures, shards
from suffice.measures.measures import Measures
from suffice.measures.scores import (
    MeasuredColumn,
    MeasuredShard,
    ScoreColumn,
    SignalColumn,
    WorkColumn,
    measured_columns,
)
from suffice.testing.traces import sampled_records
from suffice.trace.rounds import reader
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.trace_set import TraceSet
from suffice.trace.rounds.writer import write_traces

RECORDS = sampled_records(30, rounds=3, splits=("tune", "eval"), seed=5)


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record that counts as large, in shards of a few questions."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(reader.read_traces, "__kwdefaults__", {**KEYWORDS, "lazily_above": 0})
    monkeypatch.setattr(shards.shards_of, "__defaults__", (40,))
    file = tmp_path / "t.parquet"
    write_traces(RECORDS, file)
    return file


KEYWORDS: dict[str, Any] = dict(reader.read_traces.__kwdefaults__ or {})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    work = MeasuredShard

    def watched(keys: Any, relabels: bool) -> Any:
        names.extend(map(str, keys))
        return work(keys, relabels)

    monkeypatch.setattr(measures, "MeasuredShard", watched)
    return names


def values(path: Path) -> dict[str, Any]:
    known = Measures(read_traces(path))
    names = ("answer_stable", "overlap", "self_consistency", "abstained")
    table, scores, retrieved = known.signals(names), known.scores(), known.retrieval()
    return {
        **{name: table.signal(name) for name in names},
        **{name: getattr(scores, name) for name in ("em", "f1", "acc", "labelled")},
        **{name: getattr(retrieved, name) for name in ("recall", "precision")},
        "units": known.units,
    }


def assert_alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert list(one) == list(other)
    for name, found in one.items():
        np.testing.assert_array_equal(found, other[name])


def test_nothing_is_measured_twice(record: Path, measured: list[str]) -> None:
    first = values(record)
    assert len(measured) > 8
    assert record.with_name("t.parquet.measures").is_dir()
    measured.clear()
    assert_alike(first, values(record))
    assert not measured


def test_a_split_leaves_the_others_to_be_measured(record: Path, measured: list[str]) -> None:
    part = Measures(read_traces(record)).only_split("tune").signals(["overlap"])
    measured.clear()
    whole = Measures(read_traces(record))
    table = whole.signals(["overlap"])
    assert len(measured) == 1
    tune = whole.traces.in_split("tune")
    np.testing.assert_array_equal(table.signal("overlap")[tune], part.signal("overlap"))
    assert not np.isnan(table.signal("overlap")[~tune]).all()


@pytest.mark.parametrize("change", ["record", "code", "damage"])
def test_what_is_kept_of_other_things_is_not_read(
    change: str, record: Path, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    values(record)
    measured.clear()
    folder = record.with_name("t.parquet.measures")
    before = {file.name for file in folder.iterdir()}
    if change == "record":
        write_traces(sampled_records(30, rounds=3, splits=("tune", "eval"), seed=6), record)
    elif change == "code":
        monkeypatch.setattr(shards, "code_stamp", lambda: "0.0.1 other")
    else:
        for file in folder.iterdir():
            file.write_bytes(file.read_bytes()[:-40])
    assert len(values(record)) > 8
    assert len(measured) > 8
    after = {file.name for file in folder.iterdir()}
    assert len(after) == len(before)  # older ones are replaced
    assert (after == before) is (change == "damage")


def test_own_phrases_of_abstention_are_measured_anew(record: Path, measured: list[str]) -> None:
    values(record)
    measured.clear()
    Measures(read_traces(record).with_abstention(["who knows"])).signals(["abstained"])
    assert measured


@pytest.mark.parametrize("place", ["cache", "nowhere"])
def test_where_nothing_can_be_written_the_cache_is(
    place: str, record: Path, tmp_path: Path, measured: list[str]
) -> None:
    record.with_name("t.parquet.measures").write_text("in the way")
    if place == "nowhere":
        (tmp_path / "cache").write_text("in the way")
    first = values(record)
    measured.clear()
    assert_alike(first, values(record))
    assert bool(measured) is (place == "nowhere")


QUESTIONS = 60


def test_a_report_computes_each_score_and_each_signal_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of sixty labelled questions with samples, of two types."""
    computed: Counter[tuple[Any, ...]] = Counter()

    def counted(traces: TraceSet, keys: Sequence[MeasuredColumn]) -> list[NDArray[np.float64]]:
        computed.update((key, question) for key in keys for question in traces.question_ids)
        return measured_columns(traces, keys)

    records = sampled_records(QUESTIONS, rounds=3, splits=("tune", "eval"), seed=3)
    traces = tmp_path / "made.parquet"
    write_traces(
        [
            replace(each, question=replace(each.question, type=("bridge", "comparison")[n % 3 > 0]))
            for n, each in enumerate(records)
        ],
        traces,
    )
    monkeypatch.setattr("suffice.measures.measures.measured_columns", counted)
    rules = ("answer_stable", "calibrated(self_consistency) > 0.5", "overlap > 0.1")
    policies = ("micp", "gate-corrected", "early-stop-corrected", "overlap-alone", "oracle-em")
    words = ["report", str(traces), "--out", str(tmp_path / "r.html"), "--bootstrap", "10"]
    words += [word for rule in rules for word in ("--stop-when", rule)]
    words += [word for policy in policies for word in ("--policy", policy)]
    assert main([*words, "--search", "answer_stable,normalized_entropy", "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["parts"]
    assert all(parts[name] for name in ("search", "diagnostics", "types", "selective"))
    again = [key for (key, _), count in computed.items() if count > 1]
    # sets ask by themselves
    assert again == [key for key in again if isinstance(key, WorkColumn) and not key.name]
    keys = Counter(key for key, _ in computed)
    scores = {key for key in keys if isinstance(key, ScoreColumn)}
    assert scores == {ScoreColumn("em"), ScoreColumn("f1"), ScoreColumn("acc")}
    of_signals = {key: count for key, count in keys.items() if isinstance(key, SignalColumn)}
    assert set(of_signals.values()) == {QUESTIONS}
    names = {key.spec.name for key in of_signals}
    assert {"answer_stable", "overlap", "normalized_entropy"} <= names

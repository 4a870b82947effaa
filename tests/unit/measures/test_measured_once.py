"""One report reads one trace set, and measures it once: counted."""

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
from suffice.measures.scores import (
    MeasuredColumn,
    ScoreColumn,
    SignalColumn,
    WorkColumn,
    measured_columns,
)
from suffice.testing.traces import sampled_records
from suffice.trace.rounds.trace_set import TraceSet
from suffice.trace.rounds.writer import write_traces

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

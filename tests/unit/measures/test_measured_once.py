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
from suffice.testing.traces import answer_tokens, sampled_records
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.table import TraceSet
from suffice.trace.rounds.writer import write_traces

QUESTIONS, ROUNDS = 60, 3


def recorded() -> list[QuestionRecord]:
    """Labelled questions with samples and tokens, of two types, in the splits tune and eval."""
    records = sampled_records(QUESTIONS, rounds=ROUNDS, splits=("tune", "eval"), seed=3)
    return [
        replace(
            record,
            question=replace(record.question, type=("bridge", "comparison")[number % 3 > 0]),
            rounds=tuple(
                replace(each, tokens=answer_tokens(each.answer_text, (number + t) % 5 / 2))
                for t, each in enumerate(record.rounds)
            ),
        )
        for number, record in enumerate(records)
    ]


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[Any, ...]]:
    """How often each column was measured for each question."""
    counts: Counter[tuple[Any, ...]] = Counter()

    def counted(traces: TraceSet, keys: Sequence[MeasuredColumn]) -> list[NDArray[np.float64]]:
        counts.update((key, question) for key in keys for question in traces.question_ids)
        return measured_columns(traces, keys)

    monkeypatch.setattr("suffice.measures.measures.measured_columns", counted)
    return counts


def test_a_report_computes_each_score_and_each_signal_once(
    computed: Counter[tuple[Any, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces, certified = tmp_path / "made.parquet", tmp_path / "certified.json"
    write_traces(recorded(), traces)
    fitting = ["fit", "certified", str(traces), "--out", str(certified), "--max-loss", "0.3"]
    assert main([*fitting, "--confidence", "0.5"]) == 0
    capsys.readouterr()
    computed.clear()
    rules = (
        "answer_stable",
        "calibrated(self_consistency) > 0.5",
        "overlap > 0.1 and not abstained",
    )
    policies = ("micp", "micp-corrected", "gate-corrected", "early-stop-corrected", "overlap-alone",
                str(certified), "oracle-em", "fixed-2")  # fmt: skip
    arguments = ["report", str(traces), "--out", str(tmp_path / "r.html"), "--bootstrap", "10"]
    arguments += [word for rule in rules for word in ("--stop-when", rule)]
    arguments += [word for policy in policies for word in ("--policy", policy)]
    search = ["--search", "answer_stable,calibrated(overlap),normalized_entropy", "--json"]
    assert main([*arguments, *search]) == 0
    parts = json.loads(capsys.readouterr().out)["parts"]
    assert parts["search"] is not None
    assert parts["diagnostics"] is not None
    assert parts["types"]
    assert parts["selective"]
    assert parts["guarantees"]
    again = [key for (key, _), count in computed.items() if count > 1]
    unnamed = [key for key in again if isinstance(key, WorkColumn) and not key.name]
    assert again == unnamed  # sets ask by themselves
    keys = Counter(key for key, _ in computed)
    assert {ScoreColumn("em"), ScoreColumn("f1"), ScoreColumn("acc")} == {
        key for key in keys if isinstance(key, ScoreColumn)
    }
    of_signals = {key: count for key, count in keys.items() if isinstance(key, SignalColumn)}
    assert set(of_signals.values()) == {QUESTIONS}
    names = {key.spec.name for key in of_signals}
    assert {"answer_stable", "overlap", "normalized_entropy"} <= names

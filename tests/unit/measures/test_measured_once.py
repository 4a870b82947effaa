"""One report reads one trace set, and measures it once: counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suffice.cli.main import main
from suffice.measures import measures as module
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
def computed(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, Any]]:
    """In how many rounds each score was taken and each signal computed."""
    counts: Counter[tuple[str, Any]] = Counter()

    def counting(name: str) -> None:
        compute = getattr(module, name)

        def counted(traces: TraceSet, columns: Sequence[Any], *how: Any, **more: Any) -> Any:
            counts.update({(name, column): traces.table.num_rows for column in columns})
            return compute(traces, columns, *how, **more)

        monkeypatch.setattr(module, name, counted)

    for name in ("score_rounds", "signal_columns"):
        counting(name)
    return counts


def test_a_report_computes_each_score_and_each_signal_once(
    computed: Counter[tuple[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
    assert set(computed.values()) == {QUESTIONS * ROUNDS}
    scores = {key for name, key in computed if name == "score_rounds"}
    assert scores == {"em", "f1", "acc"}
    signals = {spec.name for name, spec in computed if name == "signal_columns"}
    assert {"answer_stable", "overlap", "normalized_entropy"} <= signals


def test_a_replay_of_a_split_computes_nothing_for_others(
    computed: Counter[tuple[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = tmp_path / "made.parquet"
    write_traces(recorded(), traces)
    rule = ["--stop-when", "overlap > 0.1", "--bootstrap", "10", "--split", "eval"]
    assert main(["replay", str(traces), *rule]) == 0
    capsys.readouterr()
    assert {name for name, _ in computed} == {"score_rounds", "signal_columns"}
    assert set(computed.values()) == {QUESTIONS // 2 * ROUNDS}

"""``suffice record`` with loops that ask follow-up questions, and what a recording says it will take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands import run_json

from suffice.cli.main import main
from suffice.cli.shared_options import ModelOptions
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.trace_set import TraceSet

RECORD = ("record", "--dataset", "generated", "--llm", "scripted")


def recorded(out: Path, *arguments: str, limit: int = 3) -> TraceSet:
    assert main([*RECORD, "--limit", str(limit), "--out", str(out), *arguments]) == 0
    return read_traces(out)


@pytest.mark.parametrize(("name", "step"), [("iterative", 1), ("chain", 3)])
def test_what_a_recording_holds(name: str, step: int, tmp_path: Path) -> None:
    traces = recorded(tmp_path / "t", "--pipeline", name, "--llm-stop")
    assert set(traces.signal_names) == {"llm_stop", "malformed_actions"}
    run = traces.origin.run
    stated = {
        "pipeline": name,
        "rounds": 10,
        "step": step,
        "samples": 8,
        "temperature": 0.7,
        "top_p": 0.9,
        "verdicts": True,
        "prompt": "answer-first",
        "max_query_tokens": 48,
        "max_intermediate_tokens": 32,
        "max_verdict_tokens": 160,
    }
    assert {each: run[each] for each in stated} == stated
    for each in traces.records():
        assert len(each.rounds) == 10
        for finished in each.rounds:
            assert finished.query
            assert finished.intermediate_answer
            assert finished.action
            assert "Decision:" in finished.action
            assert len(finished.passages or ()) <= step
            assert len(finished.samples or ()) == 8
            assert finished.usage.sample_calls == 8
            assert finished.usage.judge_calls == 1
            assert (finished.usage.judge_prompt_tokens or 0) > 100
            assert (finished.usage.judge_completion_tokens or 0) > 0
    replayed = ("replay", tmp_path / "t", "--stop-when", "llm_stop", "--split", "eval")
    assert "prompt_tokens" in json.dumps(run_json(*replayed))


@pytest.mark.parametrize(
    ("arguments", "most"),
    [
        ((), 15),
        (("--samples", "2", "--judge", "--closed-book"), 63),
        (("--pipeline", "budgeted", "--encoder", "none"), 9),
        (("--pipeline", "budgeted", "--encoder", "none", "--certainty", "self_consistency"), 27),
        (("--pipeline", "react", "--llm-stop"), 27),
    ],
)
def test_what_it_will_take_is_said_before_it_starts(
    arguments: tuple[str, ...],
    most: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = ScriptedModel()
    monkeypatch.setattr(ModelOptions, "connect", lambda _: model)
    recorded(tmp_path / "t", *arguments)
    assert f" {most} model calls" in capsys.readouterr().err
    assert sum(each.n for each in model.requests) <= most

"""``suffice record`` and ``ask`` with loops that ask follow-up questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.commands import run_json

from suffice.cli.main import main
from suffice.cli.options import ModelOptions
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.table import TraceSet

RECORD = ("record", "--dataset", "generated", "--llm", "scripted")
LOOPS = ("iterative", "chain")
QUESTION = "Who founded Cadel Tower?"


def recorded(out: Path, *arguments: str, limit: int = 3) -> TraceSet:
    assert main([*RECORD, "--limit", str(limit), "--out", str(out), *arguments]) == 0
    return read_traces(out)


# --- record -----------------------------------------------------------------------------------------
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
        assert all("Decision:" in (finished.action or "") for finished in each.rounds)
        assert {len(finished.samples or ()) for finished in each.rounds} == {8}
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


# --- ask --------------------------------------------------------------------------------------------
@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> ScriptedModel:
    found = ScriptedModel()
    monkeypatch.setattr(ModelOptions, "connect", lambda _: found)
    return found


def answered(corpus: Path, *arguments: str) -> dict[str, Any]:
    pytest.importorskip("bm25s")
    return run_json("ask", QUESTION, "--corpus", str(corpus), *arguments)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", LOOPS)
def test_by_default_it_stops_at_an_answer_that_repeats_and_draws_no_sample(
    name: str, corpus: Path, model: ScriptedModel
) -> None:
    found = answered(corpus, "--pipeline", name)
    assert set(found["reasons"][-1]["values"]) == {"answer_repeats", "abstained"}
    assert (found["stopped_by"], found["answer"]) == ("policy", found["reasons"][-2]["answer"])
    usage = found["usage"]
    assert (usage["sample_calls"], usage["judge_calls"], usage["judge_prompt_tokens"]) == (0, 0, 0)
    assert all(each.n == 1 and each.temperature == 0 for each in model.requests)
    assert not any("<STOP>" in str(each.prompt) for each in model.requests)
    assert usage["llm_calls"] == len(model.requests)

"""``suffice record`` and ``ask`` with loops that ask follow-up questions."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from tests.commands import run_json

from suffice.cli.main import main
from suffice.cli.options import ModelOptions
from suffice.llm.connect import CachedModel
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord, Usage
from suffice.trace.rounds.table import TraceSet

RECORD = ("record", "--dataset", "generated", "--llm", "scripted")
LOOPS = ("iterative", "chain")
QUESTION = "Who founded Cadel Tower?"


def recorded(out: Path, *arguments: str, limit: int = 3) -> TraceSet:
    assert main([*RECORD, "--limit", str(limit), "--out", str(out), *arguments]) == 0
    return read_traces(out)


SECONDS = [column.name for column in fields(Usage) if column.name.endswith("latency_s")]


def untimed(traces: TraceSet) -> list[QuestionRecord]:
    """The records but for when they were made and the seconds they took."""
    return [
        replace(
            each,
            rounds=tuple(
                replace(
                    finished, time=None, usage=replace(finished.usage, **dict.fromkeys(SECONDS))
                )
                for finished in each.rounds
            ),
        )
        for each in traces.records()
    ]


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


@pytest.mark.parametrize("name", LOOPS)
def test_the_cache_keeps_eight_samples_a_round(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = []

    def connect(_: Any) -> CachedModel:
        models.append(ScriptedModel())
        return CachedModel(models[-1], tmp_path / "replies.sqlite")

    monkeypatch.setattr(ModelOptions, "connect", connect)
    command = ("--pipeline", name, "--rounds", "2", "--llm-stop")
    first = recorded(tmp_path / "a", *command)
    second = recorded(tmp_path / "b", *command)
    plain = ScriptedModel()
    monkeypatch.setattr(ModelOptions, "connect", lambda _: plain)
    without = recorded(tmp_path / "c", *command)
    assert models[1].requests == ()
    assert untimed(first) == untimed(second) == untimed(without)
    warm = [each for each in models[0].requests if each.temperature > 0]
    assert [each.n for each in warm] == [8] * 6
    seeds = [each.seed for each in warm]
    drawn = {seed + sample for seed in seeds if seed is not None for sample in range(8)}
    assert len(drawn) == 48
    assert max(len(set(f.samples or ())) for each in first.records() for f in each.rounds) > 2


# --- ask --------------------------------------------------------------------------------------------
@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("Ardel", "Borel", "Cadel", "Dorel", "Edrel", "Fadel"):
        page = f"# {name} Tower\n\n{name} Tower was founded by Mira {name}son.\n"
        (folder / f"{name}.md").write_text(page, encoding="utf-8")
    return folder


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



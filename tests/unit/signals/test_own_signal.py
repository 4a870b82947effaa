"""A new signal that asks a model: one file and one line of the registry, and everything knows it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffice.cli.main import main
from suffice.cli.shared_options import ModelOptions
from suffice.contracts import GenerationRequest
from suffice.errors import UsageError
from suffice.live.requirements import LoopOutput, check_policy
from suffice.loops.ranked import CumulativeSettings
from suffice.measures.costs import cost_reads
from suffice.policies.rules.policy import RulePolicy
from suffice.signals import known_signals as registry
from suffice.testing.models import ScriptedModel
from suffice.testing.traces import make_record
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Usage
from suffice.trace.rounds.writer import write_traces


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line, and the one file where Python finds it."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setitem(registry._MODULES, "toy", "toy_signal")


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    usage = Usage(llm_calls=1, judge_calls=0, rerank_calls=0, prompt_tokens=10)
    records = [make_record(name, ["a 1", "a 4"], gold=("a 4",), split="test") for name in "pq"]
    rounds = [
        tuple(dataclasses.replace(finished, usage=usage) for finished in record.rounds)
        for record in records
    ]
    write_traces(
        [
            dataclasses.replace(record, rounds=its)
            for record, its in zip(records, rounds, strict=True)
        ],
        tmp_path / "t.parquet",
    )
    return tmp_path / "t.parquet"


def last_digit(request: GenerationRequest, _: int) -> str:
    return str(request.prompt).rstrip("')],").rstrip()[-1]


def computed(traces: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    out = traces.with_name("out.parquet")
    command = ["signals", str(traces), "--only", "toy", "--out", str(out), "--json", *more]
    assert main(command) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_command_lists_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["signals", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["signals"]
    assert [row["signal"] for row in listed] == list(registry.SIGNALS)
    assert listed[-1] == {
        "signal": "toy",
        "meaning": "how plain the answer is, 1-5",
        "direction": "high",
        "needs": "",
        "charges": "judge_calls",
        "computed": "--llm",
    }
    assert main(["signals", "--list"]) == 0
    assert "how plain the" in capsys.readouterr().out  # the rest stands in the next line


def test_the_scripted_model_computes_and_stores_it(
    traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = computed(traces, capsys, "--llm", "scripted")
    assert document["computed"] == ["toy"]
    assert (document["toy"]["calls"], document["judge"]) == (4, None)
    assert "toy" in read_traces(document["out"]).signal_names


def test_it_is_read_and_its_calls_are_charged_by_who_reads_it(
    traces: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ModelOptions, "connect", lambda _: ScriptedModel(last_digit))
    stored = computed(traces, capsys, "--llm", "scripted")["out"]
    found = read_traces(stored)
    np.testing.assert_array_equal(found.stored_signal("toy")[0], [[1.0, 4.0]] * 2)
    np.testing.assert_array_equal(found.column("judge_calls"), np.ones((2, 2)))
    assert cost_reads(RulePolicy(rule="toy >= 4").specs).verdicts
    rules = ("toy >= 4", "answer_stable")
    options = [part for rule in rules for part in ("--stop-when", rule)]
    assert main(["replay", stored, *options, "--json", "--bootstrap", "2"]) == 0
    policies = {each["name"]: each for each in json.loads(capsys.readouterr().out)["policies"]}
    reader, other = (policies[rule] for rule in rules)
    assert reader["stop_rounds"] == other["stop_rounds"] == {"2": 2}
    assert (reader["judge_calls"], other["judge_calls"]) == (
        1.0,
        0.0,
    )  # the last round decides nothing
    assert (reader["llm_calls"], other["llm_calls"]) == (3.0, 2.0)
    assert reader["prompt_tokens"] > other["prompt_tokens"] == 20.0


@pytest.mark.parametrize("judge", [False, True])
def test_a_live_loop_refuses_it_as_it_does_judge_support_without_a_judge(judge: bool) -> None:
    policy = RulePolicy(rule="toy >= 4")
    assert policy.needs.judge
    with pytest.raises(
        UsageError,
        match="'toy' needs a recorded value, which this loop does not hold: it asks no reader",
    ):
        check_policy(policy, LoopOutput(settings=CumulativeSettings(judge=judge)))

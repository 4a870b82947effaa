"""Policies fitted on other traces than those replayed, and what a policy file brings into replay."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from suffice.cli.main import main
from suffice.evaluation.replay.compare import compare
from suffice.evaluation.replay.named_policies import named_policies
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import ComparisonSettings
from suffice.live.controller import Controller
from suffice.policies.fitting import fit_data, fitted_rule
from suffice.policies.policy_file import save_policy
from suffice.policies.registry import fit_method
from suffice.policies.rules.policy import Rule
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.trace_set import TraceSet, TraceSetOrigin
from suffice.trace.rounds.writer import write_traces

RULE = "calibrated(answer_token_margin) > 0.4"


def prefixed_records(prefix: str, *, rounds: int = 4, flip: bool = False) -> list[QuestionRecord]:
    """Ten tune and ten eval questions; with ``flip`` high margins go with wrong answers."""
    made = []
    for n in range(20):
        right = (n % 10 >= 5) != flip
        made.append(
            make_record(
                f"{prefix}{n:02d}",
                ["y", *(["x" if right else "y"] * (rounds - 1))],
                gold=["x"],
                margins=[n % 10 + 0.1 * t for t in range(rounds)],
                split="tune" if n < 10 else "eval",
            )
        )
    return made


def prefixed_traces(prefix: str, source: str, **changes: bool | int) -> TraceSet:
    made = to_trace_set(prefixed_records(prefix, **changes))  # type: ignore[arg-type]
    return dataclasses.replace(made, origin=TraceSetOrigin(source=source))


def test_methods_and_rules_are_fitted_there() -> None:
    here, there = prefixed_traces("a", "a.parquet"), prefixed_traces("b", "b.parquet", flip=True)
    built = named_policies(here, ["tasr", "fixed-2"], [RULE], fit_on=there)
    policies = [each.policy for each in built]
    assert policies[0] == fit_method("tasr", there, "published", "tune")
    assert policies[0] != fit_method("tasr", here, "published", "tune")
    data = fit_data(there, ["answer_token_margin"])
    assert policies[2] == fitted_rule(RULE, data)
    for policy in (policies[0], policies[2]):
        assert isinstance(policy, Rule)
        assert policy.fitted_on["source"] == "b.parquet"
    assert named_policies(here, ["tasr"])[0].policy == fit_method("tasr", here, "published", "tune")


def notes(here: TraceSet, there: TraceSet, *policies: str, rules: tuple[str, ...] = ()) -> str:
    settings = ComparisonSettings(policies=policies, rules=rules, fit_on=there, resamples=20)
    return "\n".join(compare(here, settings).result.notes)


def test_questions_in_both_are_counted() -> None:
    here = prefixed_traces("a", "memory")
    swapped = [
        dataclasses.replace(
            each,
            question=dataclasses.replace(
                each.question, split="tune" if each.question.split == "eval" else "eval"
            ),
        )
        for each in prefixed_records("a")[:16]
    ]
    there = dataclasses.replace(to_trace_set(swapped), origin=TraceSetOrigin(source="memory"))
    said = notes(here, there, rules=(RULE,))
    assert "6 of 10 questions" in said
    others = [
        dataclasses.replace(each, question=dataclasses.replace(each.question, text="Another?"))
        for each in swapped
    ]
    assert "in-sample" not in notes(here, to_trace_set(others), rules=(RULE,))


def test_the_command_line_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")
    write_traces([each for each in prefixed_records("a") if each.question.split == "eval"], here)
    write_traces(prefixed_records("b"), there)
    assert main(["replay", here, "--policy", "tasr", "--json"]) == 2
    assert "--fit-on OTHER_TRACES" in capsys.readouterr().err
    assert main(["replay", here, "--fit-on", there, "--policy", "tasr", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert any(f"fitted on split tune of {there}" in note for note in document["notes"])
    report = ["report", here, "--fit-on", there, "--out", str(tmp_path / "r.html"), "--json"]
    assert main(report) == 0
    assert "tasr-corrected" in (tmp_path / "r.html").read_text()
    assert main(["replay", here, "--fit-on", str(tmp_path / "no.parquet"), "--policy", "tasr"]) == 2


ANSWERS = {"a": "xxyyy", "b": "vwxyz", "c": "vwxyy", "d": "vv"}


def test_replay_stops_at_the_budget_of_the_file(tmp_path: Path) -> None:
    records = [make_record(name, list(text), gold=[text[-1]]) for name, text in ANSWERS.items()]
    traces = to_trace_set(records)
    file = save_policy(Rule(rule="answer_stable"), tmp_path / "p.json", max_rounds=3)
    built = named_policies(traces, [str(file), "fixed-3"], ["answer_stable"])
    result = replay(traces, built, ComparisonSettings(baseline="fixed-3", resamples=10))
    # a repeats at round 2; b never, c at round 5: both meet the budget of 3; d repeats at 2
    np.testing.assert_array_equal(result.policies[0].stops, [2, 3, 3, 2])
    np.testing.assert_array_equal(result.policies[2].stops, [2, 5, 5, 2])
    live = []
    for record in records:
        controller = Controller.load(file)
        live.append(next(n for n, r in enumerate(record.rounds, 1) if controller.observe(r).stop))
    np.testing.assert_array_equal(result.policies[0].stops, live)

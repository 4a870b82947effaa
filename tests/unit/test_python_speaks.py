"""What the Python API is given by mistake is taken for what was meant, or refused in Python's words."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import suffice
from suffice.errors import DataError, UsageError
from suffice.evaluation.settings import (
    ChoiceSettings,
    ComparisonSettings,
    DiagnosisSettings,
    SearchSettings,
)
from suffice.policies.unfitted import FixedPolicy
from suffice.testing.traces import random_records
from suffice.trace.rounds.writer import write_traces


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("record") / "traces.parquet"
    write_traces(random_records(16), path)
    return path


def test_the_path_of_traces_is_read_by_all(traces: Path) -> None:
    assert suffice.search(traces, "answer_stable", resamples=5).evaluated == 1
    assert suffice.fit("rule", traces, rule="base_rate() > 0.2").facts.fitted_on
    assert suffice.fit("tasr", traces).preset == "corrected"


def test_a_single_text_is_not_its_letters() -> None:
    assert suffice.Gold(answers="Oslo").answers == ("Oslo",)  # type: ignore[arg-type]
    assert suffice.Rule(rule="mine > 0.2", own_signals="mine").signals == ("mine",)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="must be names separated by commas"):
        suffice.search("example", "a,,b")


DEFAULTS: dict[Callable[..., Any], tuple[type, dict[str, str]]] = {
    suffice.replay: (ComparisonSettings, {"f1_kind": "f1"}),
    suffice.choose: (ChoiceSettings, {"f1_kind": "f1"}),
    suffice.search: (
        SearchSettings,
        {"f1_kind": "f1", "grid": "threshold_grid", "eval_split": "split"},
    ),
    suffice.diagnose: (DiagnosisSettings, {"f1_kind": "f1", "eval_split": "split"}),
}


@pytest.mark.parametrize("call", DEFAULTS, ids=lambda call: call.__name__)
def test_keywords_are_the_settings_with_their_defaults(call: Callable[..., Any]) -> None:
    settings, renamed = DEFAULTS[call]
    taken = {
        name: parameter.default
        for name, parameter in inspect.signature(call).parameters.items()
        if name != "record" and parameter.default is not parameter.empty
    }
    held = {
        renamed.get(field.name, field.name): None if field.name == "cost_model" else field.default
        for field in fields(settings)
        if field.name != "signals" or call is not suffice.search
    }
    assert taken == held


def test_the_names_fit_a_screen() -> None:
    assert len(dir(suffice)) <= 40


def test_a_text_where_a_policy_is_due(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.json"):
        suffice.Controller("nowhere.json")
    with pytest.raises(
        UsageError, match=r"suffice\.Rule\(TEXT\), is (wanted|needed), found 'answer_stable'"
    ):
        suffice.save_policy("answer_stable", tmp_path / "p.json")  # type: ignore[arg-type]
    path = suffice.save_policy(FixedPolicy(2), tmp_path / "p.json", max_rounds=4)
    assert suffice.Controller(suffice.load_policy(path)).max_rounds == 4

"""What the Python API is given by mistake is taken for what was meant, or refused in Python's words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import suffice
from suffice.errors import DataError, UsageError
from suffice.testing.traces import random_records
from suffice.trace.rounds.writer import write_traces


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("record") / "traces.parquet"
    write_traces(random_records(16), path)
    return path


def test_the_path_of_traces_is_read_by_all(traces: Path) -> None:
    search = suffice.SearchSettings(signals=("answer_stable",), resamples=5)
    assert suffice.search(traces, search).evaluated == 1
    assert suffice.fit_rule("base_rate() > 0.2", traces).base_rates
    assert suffice.fit_method("tasr", traces).preset == "corrected"


def test_a_single_text_is_not_its_letters() -> None:
    assert suffice.Gold(answers="Oslo").answers == ("Oslo",)  # type: ignore[arg-type]
    assert suffice.RulePolicy(rule="mine > 0.2", own_signals="mine").signals == ("mine",)  # type: ignore[arg-type]
    searched = suffice.SearchSettings(signals="answer_stable, overlap")  # type: ignore[arg-type]
    assert searched.signals == ("answer_stable", "overlap")
    named = suffice.DiagnosisSettings(policies="fixed-2")  # type: ignore[arg-type]
    assert named.policies == ("fixed-2",)
    with pytest.raises(UsageError, match="must be names separated by commas"):
        suffice.SearchSettings(signals="a,,b")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (suffice.compare, "settings are a suffice.ComparisonSettings(...), found list: ['tasr']"),
        (suffice.search, "settings are a suffice.SearchSettings(...), found list"),
        (suffice.diagnosis, "settings are a suffice.DiagnosisSettings(...), found list"),
        (suffice.choose, "settings are a suffice.ChoiceSettings(...), found list"),
    ],
)
def test_settings_of_another_kind(traces: Path, call: Callable[..., Any], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        call(traces, ["tasr"])
    assert said in str(raised.value)


def test_a_text_where_a_policy_is_due(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.json"):
        suffice.Controller("nowhere.json")
    with pytest.raises(
        UsageError, match=r"suffice\.RulePolicy\(rule=TEXT\), found 'answer_stable'"
    ):
        suffice.save_policy("answer_stable", tmp_path / "p.json")  # type: ignore[arg-type]
    path = suffice.save_policy(suffice.FixedPolicy(2), tmp_path / "p.json", max_rounds=4)
    assert suffice.Controller(suffice.load_policy(path)).max_rounds == 4

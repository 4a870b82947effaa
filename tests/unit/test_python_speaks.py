"""What the Python API is given by mistake is taken for what was meant, or refused in Python's words."""

from __future__ import annotations

from pathlib import Path

import pytest

import suffice
from suffice.errors import UsageError
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


@pytest.mark.parametrize("name", ["sweep", "fit_certified", "FamilySettings"])
def test_a_name_that_went_says_what_to_type(name: str) -> None:
    with pytest.raises(AttributeError, match=r"suffice\.(choose|ChoiceSettings)\("):
        getattr(suffice, name)

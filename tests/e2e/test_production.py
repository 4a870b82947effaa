"""The way from shadow to live, as the example walks it."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pytest

import suffice
from suffice.evaluation.choose import candidates
from suffice.policies.policy_file import load_policy
from suffice.trace.rounds.reader import read_traces

sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture
def _few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method and signal is compared by the tests of ``choose``."""
    monkeypatch.setattr(candidates, "nameable_methods", tuple)
    few = partial(suffice.choose, signals=("answer_stable",), max_signals=1, resamples=20)
    monkeypatch.setattr(suffice, "choose", few)


def walk(out: Path, llm: str, questions: int, loss: float = 0.5) -> str:
    from examples.production import main

    arguments = ["--llm", llm, "--questions", str(questions), "--max-loss", str(loss)]
    live = main([*arguments, "--explore", "0.3", "--out", str(out)])
    shadow, cut = read_traces(out / "probed"), read_traces(out / "live")
    assert shadow.n_questions == cut.n_questions == questions
    assert shadow.table.column("answer").null_count == 0
    causes = set(cut.table.column("stopped_by").to_pylist())
    assert causes <= {None, "policy", "budget"}
    assert {result.kind for result in live.policies} <= {"certified", "fixed"}
    return (out / "policy.json").read_text()


@pytest.mark.usefixtures("_few_candidates")
def test_from_shadow_to_live(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = json.loads(walk(tmp_path, "scripted", 60))
    assert policy["kind"] == "certified"
    assert policy["guarantee"]["max_loss"] == 0.5
    assert policy["max_rounds"] == 4
    assert "CUT RECORDS" in capsys.readouterr().out


@pytest.mark.usefixtures("_few_candidates")
def test_where_nothing_is_proven_the_full_budget_goes_live(tmp_path: Path) -> None:
    walk(tmp_path, "scripted", 24, 0.0001)
    assert load_policy(tmp_path / "policy.json").policy.facts.earliest == 4
    assert set(read_traces(tmp_path / "live").last_rounds.tolist()) == {4}


@pytest.mark.slow
def test_from_shadow_to_live_with_a_real_model(tmp_path: Path) -> None:
    walk(tmp_path, "embedded", 24)

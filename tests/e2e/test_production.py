"""The way from shadow to live, as the example walks it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from suffice.trace.rounds.reader import read_traces

sys.path.insert(0, str(Path(__file__).parents[2]))


def walk(out: Path, llm: str, questions: int) -> str:
    from examples.production import main

    arguments = ["--llm", llm, "--questions", str(questions), "--max-loss", "0.5"]
    live = main([*arguments, "--explore", "0.3", "--out", str(out)])
    shadow, cut = read_traces(out / "probed"), read_traces(out / "live")
    assert shadow.n_questions == cut.n_questions == questions
    assert shadow.table.column("answer").null_count == 0
    causes = set(cut.table.column("stopped_by").to_pylist())
    assert causes <= {None, "policy", "budget"}
    assert {result.kind for result in live.result.policies} == {"certified", "fixed"}
    return (out / "policy.json").read_text()


def test_from_shadow_to_live(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = walk(tmp_path, "scripted", 24)
    printed = capsys.readouterr().out
    assert '"certified"' in policy
    assert "keep an expected signed loss of at most 0.5" in printed
    assert "CUT RECORDS" in printed


@pytest.mark.slow
def test_from_shadow_to_live_with_a_real_model(tmp_path: Path) -> None:
    walk(tmp_path, "embedded", 16)

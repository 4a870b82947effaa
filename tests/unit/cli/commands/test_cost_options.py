"""``--cost`` and what prices usage, through the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.builders import with_rounds
from tests.commands import run_json

import suffice
from suffice.cli.main import main
from suffice.costs.usage import COSTS
from suffice.testing.traces import make_record

DOCS = Path(__file__).parents[4] / "docs"


@pytest.fixture
def traces(tmp_path: Path) -> str:
    """Two rounds a question: 100 and 200 prompt tokens, of them 0 and 80 cached, 10 generated each."""
    made = make_record("a", ["x", "y"], gold=["y"], split="eval")
    path = tmp_path / "traces.parquet"
    known = with_rounds(made, usage=lambda each: replace(each.usage, completion_tokens=10))
    suffice.write([known], path)
    return str(path)


def replayed(*arguments: str) -> dict[str, Any]:
    return run_json("replay", *arguments)  # type: ignore[no-any-return]


def test_prices_by_hand(traces: str) -> None:
    prices = ("--prices", "input=2,cached=0.5,output=10")
    found = replayed(traces, "--policy", "fixed-2", "--cost", "usd", *prices)
    assert found["cost"] == "usd"
    assert found["policies"][0]["usd"] == pytest.approx((200 * 2 + 10 * 10) / 1e6)
    published = replayed(
        traces, "--policy", "fixed-2", "--cost", "usd", "--charge", "published", *prices
    )
    assert published["charge"] == "published"
    assert published["policies"][0]["usd"] == pytest.approx((220 * 2 + 80 * 0.5 + 20 * 10) / 1e6)
    assert found["frontier"]["costs"][0] == pytest.approx((100 * 2 + 10 * 10) / 1e6)
    assert found["prices"]["source"] == "by hand"


def test_prices_of_a_model(traces: str) -> None:
    pytest.importorskip("genai_prices")
    found = replayed(traces, "--policy", "fixed-2", "--price-model", "openai:gpt-4o-mini")
    assert found["cost"] == "usd"  # priced, and every fixed-k is one call
    assert found["policies"][0]["usd"] == pytest.approx((200 * 0.15 + 10 * 0.6) / 1e6)
    assert "openai:gpt-4o-mini" in found["prices"]["source"]


@pytest.mark.parametrize("name", COSTS)
def test_every_cost_is_taken_or_refused_with_what_is_missing(
    name: str, traces: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(
        ["replay", traces, "--policy", "fixed-1", "--cost", name, "--prices", "input=1,output=1"]
    )
    said = capsys.readouterr().err
    missing = {"retrievals": "retrievals", "seconds": "latency_s"}
    if name in missing:
        assert code == 2
    else:
        assert (code, said) == (0, "")


def test_every_cost_is_documented() -> None:
    text = (DOCS / "costs.md").read_text(encoding="utf-8")
    for name in COSTS:
        assert f"| `{name}` |" in text

"""``suffice bench retrieval``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suffice.cli.main import main

ASKED = ["bench", "retrieval", "--dataset", "generated", "--limit", "12", "--bootstrap", "20"]


def test_json_is_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--encoder", "none", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["questions"] == 12
    assert [each["retriever"] for each in document["results"]] == ["bm25", "tfidf"]
    assert all(0.0 <= each["recall@5"] <= each["recall@50"] <= 1.0 for each in document["results"])
    assert "dense is left out" in printed.err


@pytest.mark.slow
def test_the_packaged_encoder_makes_the_dense_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ASKED, "--index", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert "hybrid" in printed.out
    assert "hybrid+rerank is left out" in printed.out
    assert (tmp_path / "dense" / "index.json").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--dataset", "hotpotqa"], "--data"),
        (["--dataset", "generated", "--reranker", "nowhere"], "no cross-encoder at 'nowhere'"),
        (["--dataset", "generated", "--encoder", "http://127.0.0.1:9"], "--encoder-model"),
    ],
)
def test_wrong_usage_is_one_line(
    capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main(["bench", "retrieval", *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err

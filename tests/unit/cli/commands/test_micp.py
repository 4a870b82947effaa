"""``fit micp``, its replay, ``record --filter`` and ``ask`` under its policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.builders import written_traces
from tests.commands import run_json

from suffice.cli.main import main
from suffice.testing.traces import sampled_records

pytest.importorskip("bm25s")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(written_traces(tmp_path_factory.mktemp("record"), sampled_records(300)))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("Ardel", "Borel", "Cadel", "Dorel"):
        page = f"# {name} Tower\n\n{name} Tower was founded by Mira {name}son.\n"
        (folder / f"{name}.md").write_text(page, encoding="utf-8")
    return folder


def generated(out: Path, *more: str) -> list[str]:
    return [
        "record", "--dataset", "generated", "--llm", "scripted", "--out", str(out), "--rounds", "3",
        "--samples", "5", "--splits", "optimize=0.4,calibrate=0.4,eval=0.2", *more,
    ]  # fmt: skip


def test_the_filter_is_fitted_used_and_handed_on(corpus: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(generated(first, "--limit", "30")) == 0
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    options = ("--alpha", "0.3", "--alpha-retrieval", "0.3")
    fitted = run_json("fit", "micp", first, "--out", one, *options)["policy"]
    assert not fitted["filtered"]
    assert len(fitted["filter"]["question_ids"]) == 12
    assert main(generated(second, "--limit", "30", "--filter", str(one))) == 0
    then = run_json("fit", "micp", second, "--out", two, *options)["policy"]
    assert then["filtered"]
    assert then["filter"]["threshold"] == fitted["filter"]["threshold"]
    # that policy cannot tell whose passages set its filter
    assert main(generated(tmp_path / "third", "--limit", "5", "--filter", str(two))) == 0
    # a question's every shown passage passes the filter
    import pyarrow.parquet as pq

    shards = [pq.read_table(each) for each in second.glob("*.parquet")]
    scores = [
        passage["score"]
        for table in shards
        for passages in table.column("passages").to_pylist()
        for passage in passages
    ]
    assert min(scores) >= fitted["filter"]["threshold"]
    # the same recording under another filter is another recording
    assert main(generated(second, "--limit", "31")) == 2
    asked = run_json(
        "ask", "Who founded Cadel Tower?", "--corpus", corpus, "--llm", "scripted",
        "--policy", two,
    )  # fmt: skip
    assert all(each["score"] >= fitted["filter"]["threshold"] for each in asked["passages"])
    bare = run_json(
        "ask", "Who founded Cadel Tower?", "--corpus", corpus, "--llm", "scripted",
        "--policy", one,
    )  # fmt: skip
    assert len(bare["passages"]) >= len(asked["passages"])


def test_ask_gives_the_set_or_cannot_answer(
    record: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "policy.json"
    run_json("fit", "micp", record, "--out", out, "--alpha", "0.2")
    arguments = ["ask", "Who founded Cadel Tower?", "--corpus", str(corpus), "--llm", "scripted"]
    found = run_json(*arguments, "--policy", out)
    held = found["answer_set"]
    assert isinstance(held["cannot_answer"], bool)
    assert all(0 < each["confidence"] <= 1 for each in held["answers"])
    assert held["cannot_answer"] == (found["rounds"] == 3 or found["stopped_by"] != "policy")
    assert found["usage"]["sample_calls"] == 5 * found["rounds"]
    # nothing is confident enough: it cannot answer
    document = json.loads(out.read_text())
    document["answer_set"]["confidence"] = 1.5
    out.write_text(json.dumps(document))
    none = run_json(*arguments, "--policy", out)
    assert (none["answer"], none["declined"]) == ("cannot answer", True)
    assert main([*arguments, "--policy", str(out), "--samples", "2"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("cannot answer")

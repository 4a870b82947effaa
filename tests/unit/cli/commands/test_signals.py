"""``suffice signals``: what it prints and returns, and what it leaves for a second run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.builders import with_rounds
from tests.commands import run_json
from tests.hashing_encoder import HashingEncoder

from suffice.cli.commands import signals
from suffice.cli.main import main
from suffice.cli.shared_options import ModelOptions
from suffice.signals.known_signals import SIGNALS
from suffice.testing.models import Failures, ScriptedModel
from suffice.testing.traces import make_record
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Passage
from suffice.trace.rounds.writer import write_traces


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    write_traces(
        [make_record("p", ["a", "b"]), make_record("q", ["c", "d"])], tmp_path / "t.parquet"
    )
    return tmp_path / "t.parquet"


def judged_by(monkeypatch: pytest.MonkeyPatch, model: ScriptedModel) -> None:
    def connect(arguments: Any) -> ScriptedModel:
        assert (arguments.llm or "embedded") == "embedded"
        return model

    monkeypatch.setattr(ModelOptions, "connect", connect)


def test_failed_calls_are_told_kept_out_and_asked_again(
    traces: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = traces.with_name("out.parquet")
    command = ["signals", str(traces), "--out", str(out), "--only", "judge_support"]
    judged_by(monkeypatch, ScriptedModel(failures=Failures(containing=("Answer: c",))))
    assert main([*command, "--llm", "embedded"]) == 1
    capsys.readouterr()
    assert read_traces(out).stored_signal("judge_support")[1].sum() == 3
    # --model alone means the embedded model; in place, since a file is replaced whole
    judged_by(monkeypatch, ScriptedModel(["unsure"]))
    document = run_json(command[0], str(out), *command[2:], "--model", "m.gguf")
    assert document["judge"] | {"prompt_tokens": 0, "completion_tokens": 0} == {
        "calls": 1,
        "rated": 0,
        "undefined": 1,
        "failed": 0,
        "left": 0,
        "prompt_tokens": 0,
        "cached_tokens": 0,
        "completion_tokens": 0,
    }
    assert read_traces(out).table.column("judge_calls").to_pylist() == [1, 1, 2, 1]


def test_a_model_that_never_answers_writes_nothing(
    traces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = traces.with_name("out.parquet")
    judged_by(monkeypatch, ScriptedModel(failures=Failures(first=99)))
    command = ["signals", str(traces), "--out", str(out), "--only", "judge_support"]
    assert main([*command, "--llm", "embedded"]) == 1
    assert not out.exists()


class Flat:
    def rerank(self, query: str, passages: Sequence[Passage]) -> Sequence[Passage]:
        return [dataclasses.replace(each, rerank_score=1.5) for each in passages]


def test_a_reranker_by_its_path(
    traces: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(signals, "connect_reranker", {"folder": Flat()}.__getitem__)
    out = traces.with_name("out.parquet")
    assert main(["signals", str(traces), "--out", str(out), "--reranker", "folder"]) == 0
    printed = capsys.readouterr()
    assert "questions reranked 2/2" in printed.err
    found = read_traces(out)
    assert found.stored_signal("rerank_top_score")[0].tolist() == [[1.5, 1.5]] * 2
    assert found.table.column("rerank_calls").to_pylist() == [1] * 4


@pytest.fixture
def sampled(tmp_path: Path) -> Path:
    pytest.importorskip("sklearn")
    drawn = [("Oslo", "Oslo city", "Rome"), None, ("x", "X."), ("bad", "Rome", "Rome town")]
    records = [make_record("p", ["a", "b"]), make_record("q", ["c", "d"])]
    samples = iter(drawn)
    changed = [with_rounds(record, samples=lambda _: next(samples)) for record in records]
    write_traces(changed, tmp_path / "s.parquet", run={"model": "m"})
    return tmp_path / "s.parquet"


def test_samples_are_clustered_beside_the_signals(
    sampled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    encoders = {"toy": HashingEncoder(), "sick": HashingEncoder(fail_on="bad")}
    monkeypatch.setattr(signals, "connect_encoder", lambda name, _: encoders[name])
    out = sampled.with_name("out.parquet")
    command = ["signals", str(sampled), "--out", str(out), "--cluster-cosine", "0.6"]
    assert main([*command, "--encoder", "sick", "--only", "sample_clusters"]) == 1
    printed = capsys.readouterr()
    assert "computed nothing new" in printed.out
    found = read_traces(out)
    assert found.table.column("sample_clusters").to_pylist() == [[0, 0, 2], None, [0, 0], None]
    assert not found.signal_names
    stated = {"encoder": "hashing-64", "cosine": 0.6}
    assert found.origin.run == {"model": "m", "sample_clusters": stated}
    command[1] = str(out)
    assert main([*command, "--encoder", "toy", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["clusters"] == stated | {"rounds": 1, "before": 2, "failed": 0, "left": 0}
    assert document["encoder"]["rounds"] == 4  # an encoder also gives the signals that need one
    assert "rounds clustered 1/1" in printed.err
    found = read_traces(out)
    assert found.table.column("sample_clusters").to_pylist()[3] == [0, 1, 1]
    assert {"evidence_consistency", "normalized_entropy"} <= {*found.signal_names}


def test_every_signal_is_listed_with_what_computes_it() -> None:
    listed = {row["signal"]: row for row in run_json("signals", "--list")["signals"]}
    assert list(listed) == list(SIGNALS)
    assert (listed["judge_support"]["computed"], listed["judge_support"]["charges"]) == (
        "--llm",
        "judge_calls",
    )


# --- what abstains ------------------------------------------------------------------------------
def test_phrases_of_ones_own_are_stored_stated_and_taken_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    phrases = tmp_path / "phrases.txt"
    phrases.write_text("nix\nno page on ...\n", encoding="utf-8")
    answers = ["unknown", "Nix.", "No page on it"]
    records = [make_record(name, answers, gold=("x",), split="tune") for name in "pq"]
    source, out = tmp_path / "t.parquet", tmp_path / "out.parquet"
    write_traces(records, source)
    command = ["signals", str(source), "--only", "abstained", "--out", str(out)]
    usual = tmp_path / "usual.parquet"
    assert main([*command[:-1], str(usual)]) == 0
    for start in (source, usual):  # what is stored by other phrases is replaced
        assert main([command[0], str(start), *command[2:], "--abstention", str(phrases)]) == 0
        stored = read_traces(out)
        assert stored.stored_signal("abstained")[0][0].tolist() == [0.0, 1.0, 1.0]
        assert stored.origin.run["abstention"] == ["nix", "no page on ..."]
    for record, told in ((out, []), (source, ["--abstention", str(phrases)])):
        policy = tmp_path / "policy.json"
        fit = ["fit", "rule", "not abstained", str(record), "--out", str(policy), *told]
        assert main(fit) == 0
        assert json.loads(policy.read_text())["abstention"] == ["nix", "no page on ..."]
    replay = ["replay", str(source), "--abstention", str(phrases), "--json", "--per-question"]
    capsys.readouterr()
    assert main([*replay, "--stop-when", "round >= 2 and not abstained", "--split", "tune"]) == 0
    found = json.loads(capsys.readouterr().out)["policies"][0]
    assert found["rounds"] == {"p": 3, "q": 3}

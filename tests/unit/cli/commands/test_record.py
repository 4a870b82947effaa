"""``suffice record``: pipelines, retrievers and their defaults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from suffice.cli import retrieval_options
from suffice.cli.commands import record
from suffice.cli.main import main
from suffice.datasets.registry import load
from suffice.testing.encoders import HashingEncoder
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Passage, best_reranked, sampled_ids

RECORD = ("record", "--dataset", "generated", "--limit", "5", "--llm", "scripted")


@pytest.fixture
def encoders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the encoders asked for; they cost nothing here."""
    asked: list[str] = []

    def connect(name: str, _model: str | None) -> HashingEncoder:
        asked.append(name)
        return HashingEncoder()

    monkeypatch.setattr(retrieval_options, "connect_encoder", connect)
    return asked


def run_document(out: Path) -> dict[str, Any]:
    return dict(read_traces(out).origin.run)


def test_each_pipeline_has_its_defaults(
    tmp_path: Path, encoders: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RECORD, "--out", str(tmp_path / "c")]) == 0
    assert "certainty" not in capsys.readouterr().err
    assert encoders == []
    assert main([*RECORD, "--pipeline", "budgeted", "--out", str(tmp_path / "b")]) == 0
    said = capsys.readouterr().err
    assert "certainty: token_probability (the model gives log-probabilities)" in said
    assert encoders == ["minilm"]
    names = ("pipeline", "rounds", "prompt", "start", "step", "temperature", "encoder")
    cumulative, budgeted = (run_document(tmp_path / each) for each in ("c", "b"))
    assert [cumulative.get(name) for name in names] == [
        "cumulative", 5, "answer-first", None, None, 0.8, None,
    ]  # fmt: skip
    assert [budgeted.get(name) for name in names] == [
        "budgeted", 3, "bare", 5, 5, 0.7, "hashing-64",
    ]  # fmt: skip


def test_what_will_not_be_recorded_is_said_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RECORD, "--out", str(tmp_path / "t")]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("signals 'self_consistency' and 'normalized_entropy' and ")
    assert (
        "each needs column samples, which this recording does not hold; type --samples 3" in said[0]
    )
    words = ("--samples", "2", "--prompt", "no-confidence", "--out", str(tmp_path / "s"))
    assert main([*RECORD, *words]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("signal 'verbalized_confidence' needs ")
    assert "asks for no confidence; type --prompt answer-first" in said[0]


def test_no_encoder_means_no_evidence_signals(tmp_path: Path, encoders: list[str]) -> None:
    out = tmp_path / "t"
    assert main([*RECORD, "--pipeline", "budgeted", "--encoder", "none", "--out", str(out)]) == 0
    assert encoders == []
    assert not read_traces(out).signal_names


def test_voting_is_said(
    tmp_path: Path,
    encoders: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record, "connect_model", lambda _: ScriptedModel(logprobs=False))
    out = tmp_path / "t"
    budgeted = [*RECORD, "--pipeline", "budgeted", "--out", str(out)]
    assert main([*budgeted, "--samples", "5", "--prompt", "confidence-first"]) == 0
    assert "self_consistency (the model gives no log-probabilities)" in capsys.readouterr().err
    assert run_document(out)["samples"] == 5
    assert encoders == ["minilm"]
    assert main([*budgeted, "--certainty", "token_probability"]) == 2
    assert "--certainty self_consistency" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--start", "3"], "--start is for --pipeline budgeted"),
        (["--certainty", "auto"], "--certainty is for --pipeline budgeted"),
        (["--step", "3"], "--step is for --pipeline budgeted, iterative, chain or react"),
        (["--pipeline", "react", "--start", "3"], "--start is for --pipeline budgeted"),
        (["--pipeline", "chain", "--certainty", "auto"], "--certainty is for --pipeline budgeted"),
        (["--llm-stop"], "--llm-stop is for --pipeline iterative, chain or react"),
        (["--llm-stop", "--pipeline", "budgeted"], "ask the model nothing about stopping; --judge"),
        (["--retriever", "hybrid+rerank"], "--reranker PATH"),
        (["--retriever", "dense+rerank", "--pool", "10"], "pip install 'suffice[rerank]'"),
        (["--retriever", "dense", "--encoder", "none"], "needs an encoder"),
        (["--encoder", "http://localhost:1"], "--encoder-model"),
    ],
)
def test_refusals(
    arguments: list[str], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RECORD, *arguments, "--out", str(tmp_path / "t")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert part in printed.err
    assert not (tmp_path / "t").exists()


class ByLength:
    """Longer texts first; remembers how many it was given."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def rerank(self, _query: str, passages: Sequence[Passage]) -> Sequence[Passage]:
        self.given.append(len(passages))
        return best_reranked(passages, [float(len(each.text or "")) for each in passages])


def test_the_best_of_a_reranked_pool_that_is_new_is_kept(
    tmp_path: Path, encoders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker, out = ByLength(), tmp_path / "t"
    monkeypatch.setattr(retrieval_options, "connect_reranker", lambda _: reranker)
    command = [*RECORD, "--pipeline", "iterative", "--rounds", "3", "--samples", "0"]
    command += ["--retriever", "dense+rerank", "--pool", "4", "--reranker", "BY/length"]
    assert main([*command, "--out", str(out)]) == 0
    assert encoders == ["minilm"]
    assert set(reranker.given) == {4}
    run = run_document(out)
    assert (run["retriever"], run["pool"], run["reranker"]) == ("dense+rerank", 4, "BY/length")
    rows = read_traces(out).table.to_pylist()
    assert all(len(row["passages"]) == 1 for row in rows if row["round"] == 1)
    assert all(len(row["passages"]) <= 1 for row in rows)
    assert all(row["passages"][0]["rerank_score"] > 0 for row in rows if row["passages"])
    assert {len(row["candidate_scores"]) for row in rows} == {4}
    assert main([*command[:-4], "--pool", "5", *command[-2:], "--out", str(out)]) == 2


def test_an_agent_is_recorded(tmp_path: Path, encoders: list[str]) -> None:
    out = tmp_path / "t"
    command = [*RECORD, "--pipeline", "react", "--samples", "2", "--out", str(out)]
    assert main(command) == 0
    assert main(command) == 0  # there is nothing left to do
    assert encoders == []
    traces = read_traces(out)
    assert set(traces.signal_names) == {"llm_stop", "malformed_actions"}
    assert traces.has("action")
    run = run_document(out)
    assert [run[name] for name in ("pipeline", "rounds", "step", "verdicts", "prompt")] == [
        "react", 3, 3, True, "answer-first",
    ]  # fmt: skip
    assert main(["replay", str(out), "--stop-when", "llm_stop", "--split", "eval", "--json"]) == 0


def test_clusters_of_samples(
    tmp_path: Path, encoders: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    command = [*RECORD, "--out", str(tmp_path / "t"), "--samples", "3", "--cluster-cosine"]
    assert main(command) == 2
    assert "needs an encoder; type --encoder minilm" in capsys.readouterr().err
    assert main([*command, "--encoder", "minilm"]) == 0
    run = run_document(tmp_path / "t")
    assert run["sample_clusters"] == {"encoder": "hashing-64", "cosine": 0.9}
    assert read_traces(tmp_path / "t").has("sample_clusters")


def test_a_sample_is_drawn_by_the_seed_and_grows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record_all = ["record", "--dataset", "generated", "--llm", "scripted", "--rounds", "1"]
    out = tmp_path / "t"
    assert main([*record_all, "--sample", "4", "--out", str(out)]) == 0
    assert "a sample: 4 of 200 questions, seed 42" in capsys.readouterr().err
    small = read_traces(out)
    everything = [example.question.id for example in load("generated")]
    assert small.question_ids == tuple(sorted(sampled_ids(everything, 4, seed=42)))
    assert small.question_ids != tuple(sorted(everything[:4]))
    assert small.origin.run["sample"] == {"questions": 4, "of": 200, "seed": 42}
    assert main([*record_all, "--sample", "7", "--out", str(out)]) == 0
    assert "7 questions (3 recorded now, 4 before)" in capsys.readouterr().out
    grown = read_traces(out)
    assert set(small.question_ids) < set(grown.question_ids)
    kept = {question.id: question.split for question in grown.questions}
    assert all(kept[question.id] == question.split for question in small.questions)


def test_a_sample_and_a_limit_exclude_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*RECORD, "--sample", "2", "--out", str(tmp_path / "t")])
    assert "not allowed with argument --limit" in capsys.readouterr().err

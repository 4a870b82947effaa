"""``suffice record`` and ``probe``: pipelines, retrievers, defaults, and an answer in every round."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.commands import refused, run, run_json
from tests.hashing_encoder import HashingEncoder

from suffice.cli import retrieval
from suffice.cli.main import main
from suffice.datasets.known_datasets import load
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import (
    Passage,
    Question,
    QuestionRecord,
    Round,
    best_reranked,
    sampled_ids,
)
from suffice.trace.rounds.writer import write_traces

RECORD = ("record", "--dataset", "generated", "--limit", "5", "--llm", "scripted")


@pytest.fixture
def encoders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the encoders asked for; they cost nothing here."""
    asked: list[str] = []

    def connect(name: str, *_: str | None) -> HashingEncoder:
        asked.append(name)
        return HashingEncoder()

    monkeypatch.setattr(retrieval, "connect_encoder", connect)
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
    assert "token_probability" in said
    assert encoders == ["minilm"]
    names = ("pipeline", "rounds", "prompt", "start", "step", "temperature", "encoder")
    cumulative, budgeted = (run_document(tmp_path / each) for each in ("c", "b"))
    assert [cumulative.get(name) for name in names] == [
        "cumulative", 5, "answer-first", None, None, 0.8, None,
    ]  # fmt: skip
    assert [budgeted.get(name) for name in names] == [
        "budgeted", 3, "bare", 5, 5, 0.7, "hashing-64",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--start", "3"], "--start"),
        (["--certainty", "auto"], "--certainty"),
        (["--pipeline", "chain", "--certainty", "auto"], "--certainty"),
        (["--llm-stop"], "--llm-stop"),
        (["--llm-stop", "--pipeline", "budgeted"], "--pipeline"),
        (["--retriever", "hybrid+rerank"], "--reranker PATH"),
        (["--retriever", "dense", "--encoder", "none"], "needs an encoder"),
        (["--encoder", "http://localhost:1"], "--encoder-model"),
    ],
)
def test_refusals(arguments: list[str], part: str, tmp_path: Path) -> None:
    refused(run(*RECORD, *arguments, "--out", str(tmp_path / "t")), part)
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
    monkeypatch.setattr(retrieval, "connect_reranker", lambda _: reranker)
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


def test_a_sample_is_drawn_by_the_seed_and_grows(tmp_path: Path) -> None:
    record_all = ["record", "--dataset", "generated", "--llm", "scripted", "--rounds", "1"]
    out = tmp_path / "t"
    assert main([*record_all, "--sample", "4", "--out", str(out)]) == 0
    small = read_traces(out)
    everything = [example.question.id for example in load("generated")]
    assert small.question_ids == tuple(sorted(sampled_ids(everything, 4, seed=42)))
    assert small.question_ids != tuple(sorted(everything[:4]))
    assert small.origin.run["sample"] == {"questions": 4, "of": 200, "seed": 42}
    assert main([*record_all, "--sample", "7", "--out", str(out)]) == 0
    grown = read_traces(out)
    assert set(small.question_ids) < set(grown.question_ids)
    kept = {question.id: question.split for question in grown.questions}
    assert all(kept[question.id] == question.split for question in small.questions)


# --- questions and passages of the user's own -------------------------------------------------------
@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with questions, notes and a retriever."""
    questions = (
        'nr,asked,right\n007,Who built the mill?,"[""Ada Thorn"", ""A. Thorn""]"\n008,Where?,\n'
    )
    (tmp_path / "own.csv").write_text(questions, encoding="utf-8")
    (tmp_path / "notes").mkdir()
    for name, text in (("mill", "Ada Thorn built the mill."), ("lund", "Lund lies by the sea.")):
        (tmp_path / "notes" / f"{name}.txt").write_text(text, encoding="utf-8")
    (tmp_path / "notes" / "scan.pdf").write_bytes(b"%PDF")
    (tmp_path / "shelf.py").write_text(
        "def search(query, k):\n    return [{'text': 'Ada Thorn', 'id': query}, 'nobody'][:k]\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "shelf", raising=False)
    return tmp_path


OWN = ["record", "--dataset", "own.csv", "--llm", "scripted", "--rounds", "2", "--out", "t"]
SERVED = "opensearch:http://ann:secret@h/n"
MAPPED = [*OWN, "--columns", "question=asked,answers=right,id=nr"]


@pytest.mark.usefixtures("place")
def test_own_questions_over_own_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MAPPED, "--corpus", "notes"]) == 0
    said = capsys.readouterr().err
    assert "scan.pdf" in said
    traces = read_traces("t")
    first, second = traces.records()
    assert [first.question.id, second.question.id] == ["007", "008"]
    assert (first.gold.answers, second.gold.answers) == (("Ada Thorn", "A. Thorn"), ())
    shown = [passage.id for each in first.rounds for passage in each.passages or ()]
    assert shown == ["mill.txt#1", "lund.txt#1"]
    run = run_document(Path("t"))
    assert (run["dataset"], run["corpus"]) == ("own.csv", "files")
    assert run["columns"] == {"question": "asked", "answers": "right", "id": "nr"}
    Path("own.csv").rename("moved.csv")  # another name is another data set
    assert main([*MAPPED, "--dataset", "moved.csv", "--corpus", "notes"]) == 2


@pytest.mark.usefixtures("place", "encoders")
def test_another_corpus_column_map_or_prefix_is_refused(place: Path) -> None:
    recorded = [*MAPPED, "--corpus", "notes", "--retriever", "dense"]
    assert main(recorded) == 0
    assert main(recorded) == 0
    index = sorted(Path("t").glob("index*/index.npz"))[0].read_bytes()
    for changed, part in (
        ([*recorded, "--query-prefix", "q: "], "query_prefix"),
        ([*OWN, "--columns", "question=asked,id=nr", *recorded[-4:]], "columns was"),
        ([*MAPPED, "--retriever", "python:shelf:search"], "corpus was"),
    ):
        done = run(*changed)
        assert (done.returncode, done.stdout) == (2, "")
        assert part in done.stderr
    (place / "notes" / "more.txt").write_text("More.", encoding="utf-8")
    grown = run(*recorded)
    assert grown.returncode == 2
    assert "corpus_fingerprint" in grown.stderr
    assert index == sorted(Path("t").glob("index*/index.npz"))[0].read_bytes()  # none made anew


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (MAPPED, "--corpus PATH"),
        ([*OWN, "--corpus", "notes"], "'question'"),
        ([*MAPPED, "--corpus", "nowhere"], "nowhere"),
        ([*MAPPED, "--retriever", "python:shelf:search", "--corpus", "notes"], "--corpus notes"),
        ([*MAPPED, "--retriever", SERVED, "--corpus", "x"], "opensearch:http://h/n searches"),
        ([*MAPPED, "--retriever", SERVED, "--pool", "2"], "--retriever"),
        ([*MAPPED, "--retriever", "python:shelf:find"], "'find'"),
        ([*MAPPED, "--corpus", "notes", "--query-prefix", "q"], "--query-prefix"),
        ([*MAPPED, "--corpus", "notes", "--data", "x"], "drop --data x"),
        ([*OWN, "--retriever", "bm26"], "unknown retriever 'bm26'"),
        ([*OWN, "--dataset", "musik"], "'musik'"),
    ],
)  # fmt: skip
def test_own_questions_that_cannot_be_asked(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert part in capsys.readouterr().err
    assert not Path("t").exists()


# --- shards --------------------------------------------------------------------------------------
def _as_recorded(folder: Path) -> list[dict[str, Any]]:
    """Its rows by question and round, but for when they ended and how long they took."""
    return [
        {name: value for name, value in row.items() if name not in ("time", "latency_s")}
        for row in read_traces(folder).table.to_pylist()
    ]


def test_shards_are_together_what_one_recorder_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*RECORD, "--limit", "12", "--rounds", "2", "--corpus", "pooled"]
    assert main([*command, "--out", str(tmp_path / "whole")]) == 0
    out = tmp_path / "sharded"
    for shard in ("3/3", "1/3", "2/3"):
        assert main([*command, "--out", str(out), "--shard", shard]) == 0
    assert _as_recorded(out) == _as_recorded(tmp_path / "whole")
    files = sorted(file.name for file in out.glob("*.parquet"))
    assert {read_traces(out / file).origin.run["shard"] for file in files} == {1, 2, 3}
    assert read_traces(out / "record-2of3.db").origin.run["shard"] == 2
    assert run_document(out) == {**run_document(tmp_path / "whole"), "shards": 3}
    # other shards, or none, find everything done; nothing was said of all this
    for more in (["--shard", "2/5"], []):
        capsys.readouterr()
        assert main([*command, "--out", str(out), "--json", *more]) == 0
        printed = capsys.readouterr()
        assert json.loads(printed.out)["recorded"] == 0
        assert "differ" not in printed.err
    assert sorted(file.name for file in out.glob("*.parquet")) == files


def test_a_shard_needs_a_folder_and_a_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "one.parquet")
    refused(
        run(*RECORD, "--out", out, "--shard", "1/2"),
        f"choose a directory: --out {tmp_path / 'one'}",
    )
    assert main([*RECORD, "--out", out, "--shard", "3/2"]) == 2
    assert "found 3/2" in capsys.readouterr().err


def of(name: str, text: str | None = "Ada wrote it.") -> QuestionRecord:
    found = (Passage(id="p", title="Ada", text=text),)
    rounds = (Round(answer=None), Round(answer=None, passages=found), Round(answer="Ada"))
    return QuestionRecord(question=Question(id=name, text="Who wrote it?"), rounds=rounds)


def test_it_says_what_it_will_ask_and_what_it_did(tmp_path: Path) -> None:
    traces, out = tmp_path / "t.parquet", tmp_path / "out"
    write_traces([of("a"), of("b"), of("c", None)], traces)
    command = ("probe", traces, "--llm", "scripted", "--out", out)
    refused(run(*command), "1 question with passages without a text", "'c'", "--corpus")
    asking = (*command, "--skip-invalid", "--samples", "2")
    done = run(*asking)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{out}: 2 questions (2 probed now, 0 before)\n"
    document = run_json(*asking)
    assert (document["recorded"], document["before"]) == (0, 2)
    assert document["agreement"] == {"rounds": 2, "agreeing": 2}
    assert read_traces(out).table.column("probed").to_pylist()[:3] == [True, True, True]
    refused(run(*asking, "--prompt", "bare"), "derived.0.prompt was 'answer-first', now 'bare'")

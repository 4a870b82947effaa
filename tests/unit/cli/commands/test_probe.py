"""``suffice probe``: what it says before and after, and what it refuses."""

from __future__ import annotations

from pathlib import Path

from tests.commands import refused, run, run_json

from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Passage, Question, QuestionRecord, Round
from suffice.trace.rounds.writer import write_traces


def of(name: str, text: str | None = "Ada wrote it.") -> QuestionRecord:
    found = (Passage(id="p", title="Ada", text=text),)
    rounds = (Round(answer=None), Round(answer=None, passages=found), Round(answer="Ada"))
    return QuestionRecord(question=Question(id=name, text="Who wrote it?"), rounds=rounds)


def test_it_says_what_it_will_ask_and_what_it_did(tmp_path: Path) -> None:
    traces, out = tmp_path / "t.parquet", tmp_path / "out"
    write_traces([of("a"), of("b"), of("c", None)], traces)
    command = ("probe", traces, "--llm", "scripted", "--out", out)
    refused(run(*command), "1 questions have passages without a text", "'c'", "--corpus")
    asking = (*command, "--skip-invalid", "--samples", "2")
    done = run(*asking)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{out}: 2 questions (2 probed now, 0 before)\n"
    document = run_json(*asking)
    assert (document["recorded"], document["before"]) == (0, 2)
    assert document["agreement"] == {"rounds": 2, "agreeing": 2}
    assert read_traces(out).table.column("probed").to_pylist()[:3] == [True, True, True]
    refused(run(*asking, "--prompt", "bare"), "derived.0.prompt was 'answer-first', now 'bare'")

"""``example`` stands wherever a command takes TRACES, and names the record that comes with suffice."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders import drawn_records, written_traces
from tests.commands import run, run_json

import suffice
from suffice.trace.stored_file import EXAMPLE


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("command", "wrote"),
    [
        ("traces info example", ""),
        ("traces validate example", ""),
        ("traces filter example --sample 5 --out few.parquet", "few.parquet"),
        ("traces split example --splits a=0.5,b=0.5 --replace --out parts", "parts"),
        ("traces export example --format jsonl --out rounds.jsonl", "rounds.jsonl"),
        ("signals example --only overlap --out more.parquet", "more.parquet"),
        ("fit tasr example --out policy.json", "policy.json"),
        ("replay example --policy fixed-2 --bootstrap 20 --workers 1", ""),
        ("replay example --policy tasr --fit-on example --bootstrap 20 --workers 1", ""),
        ("diagnose example --signals overlap --bootstrap 20", ""),
        ("search example --signals overlap --bootstrap 20 --out rule.json", "rule.json"),
        ("report example --policy fixed-2 --parts none --bootstrap 20 --out r.html", "r.html"),
        ("view example --bundle site", "site/index.html"),
    ],
)
def test_every_command_takes_it(command: str, wrote: str) -> None:
    done = run(*command.split())
    assert done.returncode == 0, done.stderr
    assert Path(wrote).exists()
    assert str(EXAMPLE) not in done.stdout + done.stderr


def test_it_is_a_real_loop_without_its_texts() -> None:
    traces = suffice.example_record()
    assert (traces.n_questions, traces.n_rounds) == (250, 5)
    assert traces.origin.source == "example"
    assert traces.origin.run["pipeline"] == "react"
    assert traces.splits == {"eval": 150, "tune": 100}
    texts = {question.text for question in traces.questions}
    assert all(len(text.split()) == 1 for text in texts)
    stored = EXAMPLE.read_bytes()
    for place in (b"/home/", b"/tmp/", b"/root/", str(Path(__file__).parents[3]).encode()):
        assert place not in stored


def test_a_record_of_that_name_comes_first() -> None:
    own = drawn_records(4, ["Oslo", "Rome"], seed=1)
    written_traces(Path(), own).rename("example")
    assert run_json("traces", "info", "example")["questions"] == 4
    Path("example").rename("example.parquet")
    assert run_json("traces", "info", "example")["questions"] == 250

"""A record as text holds what the record holds, and is read back."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import suffice
from suffice.cli.main import main
from suffice.datasets.recordings import import_traces
from suffice.errors import UsageError
from suffice.live.watch import Watch
from suffice.testing.traces import make_record
from suffice.trace.export import export_traces
from suffice.trace.recording import prune
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import TopToken
from suffice.trace.rounds.writer import write_traces
from suffice.trace.store import Store

ROUND = suffice.Round(
    answer='Ada, "the" first',
    query="Who?",
    passages=(suffice.Passage(id="p", title="T", text="Ada did.\nShe did.", score=0.1),),
    tokens=(suffice.Token("Ada", -0.3, (TopToken("Bo", -math.inf),)),),
    samples=("Ada", "[Bo"),
    sample_clusters=(0, 1),
    candidate_scores=(0.3, math.nan),
    usage=suffice.Usage(llm_calls=2, latency_s=0.7),
    probed=True,
    time=datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC),
    signals={"own": 0.25, "undefined": math.nan},
)
RECORDS = [
    suffice.QuestionRecord(
        question=suffice.Question(id="007", text="Who?", type="bridge", split="eval", group="g"),
        gold=suffice.Gold(answers=("Ada", "a, b"), passage_ids=("p",)),
        rounds=(replace(ROUND, answer=None, passages=()), ROUND),
        closed_book=suffice.Round(answer="=1+1"),
        scores={2: 0.3},
        propensity=0.05,
        stopped_by="policy",
        policy_hash="ab",
    ),
    suffice.QuestionRecord(
        question=suffice.Question(id="1", text=""), rounds=(suffice.Round(answer="x"),)
    ),
]


def test_what_is_exported_is_read_back(tmp_path: Path) -> None:
    write_traces(RECORDS, tmp_path / "in.parquet")
    out = tmp_path / "out.jsonl"
    written = export_traces(tmp_path / "in.parquet", out, format="jsonl")
    assert (written.questions, written.rounds, written.notes) == (2, 3, ())
    lines = out.read_text().splitlines()
    rows = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert rows[-1] == {"question_id": "1", "round": 1, "question": "", "answer": "x"}
    import_traces(out, tmp_path / "back.parquet", format="columns")
    table, back = (read_traces(tmp_path / name) for name in ("in.parquet", "back.parquet"))
    for before, after in ((table.table, back.table), (table.closed_book, back.closed_book)):
        for name in before.column_names:
            was, now = (
                repr([value or None for value in t[name].to_pylist()]) for t in (before, after)
            )
            assert was == now, name
    with pytest.raises(UsageError, match="exists already"):
        export_traces(tmp_path / "in.parquet", out, format="jsonl")


DAY = 86_400.0
NOW = 1_800_000_000.0


def written(file: Path, count: int = 4) -> Path:
    """A question a day; the youngest ended now. The first has a label."""
    with Watch(record=file) as watch:
        for number in range(count):
            with watch.question("?", question_id=f"q{number}") as loop:
                loop.observe(answer="Oslo " * 2000)
        watch.label("q0", gold_answers=["Oslo"])
    with Store(file).transaction() as database:
        for number in range(count):
            ended = NOW - (count - 1 - number) * DAY
            database.execute("UPDATE questions SET ended = ? WHERE id = ?", (ended, f"q{number}"))
    return file


def test_the_old_ones_go_with_their_labels(tmp_path: Path) -> None:
    file = written(tmp_path / "live.db")
    before = file.stat().st_size
    done = prune(file, days=1.5, now=NOW, dry=True)
    assert (done.questions, read_traces(file).n_questions) == (2, 4)
    again = prune(file, days=1.5, now=NOW)
    assert (again.questions, again.bytes) == (done.questions, done.bytes)
    assert read_traces(file).question_ids == ("q2", "q3")
    assert not Store(file).labels()[0]
    assert file.stat().st_size < before
    assert main(["traces", "validate", str(file)]) == 0


def test_the_oldest_go_until_the_rest_takes_no_more(tmp_path: Path) -> None:
    file = written(tmp_path / "live.db")
    whole = prune(file, days=100.0, now=NOW).bytes_left
    done = prune(file, gigabytes=(whole - 15_000) / 1e9, now=NOW)
    assert done.questions == 2
    assert read_traces(file).question_ids == ("q2", "q3")


def test_the_last_one_stays_so_that_a_monitor_goes_on_counting(tmp_path: Path) -> None:
    file = written(tmp_path / "live.db")
    assert prune(file, days=1.0, now=NOW + 50 * DAY).questions == 3
    with Watch(record=file) as watch, watch.question("?", question_id="q0") as loop:
        loop.observe(answer="Oslo")
    assert loop.question_id == "q0"  # its name is free again
    turns = [run.turn for run in Store(file).runs()]
    assert turns == [4, 5]


def test_what_is_being_recorded_is_left_alone_by_several_at_once(tmp_path: Path) -> None:
    file = written(tmp_path / "live.db")
    with Watch(record=file) as watch, watch.question("now?", question_id="now") as loop:
        loop.observe(answer="Oslo")
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(lambda _: prune(file, days=0.5, now=NOW), range(8)))
        loop.observe(answer="Bergen")
    assert sum(one.questions for one in done) == 3
    kept = {record.question.id: len(record.rounds) for record in read_traces(file).records()}
    assert kept == {"q3": 1, "now": 2}


def test_the_command_says_what_it_removes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(written(tmp_path / "live.db"))
    assert main(["traces", "prune", place]) == 2
    assert main(["traces", "prune", place, "--keep-days", "0"]) == 2
    capsys.readouterr()
    for options, removed in ((["--keep-days", "1e6"], 0), (["--keep-gigabytes", "1e-9"], 3)):
        assert main(["traces", "prune", place, *options, "--dry-run", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["questions"] == removed
    write_traces([make_record("q", ["Oslo"])], tmp_path / "parquet")
    with pytest.raises(UsageError):
        prune(tmp_path / "parquet", days=1.0)

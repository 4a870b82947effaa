"""Questions of a store are removed by age and size, the oldest first, never one under way."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from suffice.cli.main import main
from suffice.errors import UsageError
from suffice.live.watch import Watch
from suffice.testing.traces import make_record
from suffice.trace.recording import prune
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.writer import write_traces
from suffice.trace.store import Store

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

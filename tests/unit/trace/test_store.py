"""The database of live loops: what it keeps, whom it refuses, what is read of it and exported."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

import suffice
from suffice.cli.main import main
from suffice.datasets.recordings import label_traces
from suffice.errors import DataError, StorageError, SufficeError, SufficeWarning, UsageError
from suffice.live.watch import Watch
from suffice.testing.traces import make_record
from suffice.trace.engines import VERSION
from suffice.trace.export import export_traces
from suffice.trace.rounds.labels import Label
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import (
    Passage,
    QuestionRecord,
    Round,
    Token,
    TopToken,
    Usage,
    as_document,
)
from suffice.trace.rounds.writer import write_traces
from suffice.trace.store import Store

RICH = Round(
    answer="Skien",
    query="Where was Ibsen born?",
    passages=(Passage(id="p1", title="", text="Skien is a town.", score=0.5),),
    tokens=(Token("Sk", -0.25, top=(TopToken("Sk", -0.25), TopToken("Os", float("-inf")))),),
    samples=("Skien", "Oslo"),
    usage=Usage(llm_calls=1, prompt_tokens=600, latency_s=0.125),
    signals={"own": float("nan")},
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "live.db"


def record(file: str | Path, count: int = 3, *, name: str = "q", **settings: object) -> None:
    with Watch(record=file, **settings) as watch:  # type: ignore[arg-type]
        for number in range(count):
            with watch.question(f"{name} {number}?", question_id=f"{name}{number}") as loop:
                loop.observe(answer="Oslo")
                loop.observe(RICH)


def kept(place: str | Path) -> dict[str, QuestionRecord]:
    return {one.question.id: one for one in read_traces(place).records()}


# --- what is kept -----------------------------------------------------------------------------------
def test_a_round_comes_back_bit_for_bit(place: str) -> None:
    record(place, 1)
    (first, second) = kept(place)["q0"].rounds
    again = as_document(second)
    assert again.pop("time") is not None
    assert again.pop("signals") == {"own": "nan"}
    whole = as_document(RICH)
    whole.pop("signals")
    assert again == whole
    assert first.answer == "Oslo"


@pytest.mark.parametrize("durable", [False, True])
def test_a_round_is_committed_before_the_decision(file: Path, *, durable: bool) -> None:
    with Watch(record=file, durable=durable) as watch, watch.question("?") as loop:
        for count in (1, 2, 3):
            loop.observe(answer="Oslo")
            with closing(sqlite3.connect(file)) as database:
                assert database.execute("SELECT count(*) FROM rounds").fetchone() == (count,)
            assert loop.kept()


def test_what_never_ended_is_read_once_its_process_is_gone(place: str) -> None:
    code = """
        import os, sys
        from suffice import Watch
        watch = Watch(record=sys.argv[1])
        loop = watch.question("?", question_id="half").begin()
        loop.observe(answer="Oslo")
        print("said", flush=True)
        sys.stdin.readline()
        os._exit(1)
        """
    words = [sys.executable, "-c", textwrap.dedent(code), place]
    source = str(Path(suffice.__file__).parents[1])
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": source},
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "said\n"
        with pytest.raises(DataError, match="empty"):
            read_traces(place)
        child.communicate("\n")
    (half,) = read_traces(place).records()
    assert (half.stopped_by, len(half.rounds)) == ("error", 1)
    record(place, 1)  # whoever writes next ends it
    assert sum(run.turn > 0 for run in Store(place).runs(dead=False)) == 2


# --- many at once -------------------------------------------------------------------------------------
def _child(file: str, name: str) -> None:
    record(file, 10, name=name)


def test_processes_share_a_store_and_its_names(place: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    children = [spawn.Process(target=_child, args=(place, "q")) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    found = kept(place)
    assert len(found) == 30
    assert {f"q{number}{end}" for number in range(10) for end in ("", "#2", "#3")} == found.keys()


def test_a_fork_in_the_middle_breaks_neither_process(place: str) -> None:
    watch = Watch(record=place)
    with watch.question("?", question_id="parent") as loop:
        loop.observe(answer="Oslo")
        busy = threading.Event()

        def writes() -> None:
            while not busy.is_set():
                with watch.question("?") as other:
                    other.observe(answer="Rome")

        thread = threading.Thread(target=writes)
        thread.start()
        children = []
        for number in range(8):
            child = os.fork()
            if child == 0:
                try:
                    with watch.question("?", question_id=f"child{number}") as own:
                        own.observe(answer="Skien")
                    with watch.question(f"unnamed {number}") as own:
                        for _ in range(3):
                            own.observe(answer="Skien")
                    watch.close()
                finally:
                    os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        busy.set()
        thread.join()
        loop.observe(answer="Oslo")
    watch.close()
    found = kept(place)
    assert len(found["parent"].rounds) == 2
    assert {f"child{number}" for number in range(8)} <= found.keys()
    unnamed = [one for one in found.values() if one.question.text.startswith("unnamed")]
    assert [(len(one.rounds), one.stopped_by) for one in unnamed] == [(3, "end")] * 8
    assert watch.counts.lost_questions == 0
    if "://" not in place:
        with closing(sqlite3.connect(place)) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# --- what is refused ------------------------------------------------------------------------------------
def test_a_newer_store_and_what_is_none_are_refused(tmp_path: Path, file: Path) -> None:
    record(file)
    with closing(sqlite3.connect(file)) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    text, other = tmp_path / "text.db", tmp_path / "other.db"
    text.write_text("no database at all " * 100)
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE t (x)")
    for place, said in (
        (file, f"version {VERSION + 1}"),
        (text, "no record"),
        (other, "no record"),
    ):
        before = place.read_bytes()
        for use in (read_traces, lambda place: Watch(record=place)):
            with pytest.raises(DataError, match=said) as refused:
                use(place)
            assert refused.value.file == str(place)
        assert place.read_bytes() == before


def test_an_empty_file_is_no_record_and_may_become_one(file: Path) -> None:
    file.touch()
    with pytest.raises(DataError, match="empty"):
        read_traces(file)
    assert not file.stat().st_size
    record(file)
    assert len(kept(file)) == 3


@pytest.mark.parametrize("times", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_damaged_store_is_read_or_refused_with_its_name(
    file: Path, tmp_path: Path, times: int
) -> None:
    record(file)
    content, draw = file.read_bytes(), random.Random(3)
    damaged = tmp_path / "damaged.db"
    refused: list[str] = []
    for _ in range(times):
        copy = bytearray(content)
        at, length = draw.randrange(len(copy)), draw.choice((1, 1, 8, 200))
        copy[at : at + length] = draw.randbytes(len(copy[at : at + length]))
        damaged.write_bytes(
            copy[: draw.choice((len(copy), len(copy), draw.randrange(1, len(copy))))]
        )
        for beside in ("-wal", "-shm"):
            damaged.with_name(f"damaged.db{beside}").unlink(missing_ok=True)
        try:
            read_traces(damaged)
        except SufficeError as error:
            refused.append(str(error))
    assert len(refused) > times / 10
    assert all(str(damaged) in said for said in refused)


def test_a_folder_with_another_record_is_refused(tmp_path: Path) -> None:
    write_traces([make_record("q", ["Oslo"])], tmp_path / "live")
    with pytest.raises(UsageError, match="another record"):
        Watch(record=tmp_path / "live")
    record(tmp_path / "live.db")  # a store beside a folder of its name
    assert kept(tmp_path / "live").keys() == {"q"}
    assert kept(tmp_path / "live.db").keys() == {"q0", "q1", "q2"}


def test_a_lock_that_is_held_too_long_is_told_with_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(file, 1)
    for place in ("loop_record", "store"):
        monkeypatch.setattr(f"suffice.trace.{place}.BUSY_S", 1.0)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        watch = Watch(record=file)
        loop = watch.question("?", question_id="q0").begin()
        assert loop.question_id == "q0#2"  # which can be read under the lock
        loop.observe(answer="Oslo")
        with pytest.warns(SufficeWarning, match="another process held the lock"):
            loop.end()
        assert watch.failing
        assert str(file) in str(watch.problem)
        begun = time.monotonic()
        with watch.question("?") as further:  # waits no more
            further.observe(answer="Oslo")
        assert time.monotonic() - begun < 1.0
        store = Store(file)
        store.wait_s = 0.05
        with pytest.raises(StorageError, match="lock"), store.transaction():
            pass
        other.execute("ROLLBACK")
    assert not watch.failing
    watch.close()
    assert watch.counts.lost_rounds == 0
    assert len(kept(file)) == 3


# --- labels, export, import ---------------------------------------------------------------------------------
def test_a_file_of_labels_goes_into_the_store_once(place: str, tmp_path: Path) -> None:
    record(place)
    labels = tmp_path / "labels.jsonl"
    labels.write_text('{"question_id": "q1", "gold_answers": ["Oslo"], "score": 0.5}\n')
    assert main(["traces", "label", place, str(labels)]) == 0
    assert main(["traces", "label", place, str(labels)]) == 0
    assert len(Store(place).labels()[0]) == 1
    assert kept(place)["q1"].gold.answers == ("Oslo",)
    assert kept(place)["q1"].scores == {2: 0.5}
    with pytest.raises(DataError) as refused:
        label_traces(place, [Label(question_id="q1", gold_answers=("Rome",))])
    assert refused.value.column == "gold_answers"
    with pytest.raises(UsageError):
        label_traces(tmp_path, [Label(question_id="q1", score=1.0)])


def test_an_export_is_repeated_by_what_ended_since(place: str, tmp_path: Path) -> None:
    out = tmp_path / "traces"
    with Watch(record=place) as watch:
        for number in range(4):
            with watch.question("?", question_id=f"q{number}") as loop:
                loop.observe(RICH)
            if number == 1:
                watch.label("q0", gold_answers=["Skien"])
                assert export_traces(place, out, format="parquet").questions == 2
                record(place, 2, name="r")
        watch.label("q1", gold_answers=["Oslo"])
        with watch.question("?", question_id="under way") as loop:
            loop.observe(RICH)
            assert export_traces(place, out, format="parquet").questions == 4
            assert export_traces(place, out, format="parquet").questions == 0
            assert kept(out) == kept(place)
    assert kept(out)["q1"].gold.answers == ("Oslo",)
    assert len(list(out.glob("*.parquet"))) == 3


def test_an_export_into_its_own_folder_doubles_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    record(folder)
    before = kept(folder)
    assert export_traces(folder, folder, format="parquet").questions == 3
    assert list(folder.glob("*.parquet"))
    assert kept(folder) == before
    record(folder, 1, name="new")
    assert kept(folder).keys() == {*before, "new0"}


def test_a_copy_of_a_database_in_use_has_all_once_nothing_is_written(tmp_path: Path) -> None:
    file, copy = tmp_path / "live.db", tmp_path / "copy.db"
    watch = Watch(record=file)
    for number in range(3):
        with watch.question(f"{number}?", question_id=f"q{number}") as loop:
            loop.observe(answer="Oslo")
        with watch.question(
            "?", question_id=f"open{number}"
        ) as loop:  # a label, and a loop that waits
            loop.observe(answer="Oslo")
            watch.label(f"q{number}", gold_answers=["Oslo"])
            until = time.monotonic() + 20
            while time.monotonic() < until:
                shutil.copyfile(file, copy)
                with suppress(DataError):
                    found = suffice.read(copy)
                    if f"q{number}" in found.question_ids and found.gold[number].answers:
                        break
                time.sleep(0.1)
            else:
                pytest.fail("a copy lacks what was recorded")
    watch.close()
    assert watch.counts.lost_rounds == 0
    assert len(kept(file)) == 6


CUT = """
import os, sys, time, warnings
import suffice
warnings.simplefilter("ignore")
file, size, early = sys.argv[1], float(sys.argv[2]), sys.argv[3] == "early"
watch = suffice.Watch(record=file)

def ask(name, **more):
    with watch.question(name + "?", question_id=name) as loop:
        loop.observe(answer="Oslo")
        loop.observe(answer="Skien")

ask("old")
time.sleep(2.5)  # so that it stands in the file
for number in range(12):
    ask(f"new{number}")
running = watch.question("?", question_id="running").begin()
running.observe(answer="Oslo")
os.truncate(file + "-wal", int(os.path.getsize(file + "-wal") * size))
if not early:
    running.observe(answer="Skien")
    ask("after")
    running.end()
watch.close()
print(watch.counts.lost_rounds, watch.counts.lost_questions)
"""


@pytest.mark.parametrize("size", [0, 0.001, 0.3, 0.6, 0.99])
@pytest.mark.parametrize("when", ["early", "late"])
def test_a_log_that_is_cut_under_a_writer_is_counted(
    size: float, when: str, tmp_path: Path
) -> None:
    file = tmp_path / "live.db"
    words = [sys.executable, "-c", CUT, str(file), str(size), when]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=100)
    lost_rounds, lost_questions = map(int, done.stdout.split())
    found = kept(file)
    assert len(found["old"].rounds) == 2
    assert lost_rounds > 0
    rounds, questions = (27, 14) if when == "early" else (30, 15)
    assert sum(len(one.rounds) for one in found.values()) == rounds - lost_rounds
    assert lost_questions >= questions - len(found)


def test_a_log_that_another_program_wrote_into_the_file_lost_nothing(tmp_path: Path) -> None:
    file = tmp_path / "live.db"
    watch = Watch(record=file)
    for number in range(4):
        with watch.question("?", question_id=f"q{number}") as loop:
            loop.observe(answer="Oslo")
            with closing(sqlite3.connect(file)) as other:
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            assert (tmp_path / "live.db-wal").stat().st_size == 0
            loop.observe(answer="Skien")
    watch.close()
    assert watch.counts.lost_rounds == 0
    assert watch.problem is None
    assert [len(one.rounds) for one in kept(file).values()] == [2] * 4

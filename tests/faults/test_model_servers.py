"""Recording from a server that fails: everything in one run, with few calls more, and the same rows."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tests.faults.children import Child, Ended
from tests.faults.work import Tried, Work, result
from tests.faulty_server import FAULTS, Amounts, FaultyServer, Misbehaviour

from suffice.datasets.registry import load
from suffice.llm.endpoint import OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.record.dataset_run import Recording, record_examples
from suffice.loops.record.session import Progress, RecordSummary
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Round

pytest.importorskip("openai", reason="the extra 'openai' is not installed")

AMOUNTS = Amounts(hang_s=5.0, giant_bytes=4_000_000, bomb_bytes=4_000_000, depth=5000)
# missing samples are asked for in a second call, whose prompt counts too
ALIKE = [fault for fault in FAULTS if fault != "too_few"]
QUICK = OpenAISettings(timeout_s=1.0, first_pause_s=0.01, max_reply_bytes=1 << 20)


@pytest.fixture(autouse=True)
def _no_pauses(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr("suffice.loops.record.session._PAUSES_S", (0.0, 0.0, 0.0))


def recorded(
    server: FaultyServer,
    out: Path,
    questions: int,
    *,
    rounds: int,
    settings: OpenAISettings = QUICK,
    on_progress: Any = lambda _: None,
) -> RecordSummary:
    recording = Recording(
        dataset="generated", settings=CumulativeSettings(rounds=rounds, samples=2)
    )
    with OpenAICompatibleModel(server.url, "m", settings=settings) as model:
        examples = load("generated", limit=questions)
        return record_examples(examples, model, out, recording, on_progress)


def rows(out: Path) -> dict[str, Any]:
    """All that was recorded but for when it was, and how long it took."""

    def timeless(round_: Round) -> dict[str, Any]:
        usage = {name: n for name, n in asdict(round_.usage).items() if "latency" not in name}
        return asdict(replace(round_, time=None)) | {"usage": usage}

    return {
        record.question.id: [timeless(each) for each in record.rounds]
        for record in read_traces(out).records()
    }


def check_that_faults_change_nothing(
    folder: Path, faults: Sequence[str], questions: int, rounds: int, seed: int
) -> None:
    with FaultyServer(Misbehaviour(share=0.0)) as good:
        recorded(good, folder / "clean", questions, rounds=rounds)
    how = Misbehaviour(share=0.3, faults=faults, seed=seed, amounts=AMOUNTS)
    with FaultyServer(how) as faulty:
        summary = recorded(faulty, folder / "faulty", questions, rounds=rounds)
    assert summary == RecordSummary(recorded=questions, before=0, failed=0)
    calls, clean = faulty.calls.total(), good.calls.total()
    assert faulty.failed > 0.2 * calls
    assert calls <= 2.5 * clean
    assert rows(folder / "faulty") == rows(folder / "clean")
    assert not list((folder / "faulty").glob(".replies*"))


def test_three_calls_in_ten_fail(tmp_path: Path) -> None:
    at_once = [fault for fault in ALIKE if fault not in ("hang", "drip", "drip_head", "busy")]
    check_that_faults_change_nothing(tmp_path, at_once, questions=4, rounds=2, seed=1)


@pytest.mark.slow
def test_three_calls_in_ten_fail_over_sixty_questions(tmp_path: Path, tried: Tried) -> None:
    """Twenty calls a question."""
    tried("questions of 20 calls, 3 in 10 of which fail", 60)
    check_that_faults_change_nothing(tmp_path, ALIKE, questions=60, rounds=10, seed=1)


@pytest.mark.parametrize("name", ["folder", "single.parquet"])
def test_calls_that_worked_are_not_made_again(tmp_path: Path, name: str) -> None:
    """The question fails at its fourth call of six; the next run makes that one and those behind it."""
    out = tmp_path / name
    once = replace(QUICK, max_retries=0, concurrency=1)
    with FaultyServer(Misbehaviour(share=0.0, plan=["ok"] * 3 + ["error"])) as server:
        assert recorded(server, out, 1, rounds=3, settings=once).failed == 1
        (kept,) = tmp_path.rglob(".*replies")
        with closing(sqlite3.connect(kept)) as database:
            assert database.execute("SELECT count(*) FROM calls").fetchone() == (3,)
        assert recorded(server, out, 1, rounds=3, settings=once).whole
        assert server.calls == {"ok": 6, "error": 1}
    assert not list(tmp_path.rglob(".*replies*"))


def test_replies_of_what_is_recorded_are_dropped(tmp_path: Path) -> None:
    once = replace(QUICK, max_retries=0, concurrency=1)
    with FaultyServer(Misbehaviour(share=0.0, plan=["ok"] * 9 + ["error"] * 40)) as server:
        recorded(server, tmp_path / "out", 3, rounds=2, settings=once)
    with closing(sqlite3.connect(tmp_path / "out" / ".replies")) as database:
        # two questions of four calls are recorded, the third failed behind its first
        assert database.execute("SELECT count(*) FROM calls").fetchone() == (1,)
        assert database.execute("SELECT count(*) FROM samples").fetchone() == (1,)


def test_kept_replies_that_are_damaged_are_asked_for_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    once = replace(QUICK, max_retries=0, concurrency=1)
    with FaultyServer(Misbehaviour(share=0.0, plan=["ok"] * 3 + ["error"])) as server:
        recorded(server, out, 1, rounds=2, settings=once)
        (kept,) = out.glob(".replies")
        kept.write_bytes(b"no database" * 1000)
        assert recorded(server, out, 1, rounds=2, settings=once).whole
        assert server.calls == {"ok": 7, "error": 1}


@pytest.mark.slow
def test_a_server_that_dies_and_comes_back_loses_nothing(tmp_path: Path) -> None:
    with FaultyServer(Misbehaviour(share=0.0)) as server:
        some = threading.Event()

        def progress(now: Progress) -> None:
            if now.finished >= 3:
                some.set()

        def die() -> None:
            some.wait()
            with server.away():
                time.sleep(20.0)

        killer = threading.Thread(target=die)
        killer.start()
        summary = recorded(server, tmp_path / "out", 60, rounds=5, on_progress=progress)
        killer.join()
    assert summary == RecordSummary(recorded=60, before=0, failed=0)


# --- commands --------------------------------------------------------------------------------------
_SERVER = "--llm {} --model m --timeout 1"
COMMANDS = (
    Work(
        name="record",
        words=f"record --dataset generated --limit 5 --samples 2 --rounds 3 {_SERVER} --out OUT/traces",
    ),
    Work(
        name="record-cached",
        words=f"record --dataset generated --limit 5 --rounds 3 {_SERVER} --out OUT/traces "
        "--cache OUT/replies.sqlite",
    ),
    Work(name="probe", words=f"probe GIVEN/unasked.parquet --samples 1 {_SERVER} --out OUT/probed"),
    Work(
        name="ask",
        words="ask Who~founded~Ardel~Tower? --corpus GIVEN/notes --policy fixed-3 --samples 2 "
        f"{_SERVER} --json",
    ),
)
# of commands a reply may be larger than those that are giant here
SMALL = [fault for fault in ALIKE if fault not in ("giant", "bomb", "gzip_bomb")]


def begun(work: Work, server: FaultyServer, given: Path, out: Path) -> Child:
    """The command, which asks this server."""
    out.mkdir(exist_ok=True)
    return Child([word.format(server.url) for word in work.line(given, out)], given)


def left(ended: Ended, out: Path) -> tuple[Any, Any]:
    """The files, and the answer where one is printed."""
    assert "Traceback" not in ended.err
    files = {name: held for name, held in result(out).items() if not name.endswith(".sqlite")}
    return files, json.loads(ended.out)["answer"] if ended.out.startswith("{") else None


def cut_short(ended: Ended) -> bool:
    """Whether an answer of an earlier round was told, for the server failed in a later one."""
    return ended.out.startswith("{") and json.loads(ended.out)["stopped_by"] == "error"


def done(work: Work, server: FaultyServer, given: Path, out: Path) -> tuple[Any, Any]:
    """What it leaves where it does its work."""
    ended = begun(work, server, given, out).end()
    assert ended.code == 0, ended.err
    return left(ended, out)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("work", COMMANDS, ids=lambda work: work.name)
def test_commands_of_which_three_calls_in_ten_fail(
    work: Work, seed: int, given: Path, tmp_path: Path, tried: Tried
) -> None:
    with FaultyServer(Misbehaviour(share=0.0)) as good:
        clean = done(work, good, given, tmp_path / "clean")
    how = Misbehaviour(share=0.3, faults=SMALL, seed=seed, amounts=AMOUNTS)
    with FaultyServer(how) as faulty:
        assert done(work, faulty, given, tmp_path / "faulty") == clean
    tried("calls of a command that failed, 3 in 10", faulty.failed)


@pytest.mark.slow
@pytest.mark.parametrize("work", COMMANDS, ids=lambda work: work.name)
def test_commands_whose_server_dies_in_the_middle(
    work: Work, given: Path, tmp_path: Path, tried: Tried
) -> None:
    """For three seconds, which is waited for; then for good, which is told, and the same command goes on."""
    with FaultyServer(Misbehaviour(share=0.0)) as server:
        clean = done(work, server, given, tmp_path / "clean")
        half = server.calls.total() // 2
        for seconds in (3.0, None):
            out, before = tmp_path / str(seconds), server.calls.total()
            child = begun(work, server, given, out)
            while child.running and server.calls.total() < before + half:
                time.sleep(0.001)
            with server.away():
                if seconds is None:
                    ended = child.end(180.0)
                    tried("a server that dies in the middle, for good")
                else:
                    time.sleep(seconds)
                    tried("a server that dies in the middle, for three seconds")
            ended = child.end()
            if seconds is None and (ended.code or cut_short(ended)):
                assert ended.code in (0, 1), ended.err
                assert "Traceback" not in ended.err
                assert done(work, server, given, out) == clean
            else:
                assert ended.code == 0, ended.err
                assert left(ended, out) == clean

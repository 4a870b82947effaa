"""Recording from a server that fails: everything in one run, with few calls more, and the same rows."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.faults.children import Child, Ended
from tests.faults.work import line, result
from tests.faulty_server import FAULTS, Amounts, FaultyServer, Misbehaviour

from suffice.datasets.known_datasets import load
from suffice.llm.endpoint import OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.record.dataset_run import Recording, record_examples
from suffice.loops.record.session import RecordSummary

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
) -> RecordSummary:
    recording = Recording(
        dataset="generated", settings=CumulativeSettings(rounds=rounds, samples=2)
    )
    with OpenAICompatibleModel(server.url, "m", settings=settings) as model:
        examples = load("generated", limit=questions)
        return record_examples(examples, model, out, recording, lambda _: None)


SLOW = ("hang", "drip", "drip_head", "busy")


@pytest.mark.parametrize(
    ("left_out", "questions", "rounds"),
    [(SLOW, 4, 2), pytest.param((), 60, 10, marks=pytest.mark.slow)],
)
def test_three_calls_in_ten_fail(
    left_out: tuple[str, ...], questions: int, rounds: int, tmp_path: Path
) -> None:
    """Of two or twenty calls a question; nothing of it is seen in the record."""
    faults = [fault for fault in ALIKE if fault not in left_out]
    with FaultyServer(Misbehaviour(share=0.0)) as good:
        recorded(good, tmp_path / "clean", questions, rounds=rounds)
    how = Misbehaviour(share=0.3, faults=faults, seed=1, amounts=AMOUNTS)
    with FaultyServer(how) as faulty:
        summary = recorded(faulty, tmp_path / "faulty", questions, rounds=rounds)
    assert summary == RecordSummary(recorded=questions, before=0, failed=0)
    calls, clean = faulty.calls.total(), good.calls.total()
    assert faulty.failed > 0.2 * calls
    assert calls <= 2.5 * clean
    assert result(tmp_path / "faulty") == result(tmp_path / "clean")
    assert not list((tmp_path / "faulty").glob(".replies*"))


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


# --- commands --------------------------------------------------------------------------------------
_RECORD = "record --dataset generated --limit 5 --rounds 3 --out OUT/traces"
COMMANDS = {
    "record": f"{_RECORD} --samples 2",
    "record-cached": f"{_RECORD} --cache OUT/replies.sqlite",
    "probe": "probe GIVEN/unasked.parquet --samples 1 --out OUT/probed",
    "ask": "ask Who~founded~Ardel~Tower? --corpus GIVEN/notes --policy fixed-3 --samples 2 --json",
}
# of commands a reply may be larger than those that are giant here
SMALL = [fault for fault in ALIKE if fault not in ("giant", "bomb", "gzip_bomb")]


def begun(name: str, server: FaultyServer, given: Path, out: Path) -> Child:
    out.mkdir(exist_ok=True)
    words = f"{COMMANDS[name]} --llm {server.url} --model m --timeout 1"
    return Child(line(words, given, out), given)


def left(ended: Ended, out: Path) -> tuple[Any, Any]:
    """The files, and the answer where one is printed, of a command that does its work."""
    assert ended.code == 0, ended.err
    files = {name: held for name, held in result(out).items() if not name.endswith(".sqlite")}
    return files, json.loads(ended.out)["answer"] if ended.out.startswith("{") else None


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_whose_server_fails(name: str, given: Path, tmp_path: Path) -> None:
    """Three calls in ten fail; it dies for three seconds, which is waited for; it dies for good."""
    how = Misbehaviour(share=0.3, faults=SMALL, seed=1, amounts=AMOUNTS)
    with FaultyServer(how) as faulty:
        ridden = left(begun(name, faulty, given, tmp_path / "faulty").end(), tmp_path / "faulty")
    with FaultyServer(Misbehaviour(share=0.0)) as server:
        clean = left(begun(name, server, given, tmp_path / "clean").end(), tmp_path / "clean")
        assert ridden == clean
        half = server.calls.total() // 2
        for for_good in (False, True):
            out, before = tmp_path / str(for_good), server.calls.total()
            child = begun(name, server, given, out)
            while child.running and server.calls.total() < before + half:
                time.sleep(0.001)
            with server.away():
                if for_good:
                    ended = child.end(180.0)
                else:
                    time.sleep(3.0)
            if not for_good:
                assert left(child.end(), out) == clean
            else:  # the answer of an earlier round may be told
                assert ended.code in (0, 1), ended.err
                assert "Traceback" not in ended.err
                assert left(begun(name, server, given, out).end(), out) == clean

"""PostgreSQL as the store of several machines: addresses, refusals, servers that go away, who is gone."""

from __future__ import annotations

import platform
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.database import PASSWORD, Server

import suffice
from suffice.cli.main import main
from suffice.errors import (
    DataError,
    MissingExtra,
    StorageError,
    SufficeError,
    SufficeWarning,
    UsageError,
)
from suffice.live.watch import Watch
from suffice.policies.unfitted import FixedPolicy
from suffice.serve.service_settings import RecordSettings
from suffice.trace.engines import VERSION, Address, Connection, as_place
from suffice.trace.rounds.records import QuestionRecord


def record(place: str, *names: str) -> None:
    with Watch(record=place) as watch:
        for name in names:
            with watch.question(f"{name}?", question_id=name) as loop:
                loop.observe(answer="Oslo")
                loop.observe(answer="Skien")


def kept(place: str) -> dict[str, QuestionRecord]:
    return {one.question.id: one for one in suffice.read(place).records()}


@pytest.fixture
def up(database_server: Server) -> Iterator[Server]:
    """The server, which runs again when the test has ended."""
    yield database_server
    try:
        database_server.ask("postgres", "SELECT 1")
    except Exception:  # noqa: BLE001
        database_server.start()


# --- addresses ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgres://ann:secret@db:5433/loops", "postgresql://ann@db:5433/loops"),
        ("postgresql://db/loops?sslmode=require", "postgresql://db/loops?sslmode=require"),
        ("postgresql://[::1]:5433/loops", "postgresql://[::1]:5433/loops"),
        ("postgresql://a,b:5433/loops?password=secret", "postgresql://a,b:5433/loops"),
        ("postgresql:///loops?host=/run/pg", "postgresql:///loops?host=/run/pg"),
        ("postgresql://db/x?password=secret&sslmode=require", "postgresql://db/x?sslmode=require"),
    ],
)
def test_an_address_is_shown_without_its_password_and_stays_one(given: str, shown: str) -> None:
    place = as_place(given)
    assert isinstance(place, Address)
    assert str(place) == shown
    assert as_place(place) == as_place(shown) == as_place(Path(place)) == place
    assert "secret" not in repr(place)


@pytest.mark.parametrize("wrong", ["db", "", "ann:s/cret@db/x", "ann:secret/x", "ann@d b/x"])
def test_what_is_no_address_is_refused_without_telling_it(wrong: str) -> None:
    for use in (suffice.read, lambda place: Watch(record=place)):
        with pytest.raises(UsageError, match="USER@HOST") as refused:
            use(f"postgresql://{wrong}")
        assert "s/cret" not in str(refused.value)
        assert "secret" not in str(refused.value)


def test_the_settings_of_a_service_hold_no_password() -> None:
    settings = RecordSettings(folder="postgresql://ann:secret@db/loops")
    assert settings.folder == "postgresql://ann@db/loops"


# --- what is refused ----------------------------------------------------------------------------------
def test_what_stands_in_the_way_is_told_with_the_address_and_no_password(
    up: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(place: str, kind: type[SufficeError], said: str) -> None:
        for use in (suffice.read, lambda place: Watch(record=place)):
            with pytest.raises(kind, match=said) as error:
                use(place)
            assert PASSWORD not in str(error.value)

    wrong = database.replace(PASSWORD, "another-password")
    refused(wrong, UsageError, "PGPASSWORD")
    refused(up.address("nowhere"), UsageError, "nowhere")
    nobody = f"postgresql://ann:{PASSWORD}@127.0.0.1:1/loops"
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:1"):
        suffice.read(nobody)
    with pytest.raises(DataError, match="no record yet"):
        suffice.read(database)
    foreign, newer = up.database(), up.database()
    up.ask(foreign, "CREATE TABLE runs (x int)")
    refused(foreign, DataError, "table runs")
    record(newer, "q")
    up.ask(newer, f"UPDATE suffice SET version = {VERSION + 1}")
    refused(newer, DataError, f"version {VERSION + 1}")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    refused(database, MissingExtra, r"suffice\[postgres\]")


def test_tables_of_others_stay_and_a_schema_parts_those_of_one_name(
    up: Server, database: str
) -> None:
    up.ask(database, "CREATE TABLE bills (x int)", "INSERT INTO bills VALUES (1)")
    record(database, "q")
    assert up.ask(database, "SELECT x FROM bills") == [(1,)]
    foreign = up.database()
    up.ask(foreign, "CREATE TABLE runs (x int)", "CREATE SCHEMA loops")
    record(f"{foreign}?options=-csearch_path%3Dloops", "q")
    assert kept(f"{foreign}?options=-csearch_path%3Dloops").keys() == {"q"}
    assert up.ask(foreign, "SELECT count(*) FROM runs") == [(0,)]


def test_a_record_without_texts_stays_one(database: str) -> None:
    with Watch(record=database, texts="no-texts") as watch, watch.question("Who?") as loop:
        loop.observe(answer="Oslo")
    assert "Oslo" not in str(kept(database))
    with pytest.raises(UsageError, match="no-texts"):
        Watch(record=database)


# --- what is kept -------------------------------------------------------------------------------------
def test_every_command_reads_it_and_none_tells_the_password(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(database, "q0", "q1", "q2")
    labels = tmp_path / "labels.jsonl"
    labels.write_text('{"question_id": "q1", "gold_answers": ["Skien"]}\n')
    policy = tmp_path / "policy.json"
    suffice.save_policy(FixedPolicy(1), policy, max_rounds=2)
    for words in (
        ["traces", "info", database],
        ["traces", "validate", database],
        ["traces", "label", database, str(labels)],
        ["traces", "export", database, "--format", "parquet", "--out", str(tmp_path / "out")],
        ["replay", database, "--metric", "agreement", "--json"],
        ["monitor", database, "--policy", str(policy)],
        ["view", database, "--bundle", str(tmp_path / "page")],
        ["traces", "prune", database, "--keep-days", "1"],
    ):
        assert main(words) == 0, words
    told = capsys.readouterr()
    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert PASSWORD not in told.out + told.err
    assert not any(PASSWORD.encode() in content for content in written)
    assert kept(str(tmp_path / "out"))["q1"].gold.answers == ("Skien",)


def test_texts_that_postgresql_cannot_hold_are_kept_but_for_one_letter(database: str) -> None:
    with Watch(record=database) as watch:
        with watch.question("a\0b", question_id="n\0") as loop:
            loop.observe(answer="c\0\ud800d")
        watch.label("n\0", gold_answers=["x"])
    (held,) = kept(database).values()
    assert held.question.text == "a�b"
    assert held.rounds[0].answer_text[:2] == "c\0"
    assert held.gold.answers == ("x",)


# --- a server that goes away ---------------------------------------------------------------------------
def test_a_connection_that_was_cut_between_two_rounds_is_made_anew(
    up: Server, database: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Watch(record=database) as watch, watch.question("?", question_id="q") as loop:
            loop.observe(answer="Oslo")
            up.cut()
            loop.observe(answer="Bergen")
            up.stop()
            up.start()
            loop.observe(answer="Skien")
    assert watch.problem is None
    assert [held.answer for held in kept(database)["q"].rounds] == ["Oslo", "Bergen", "Skien"]


def test_a_server_that_is_away_for_a_while_loses_nothing_and_is_told_once(
    up: Server, database: str
) -> None:
    watch = Watch(record=database, durable=True)
    with watch.question("?", question_id="q") as loop:
        loop.observe(answer="Oslo")
        up.stop("immediate")
        loop.observe(answer="Bergen")
        assert not loop.kept()
        with pytest.warns(SufficeWarning, match="not recorded"), watch.question("?") as other:
            other.observe(answer="Rome")
        with watch.question("?") as other:  # said once: a second warning would be an error
            other.observe(answer="Rome")
        assert watch.failing
        with pytest.raises(SufficeError):
            watch.label("q", score=1.0)
        up.start()
        assert not watch.failing
        loop.observe(answer="Skien")
    watch.close()
    assert watch.counts.lost_questions == 0
    found = kept(database)
    assert [held.answer for held in found["q"].rounds] == ["Oslo", "Bergen", "Skien"]
    assert len(found) == 3


@pytest.mark.parametrize("more", [True, False])
def test_what_a_crash_of_the_server_took_is_written_again(
    up: Server, database: str, more: bool
) -> None:
    """It answers a commit before it writes its log: here as late as it can be told to."""
    up.ask("postgres", "ALTER SYSTEM SET wal_writer_delay = 10000", "SELECT pg_reload_conf()")
    watch = Watch(record=database)
    try:
        with watch.question("?", question_id="first") as loop:
            loop.observe(answer="Oslo")
        time.sleep(1.0)
        running = watch.question("?", question_id="running").begin()
        running.observe(answer="Oslo")
        for number in range(5):
            with watch.question("?", question_id=f"q{number}") as loop:
                loop.observe(answer="Oslo")
                loop.observe(answer="Skien")
        up.stop("immediate")
        up.start()
        assert len(kept(database)) < 6  # else nothing was lost
        if more:
            running.observe(answer="Skien")
            running.end()
    finally:
        up.ask("postgres", "ALTER SYSTEM RESET wal_writer_delay", "SELECT pg_reload_conf()")
    watch.close()
    assert (watch.counts.lost_rounds, watch.counts.lost_questions) == (0, 0)
    found = kept(database)
    assert len(found) == 7
    rounds = {"first": 1, "running": 1 + more}
    assert {name: len(one.rounds) for name, one in found.items()} == {
        name: rounds.get(name, 2) for name in found
    }
    assert found["running"].stopped_by == ("end" if more else "error")


def test_what_waits_when_the_watch_closes_is_lost_and_counted(up: Server, database: str) -> None:
    watch = Watch(record=database)
    loop = watch.question("?", question_id="q").begin()
    loop.observe(answer="Oslo")
    up.stop()
    loop.observe(answer="Bergen")
    with pytest.warns(SufficeWarning):
        loop.end()
    with pytest.warns(SufficeWarning, match="1 round of 1 question"):
        watch.close()
    assert (watch.counts.lost_questions, watch.counts.lost_rounds) == (1, 1)
    up.start()
    assert up.ask(database, "SELECT count(*) FROM rounds") == [(1,)]


def test_a_commit_that_was_not_answered_is_written_once(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    psycopg = pytest.importorskip("psycopg")
    watch = Watch(record=database)
    execute = Connection.execute
    cut: list[int] = []

    def unanswered(own: Connection, statement: str, row: object = ()) -> object:
        done = execute(own, statement, row)  # type: ignore[arg-type]
        if statement == "COMMIT" and cut:
            cut.pop()
            own.raw.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return done

    monkeypatch.setattr(Connection, "execute", unanswered)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with watch.question("?", question_id="q") as loop:
            for answer in ("Oslo", "Bergen", "Skien"):
                cut.append(1)
                loop.observe(answer=answer)
                assert not watch.failing
            cut.append(1)
        assert not watch.failing
    watch.close()
    assert watch.counts.lost_questions == 0
    assert len(kept(database)["q"].rounds) == 3


# --- several machines -----------------------------------------------------------------------------------
def test_a_process_elsewhere_lives_as_long_as_it_is_connected_and_an_hour_more(
    up: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(platform, "node", lambda: "another machine")
        watch = Watch(record=database)
        loop = watch.question("?", question_id="far").begin()
        loop.observe(answer="Oslo")
    record(database, "near")
    up.ask(database, "UPDATE rounds SET time = time - 7200")
    assert kept(database).keys() == {"near"}  # connected
    watch._watching.writer._store.disconnect()  # type: ignore[union-attr]
    assert kept(database).keys() == {"near", "far"}
    up.ask(database, "UPDATE rounds SET time = time + 7000")
    assert kept(database).keys() == {"near"}  # silent for minutes
    loop.observe(answer="Skien")
    loop.end()
    watch.close()
    assert len(kept(database)["far"].rounds) == 2

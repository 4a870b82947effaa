"""Recording of running loops: every round is committed in the call of its loop, and nothing is raised."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from suffice.concurrency import started
from suffice.errors import StorageError, SufficeError
from suffice.trace.durable import process_of
from suffice.trace.engines import NothingThere, Refused, SQLite
from suffice.trace.rounds.records import (
    POLICY_STOP,
    Gold,
    Question,
    QuestionRecord,
    Round,
    StoppedBy,
    Usage,
    as_document,
)
from suffice.trace.store import BUSY_S, END, Connection, Store, end_all, free_id, resumed

if TYPE_CHECKING:
    from suffice.trace.rounds.labels import Label

_AGAIN_S, _LONG_S = 1.0, 0.005  # until what failed is tried again, if that took so long
_MOST_S, _SHARE = 30.0, 20.0  # a try that takes long is made more seldom
_MOST_WAITING = 64 << 20  # bytes that wait for room
_FAILURES = (SufficeError, sqlite3.Error, MemoryError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A question whose loop began; ``explored``: it runs on past its policy's stop; ``stays``: see Loop."""

    question: Question
    gold: Gold = field(default_factory=Gold)
    propensity: float | None = None
    policy_hash: str | None = None
    explored: bool = False
    stays: bool = False


@dataclass(slots=True)
class Lost:
    """Rounds missing from the record, and questions with a missing part."""

    rounds: int = 0
    questions: int = 0
    open: set[str] = field(default_factory=set)
    """Questions under way of which something is lost."""

    def add(self, question_id: str, *, rounds: int = 0, over: bool = False) -> None:
        """Count lost rounds of a question; ``over``: its end is lost."""
        self.questions += question_id not in self.open
        self.rounds += rounds
        (self.open.discard if over else self.open.add)(question_id)


class _DoubtError(Exception):
    """What was written may be gone."""


_IDLE_S, _SOON_S, _MOST_RECENT = 1.0, 5.0, 10_000
_RUN = object()  # stands for the run's number, which is known when it is written
_Statement = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    question: str
    statements: Sequence[_Statement]
    rounds: int = 0
    over: bool = False
    found: _Statement | None = None
    """Finds it where it was written."""
    made: float = field(default_factory=time.monotonic)

    @property
    def bytes(self) -> int:
        return sum(len(cell) for _, row in self.statements for cell in row if isinstance(cell, str))

    def write(self, connection: Connection, run: int, *, again: bool) -> None:
        """Write it; tried ``again``, it may be there already. Refused: another question has its id."""
        if again and self.found is not None and _done(connection, self.found, run).fetchone():
            return
        done = [_done(connection, statement, run).rowcount for statement in self.statements]
        if done[-1] < 1 and (self.rounds or self.over):
            if self.over and _done(connection, (_MOVED, (self.question, run)), run).fetchone():
                return  # another process resumed it, and ends it
            raise Refused(f"question {self.question!r:.60} is gone")


def _done(connection: Connection, statement: _Statement, run: int) -> Any:
    text, row = statement
    return connection.execute(text, [run if cell is _RUN else cell for cell in row])


_OWN = "(SELECT number FROM questions WHERE id = ? AND run = ? AND turn IS NULL)"
_FORGET = "DELETE FROM questions WHERE id = ? AND run = ? AND begun IS NULL"
_BEGIN = (
    'INSERT INTO questions (id, run, text, type, split, "group", gold_answers, gold_passage_ids, policy_hash,'
    " propensity, explored, begun, ended) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ROUND = (
    "INSERT INTO rounds (question, round, content, score, time) SELECT number, ?, ?, ?, ? FROM questions "
    "WHERE id = ? AND run = ? AND turn IS NULL"
)
_HAS_ROUND = "SELECT 1 FROM rounds JOIN questions ON number = question WHERE id = ? AND run = ? AND round = ?"
_HAS_ENDED = "SELECT 1 FROM questions WHERE id = ? AND run = ? AND turn IS NOT NULL"
_MOVED = "SELECT 1 FROM questions WHERE id = ? AND run <> ?"
_LAST = f"UPDATE rounds SET content = ? WHERE question = {_OWN} AND round = ?"  # noqa: S608
_OF_RUN = (
    "SELECT q.id, turn IS NOT NULL, count(*) FROM rounds JOIN questions q ON q.number = question "
    "JOIN runs r ON r.number = q.run WHERE r.token = ? GROUP BY q.id"
)
_PAST = "SELECT round, time, content FROM rounds WHERE question = ? AND round > ? ORDER BY round"
_OTHERS = (
    "SELECT number, coalesce(turn, 0), coalesce((SELECT max(round) FROM rounds WHERE question = number), 0) "
    "FROM questions WHERE (turn IS NULL OR (turn > ? AND ended > ?)) "
    "AND run NOT IN (SELECT number FROM runs WHERE token = ?)"
)


class LoopRecord:
    """A writer of loops to a store, inside the call of the loop; it never raises into a loop.

    ``problem`` holds the first failure, ``failing`` says whether writes fail now, and ``lost`` counts lost
    rounds. Rounds that do not fit the disk wait in memory, with a new try at most once a second. They are
    lost if no try succeeds before the end.
    """

    def __init__(self, place: Path, run: Mapping[str, Any], *, durable: bool = False) -> None:
        self.place = place
        self._store = Store(place, durable=durable, stays=True)
        self.lock: threading.RLock = self._store.lock  # free after a fork
        self._document = json.dumps(run)
        self._stated, self._told, self._renamed = run, dict[str, str](), False
        self.problem: str | None = None
        self.closed: bool = False
        self._begin()
        with suppress(StorageError):  # told with the first round
            self._store.run_documents()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self.token: str = uuid.uuid4().hex  # another one after a fork
        self.minutes: dict[int, float] = {}  # what a budget a day counts, by minute
        self._turn = 0  # up to which ended questions of others were read
        self.running: dict[int, list[tuple[int, int, float]]] = {}  # their round, minute and price
        self.lost: Lost = Lost()
        self._open: dict[str, tuple[int, Round]] = {}  # how many rounds, and the last as recorded
        self._waiting: list[_Entry] = []
        self._bytes = 0  # of what waits
        self._again_at: float | None = None  # when what failed is tried again
        self._run: int | None = None  # its number, once that is written
        # written, and not yet safe from a crash or a cut log
        self._recent: deque[_Entry] = deque(maxlen=_MOST_RECENT)
        self._wrote, self._settling = 0.0, False

    def check_process(self) -> None:
        if os.getpid() != self._pid:
            self._begin()

    @property
    def failing(self) -> bool:
        """Whether the last write failed and still fails."""
        with self.lock:
            self._again_at = None if self._again_at is None else 0.0
            return not (self.closed or self.flush())

    # --- what loops tell -----------------------------------------------------------------------------
    def settle(self, wanted: str) -> str:
        """Return the id, with a number if it is taken, and reserve it."""
        with self.lock:
            writable = not self.closed and self.flush()
            held = {entry.question for entry in self._waiting} | self._open.keys()
            for write in (True, False) if writable else (False,):
                try:
                    with self._store.transaction(write=write) as connection:
                        name = free_id(
                            wanted,
                            lambda id_, by=connection: (
                                id_ in held  # type: ignore[misc]
                                or by.execute(
                                    "SELECT 1 FROM questions WHERE id = ?", (id_,)
                                ).fetchone()
                            ),
                        )
                        if write:
                            row = (name, self._own_run(connection))
                            connection.execute("INSERT INTO questions (id, run) VALUES (?, ?)", row)
                    return name  # noqa: TRY300
                except _FAILURES as error:
                    if write:
                        self._failed(error)
            return free_id(wanted, held.__contains__)

    def resume(self, name: str, *terms: Any) -> QuestionRecord | None:
        """Go on with a question that another process began by the same policy hash and propensity."""
        with self.lock, suppress(*_FAILURES):
            self.check_process()
            if not self.closed and self.flush():
                with self._store.transaction() as connection:
                    record = resumed(connection, name, self._own_run(connection), terms)
                if record is not None:
                    self._open[name] = (len(record.rounds), record.rounds[-1])
                return record
        return None

    def owns(self, name: str) -> bool:
        """Whether no other process resumed the question."""
        with self.lock, suppress(*_FAILURES), self._store.transaction(write=False) as connection:
            found = connection.execute(_MOVED, (name, self._run or 0)).fetchone()
            return self._run is None or found is None
        return True

    def release(self, name: str) -> None:
        """Free the id of a question that ended before a round."""
        self._put(_Entry(question=name, statements=[(_FORGET, (name, _RUN))]))

    def observe(
        self,
        name: str,
        finished: Round,
        *,
        began: Begun | None,
        took_s: float,
        stop: bool | None,
        score: float | None,
    ) -> None:
        """Record a round; ``began`` comes with the first one, ``stop`` is the policy's decision."""
        with self.lock:
            self.check_process()
            usage, signals, now = finished.usage, finished.signals, time.time()
            if stop is not None:
                signals = {**signals, POLICY_STOP: float(stop)}
            if usage.latency_s is None:
                usage = replace(usage, latency_s=took_s + (usage.answer_latency_s or 0.0))
            moment = finished.time or datetime.fromtimestamp(now, UTC)
            finished = replace(finished, usage=usage, signals=signals, time=moment)
            number = 1 if began is not None else self._open.get(name, (0, finished))[0] + 1
            statements = [] if began is None else _beginning(name, began, now)
            row = (number, _content(finished), score, now, name, _RUN)
            statements.append((_ROUND, row))
            found = (_HAS_ROUND, (name, _RUN, number))
            entry = _Entry(question=name, statements=statements, rounds=1, found=found)
            if began is None and name not in self._open:  # what came before was lost
                self._lose([entry])
                return
            self._open[name] = (number, finished)
            self._put(entry)

    def end(self, name: str, stopped_by: StoppedBy | None, last: Round | None = None) -> bool:
        """Record the end; ``last`` replaces the last round. Return whether a kill would lose nothing."""
        with self.lock:
            self.check_process()
            number, recorded = self._open.pop(name, (0, None))
            statements: list[_Statement] = []
            if last is not None and recorded is not None:
                content = _content(_in_place_of(recorded, last))
                statements.append((_LAST, (content, name, _RUN, number)))
            statements.append((END, (time.time(), stopped_by, name, _RUN)))
            found = (_HAS_ENDED, (name, _RUN))
            entry = _Entry(question=name, statements=statements, over=True, found=found)
            if recorded is None:
                self._lose([entry])
                return False
            return self._put(entry)

    def usage_of_others(self, since: float) -> Iterator[tuple[int, int, int, float, Usage]]:
        """Yield question, turn, round, time and usage of other writers' rounds; nothing while writes fail.

        Of questions that ended since the last call and a moment all rounds, of running ones (turn 0) those
        that ``running`` lacks.
        """
        with self.lock:
            self.check_process()
            if self.closed or self._again_at is not None:
                return
            begun = time.monotonic()
            try:
                with suppress(NothingThere), self._store.transaction(write=False) as connection:
                    (last,) = connection.execute("SELECT max(turn) FROM questions").fetchone()
                    questions = connection.execute(_OTHERS, (self._turn, since, self.token))
                    for number, turn, most in sorted(questions.fetchall(), key=itemgetter(1)):
                        past = 0 if turn else max(self.running.get(number, ()), default=(0,))[0]
                        rows = () if most <= past else connection.execute(_PAST, (number, past))
                        for row in [(at, moment, _usage(content)) for at, moment, content in rows]:
                            yield number, turn, *row
                        self._turn = turn or self._turn
                    self._turn = last or 0
            except _FAILURES as error:
                self._failed(error, time.monotonic() - begun)

    def describe(self, told: Mapping[str, str]) -> None:
        """Add to the run document what it does not state; ``several`` where questions differ in it."""
        with self.lock:
            for name, text in told.items():
                self._told[name] = text if self._told.get(name, text) == text else "several"
            document = json.dumps({**self._told, **self._stated})
            self._renamed, self._document = self._renamed or document != self._document, document

    def label(self, label: Label) -> None:
        """Label a question, see :meth:`Store.label`; waiting rounds are written first."""
        self.flush()
        self._store.label(label)
        self._settle_soon()

    def close(self) -> None:
        """End running questions as unfinished; rounds that cannot be written now are lost."""
        with self.lock:
            if self.closed:
                return
            self._again_at = None
            for _ in range(2):  # once more where something recorded was in doubt
                with suppress(_DoubtError):
                    if self.flush() and self._store.connected:
                        self._end_all()
                    break
            self._lose(self._waiting)
            self._waiting = []
            self.closed = True
            self._store.disconnect()

    def _end_all(self) -> None:
        try:
            with self._store.transaction() as connection:
                self._check_doubt()
                end_all(connection, self._own_run(connection))
        except _FAILURES:
            self._check_doubt()

    def _check_doubt(self) -> None:
        """Make sure, while nobody else writes, that what was written is there; else write it anew."""
        if self._store.engine.in_doubt() and self._recent:
            self._recount()
            raise _DoubtError

    # --- writing -------------------------------------------------------------------------------------
    def _put(self, entry: _Entry) -> bool:
        with self.lock:
            if self.closed:
                self.problem = self.problem or "it was closed"
                self._lose([entry])
                return False
            self.check_process()
            self._waiting.append(entry)
            self._bytes += entry.bytes
            return self.flush()

    def kept(self, name: str) -> bool:
        """Whether a kill would lose nothing recorded of a question."""
        return self.flush() and name not in self.lost.open

    def flush(self) -> bool:
        """Write waiting entries; return whether none is left."""
        with self.lock:
            self.check_process()
            store, begun = self._store, time.monotonic()
            if self._again_at is not None and begun < self._again_at:
                return False
            again = self._again_at is not None
            store.wait_s = 0.0 if again else BUSY_S
            try:
                self._renew(store.engine.removed())
                try:
                    self._write(self._waiting, again=again)
                except _DoubtError:
                    self._write(self._waiting, again=True)
                except Refused:  # one by one, so that the others are kept
                    while self._waiting:
                        try:
                            self._write(self._waiting[:1], again=again)
                        except Refused:
                            self._run = None
                            self._lose(self._waiting[:1])
                        del self._waiting[0]
                self._waiting, self._bytes = [], 0
            except _FAILURES as error:
                self._failed(error, time.monotonic() - begun, again=again)
                with suppress(_DoubtError):
                    self._check_doubt()
                if self._bytes > _MOST_WAITING:
                    self._lose(self._waiting)
                    for one in self._waiting:
                        self._open.pop(one.question, None)
                    self._waiting, self._bytes = [], 0
                return False
            finally:
                store.wait_s = BUSY_S
            self._again_at = None
            return True

    def _write(self, entries: Sequence[_Entry], *, again: bool) -> None:
        if not entries:
            return
        alone, now = self._run is None or any(entry.over for entry in entries), time.monotonic()
        with self._store.transaction(alone=alone) as connection:
            self._check_doubt()
            run = self._own_run(connection)
            for entry in entries:
                entry.write(connection, run, again=again)
            if self._renamed:
                row = (self._document, run)
                connection.execute("UPDATE runs SET document = ? WHERE number = ?", row)
        self._run, self._renamed = run, False
        if not self._store.engine.shared:
            entries = [replace(entry, statements=()) for entry in entries]
            self._settle_soon()
        while self._store.engine.shared and self._recent and self._recent[0].made < now - _SOON_S:
            self._recent.popleft()  # a server writes to its disk within a second
        self._recent.extend(entry for entry in entries if entry.found)

    def _settle_soon(self) -> None:
        """Settle the store once nothing was written for a while."""
        self._wrote = time.monotonic()
        if not self._settling:
            self._settling = True
            started(self._settle, "record")

    def _settle(self) -> None:
        while (left := self._wrote + _IDLE_S - time.monotonic()) > 0:
            time.sleep(left)
        with self.lock, suppress(*_FAILURES):
            self._settling, engine = False, self._store.engine
            if isinstance(engine, SQLite) and engine.settle():
                self._recent.clear()

    def _recount(self) -> None:
        """Write again, or count, what a later process will not find: a crash or a cut log took it."""
        engine, gone, run = self._store.engine, [*self._recent], self._run or 0
        self._run = None
        self._recent.clear()
        with suppress(*_FAILURES, OSError), TemporaryDirectory() as folder:
            place = engine.copied(Path(folder)) if isinstance(engine, SQLite) else self.place
            with Store(place).transaction(write=False) as by:
                gone = [e for e in gone if e.found and not _done(by, e.found, run).fetchone()]
        if engine.shared:
            self._waiting, self._again_at = [*gone, *self._waiting], 0.0
        elif gone and isinstance(engine, SQLite):
            engine.give_up()
            self._lose(gone)
            for one in gone:
                self._open.pop(one.question, None)

    def _failed(self, error: Exception, took_s: float = 0.0, *, again: bool = False) -> None:
        pause_s = _AGAIN_S if took_s > _LONG_S else 0.0
        if again:
            pause_s = max(pause_s, min(_SHARE * took_s, _MOST_S) if took_s > _AGAIN_S else 0.0)
        self._again_at = time.monotonic() + pause_s
        self.problem = self.problem or f"{error}"

    def _lose(self, entries: Sequence[_Entry]) -> None:
        for entry in entries:
            self.problem = (
                self.problem or f"question {entry.question!r:.60} is not in {self._store.file}"
            )
            self.lost.add(entry.question, rounds=entry.rounds, over=entry.over)

    def _own_run(self, connection: Connection) -> int:
        """Return the number of this run; the first write announces it and ends runs of dead processes."""
        run, number = self._run, "SELECT number FROM runs WHERE token = ?"
        if run is None and (found := connection.execute(number, (self.token,)).fetchone()) is None:
            self._store.end_the_dead(connection)
            row = (self.token, self._document, platform.node(), process_of(os.getpid()))
            connection.execute(
                "INSERT INTO runs (token, document, host, process) VALUES (?, ?, ?, ?)", row
            )
            found = connection.execute(number, (self.token,)).fetchone()
        run = int(found[0]) if run is None else run
        self._store.engine.hold(run)
        return run

    def _renew(self, old: sqlite3.Connection | None) -> None:
        """Count what was recorded where somebody removed the store; a new one is begun."""
        if old is None:
            return
        self._run, self._turn, self.running = None, 0, {}
        self._recent.clear()
        for name, over, rounds in old.execute(_OF_RUN, (self.token,)).fetchall():
            self.problem = self.problem or f"{self._store.file} was removed"
            self.lost.add(name, rounds=rounds, over=bool(over))
            self._open.pop(name, None)
        old.close()


def _beginning(name: str, began: Begun, now: float) -> list[_Statement]:
    asked, gold = began.question, began.gold
    lists = (json.dumps(texts, ensure_ascii=False) for texts in (gold.answers, gold.passage_ids))
    told = (asked.text, asked.type, asked.split, asked.group, *lists)
    stays = now if began.stays else None
    drawn = (began.policy_hash, began.propensity, int(began.explored), now, stays)
    return [(_FORGET, (name, _RUN)), (_BEGIN, (name, _RUN, *told, *drawn))]


def _usage(content: str) -> Usage:
    counts: Mapping[str, Any] = json.loads(content).get("usage", {})
    return Usage(**{name: count for name, count in counts.items() if isinstance(count, int)})


def _content(finished: Round) -> str:
    return json.dumps(as_document(finished), separators=(",", ":"), ensure_ascii=False)


def _in_place_of(recorded: Round, last: Round) -> Round:
    usage = last.usage
    if usage.latency_s is None and recorded.usage.latency_s is not None:
        before = recorded.usage.latency_s - (recorded.usage.answer_latency_s or 0.0)
        answering = (usage.answer_latency_s or 0.0) + (usage.draft_latency_s or 0.0)
        usage = replace(usage, latency_s=before + answering)
    signals = {**recorded.signals, **last.signals}
    return replace(last, usage=usage, signals=signals, time=recorded.time)

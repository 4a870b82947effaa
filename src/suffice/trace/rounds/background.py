"""Watched loops become a record off their caller's path: a thread, its journal, its Parquet files."""

from __future__ import annotations

import os
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any

from suffice.concurrency import NoThread, started
from suffice.errors import DataError, InternalError, UsageError, plain_file
from suffice.trace.rounds.journal import (
    Names,
    WatchedQuestion,
    begin_line,
    claim,
    end_line,
    head_line,
    journal_name,
    read_journal,
    round_line,
    together,
)
from suffice.trace.rounds.records import (
    POLICY_STOP,
    QuestionRecord,
    Round,
    StoppedBy,
    in_unicode,
)

_PAUSE_S = 0.03
_FULL_QUESTIONS = 256
_FULL_BYTES = 8 << 20
_MOST_WAITING = 10_000
_MOST_UNWRITTEN = 64 << 20
_AGAIN_S = 1.0  # until what failed is tried again where nothing else is to be written


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A question was asked."""

    watched: WatchedQuestion


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A round of it ended, at a POSIX time; ``stop`` is what the policy said of it.

    ``took_s`` are the seconds since the round before, without those of an answer that was asked for apart.
    """

    question_id: str
    round: Round
    time: float
    took_s: float
    stop: bool | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """It ended; ``last`` takes the place of its last round, ``kept`` is told when a kill loses it no more."""

    question_id: str
    stopped_by: StoppedBy | None
    last: Round | None = None
    kept: Future[bool] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class Reached:
    """Asks when a kill loses nothing more of what was put before: ``kept`` is told then."""

    kept: Future[bool] = field(default_factory=Future)


Event = Begun | Finished | Ended | Reached


@dataclass(slots=True)
class Lost:
    """Rounds that are not in the record, and questions of which anything is not."""

    rounds: int = 0
    questions: int = 0
    _open: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, question_id: str, *, rounds: int = 0, over: bool = False) -> None:
        """Of a question so many rounds more; ``over``: its end."""
        with self._lock:
            self.questions += question_id not in self._open
            self.rounds += rounds
            (self._open.discard if over else self._open.add)(question_id)


def _as_recorded(event: Finished) -> Round:
    """The round with what the record says of it and no policy reads."""
    finished, usage, signals = event.round, event.round.usage, event.round.signals
    if event.stop is not None:
        signals = {**signals, POLICY_STOP: float(event.stop)}
    if usage.latency_s is None:
        usage = replace(usage, latency_s=event.took_s + (usage.answer_latency_s or 0.0))
    time = datetime.fromtimestamp(event.time, UTC) if finished.time is None else finished.time
    return replace(finished, usage=usage, signals=signals, time=time)


def _in_place_of(recorded: Round, last: Round) -> Round:
    """The round with its answer, and with what the record says of it."""
    usage = last.usage
    if usage.latency_s is None and recorded.usage.latency_s is not None:
        before = recorded.usage.latency_s - (recorded.usage.answer_latency_s or 0.0)
        usage = replace(usage, latency_s=before + (usage.answer_latency_s or 0.0))
    signals = {**recorded.signals, **last.signals}
    return replace(last, usage=usage, signals=signals, time=recorded.time)


class BackgroundWriter:
    """Writes what loops do to a directory, in a thread of its own; several processes may write to one.

    What was put there is in a journal within moments, all of a question before its ``Ended.kept`` has a
    result. Nothing here raises into a loop: what went wrong first stands in ``problem``, whether it does now
    in ``failing``, and what was not kept is counted in ``lost``. What there is no room for is kept in memory
    for a while and tried again every second; what found none before the end is lost.
    """

    def __init__(self, root: Path, run: Mapping[str, Any]) -> None:
        # loaded here, since a thread that imports holds the loops up
        import suffice.trace.rounds.writer  # noqa: F401

        if root.suffix == ".parquet" or root.is_file():
            raise UsageError(
                f"loops are recorded into a directory; write record={root.with_suffix('')}/"
            )
        self._root = root
        self._run = run
        self.lost = Lost()
        self.problem: str | None = None
        self.failing = False
        self._begin()

    def _begin(self) -> None:
        """Take up work in this process."""
        self._pid = os.getpid()
        self.closed = False
        self.names = Names(self._root)
        self._waiting: deque[Event | None] = deque()
        self._under_way = 0
        self._counting = threading.Lock()
        self._woken = threading.Event()
        self._work = _Work(self._root, self._run, self.lost)
        self._thread = started(self._loop, "watch")

    def expect(self, loops: int) -> None:
        """So many loops more, or fewer, are under way: while there are any their rounds are looked for."""
        with self._counting:
            self._under_way += loops
        if loops > 0:
            self._woken.set()

    def put(self, event: Event) -> None:
        """Hand something over; at once, and whatever happens."""
        if os.getpid() != self._pid:  # a fork has neither the thread nor the journal
            self._work.forget()
            with suppress(NoThread):  # what is put is lost then, which is told
                self._begin()
            self._under_way = 1
        waiting = self._waiting
        if self.closed or len(waiting) > _MOST_WAITING:
            self._lose(event, "it was closed" if self.closed else "its writer is stuck")
            return
        waiting.append(event)  # wakes nobody, which would cost the loop more than all the rest
        if isinstance(event, Ended | Reached):
            self._woken.set()
            if not self._thread.is_alive():
                self._lose_waiting("its writer ended")

    def _lose(self, event: Event, why: str) -> None:
        self.problem = self.problem or why
        if isinstance(event, Ended | Reached):
            event.kept.set_result(False)
        if isinstance(event, Begun):
            self.lost.add(event.watched.question.id)
        elif not isinstance(event, Reached):
            rounds, over = int(isinstance(event, Finished)), isinstance(event, Ended)
            self.lost.add(event.question_id, rounds=rounds, over=over)

    def _lose_waiting(self, why: str) -> None:
        while self._waiting:
            event = self._waiting.popleft()
            if event is not None:
                self._lose(event, why)

    def close(self, timeout: float = 30.0) -> None:
        """Write what is finished as Parquet; what is still put is lost, as is what cannot be written now."""
        if self.closed or os.getpid() != self._pid:
            return
        self.closed = True
        if self._thread.is_alive():
            self._waiting.append(None)
            self._woken.set()
            self._thread.join(timeout)
        self._lose_waiting("its writer is stuck" if self._thread.is_alive() else "its writer ended")

    def _loop(self) -> None:
        left = self._work.left_by_others()
        waiting = self._waiting
        while True:
            # a loop that ends waits for its own rounds, not for what the dead left
            while not waiting and left:
                self._guarded(partial(self._work.recover, left.popleft()))
            idle = _AGAIN_S if self.failing else None
            self._woken.wait(_PAUSE_S if self._under_way or waiting else idle)
            self._woken.clear()
            events: list[Event] = []
            while waiting and len(events) < _FULL_QUESTIONS:
                event = waiting.popleft()
                if event is None:
                    self._take(events)
                    self._guarded(self._work.close)
                    for file in left:
                        self._guarded(partial(self._work.recover, file))
                    return
                events.append(event)
            if events or (self.failing and not self._under_way):
                self._take(events)
            if waiting:
                self._woken.set()

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if not self._guarded(lambda taken=event: self._work.take(taken)):
                self._lose(event, "")
        written = self._guarded(self._work.write)
        turned = written and self._guarded(self._work.turn_if_full)
        self.failing = not turned
        for event in events:
            if isinstance(event, Ended | Reached) and not event.kept.done():
                event.kept.set_result(written)

    def _guarded(self, act: Any) -> bool:
        """Whether it could be done; a thread that dies would take every later loop with it."""
        try:
            act()
        except Exception as error:  # noqa: BLE001
            self.problem = self.problem or f"{type(error).__name__}: {error}"
            return False
        return True


def _written(finished: Round, line_of: Callable[[Round], str]) -> tuple[Round, str]:
    """The round and its line, as a file can hold them."""
    line = line_of(finished)
    try:
        line.encode()
    except UnicodeEncodeError:
        finished = in_unicode(finished)
        line = line_of(finished)
    return finished, line


class _Work:
    """The thread's own: the journal, and the questions that stand in it."""

    def __init__(self, root: Path, run: Mapping[str, Any], lost: Lost) -> None:
        self._root = root
        self._run = run
        self._lost = lost
        self._writer = uuid.uuid4().hex[:12]
        self._number = 0
        self._stream: IO[bytes] | None = None
        self._size = 0
        self._unwritten: list[tuple[bytes, Callable[[], None] | None]] = []  # what its loss is
        self._open: dict[str, WatchedQuestion] = {}
        self._done: list[QuestionRecord] = []
        self._stored: dict[Path, dict[str, int]] = {}  # rounds of every question, by file

    @property
    def _file(self) -> Path:
        return self._root / journal_name(self._writer, self._number)

    def forget(self) -> None:
        """Leave the journal to the process that opened it."""
        if self._stream is not None:
            self._stream.close()

    # --- events ----------------------------------------------------------------------------------
    def take(self, event: Event) -> None:
        if isinstance(event, Begun):
            name = event.watched.question.id
            self._open[name] = event.watched
            self._say(begin_line(event.watched), partial(self._lost.add, name))
        elif isinstance(event, Finished):
            finished, line = _written(
                _as_recorded(event),
                lambda held: round_line(event.question_id, held, event.score),
            )
            self._open[event.question_id].take(finished, event.score)
            self._say(line, partial(self._lost.add, event.question_id, rounds=1))
        elif isinstance(event, Ended):
            self._end(event, partial(self._lost.add, event.question_id, over=True))

    def _end(self, event: Ended, loss: Callable[[], None] | None = None) -> None:
        ended = self._open.pop(event.question_id)
        if event.last is not None and ended.rounds:
            ended.rounds[-1], line = _written(
                _in_place_of(ended.rounds[-1], event.last),
                lambda held: end_line(event.question_id, event.stopped_by, held),
            )
            self._say(line, loss)
        else:
            self._say(end_line(event.question_id, event.stopped_by, None), loss)
        if ended.rounds:
            self._done.append(ended.record(event.stopped_by))

    def _say(self, line: str, loss: Callable[[], None] | None) -> None:
        self._unwritten.append((line.encode() + b"\n", loss))

    # --- files -----------------------------------------------------------------------------------
    def write(self) -> None:
        """Put what was said into the journal."""
        if not (self._root if self._stream is None else self._file).exists():
            self._make_anew()
        if not self._unwritten:
            return
        content = b"".join(line for line, _ in self._unwritten)
        try:
            if self._stream is None:
                self._open_journal()
            self._append(content)
        except OSError:
            if len(content) > _MOST_UNWRITTEN:
                self._drop()
            raise
        self._unwritten.clear()

    def _make_anew(self) -> None:
        """Somebody removed the record: what is known is written again, what stood in Parquet is lost."""
        for gone in [file for file in self._stored if not file.exists()]:
            for name, rounds in self._stored.pop(gone).items():
                self._lost.add(name, rounds=rounds, over=True)
        if self._stream is not None:
            self._turn()
            self._unwritten.clear()

    def turn_if_full(self) -> None:
        """A full journal becomes Parquet."""
        full = len(self._done) >= _FULL_QUESTIONS or self._size >= _FULL_BYTES
        if full and self._stream is not None:
            self._turn()

    def _open_journal(self, *said: str) -> None:
        """A journal that begins with what is ``said``, and is there when all of that stands in it."""
        before = self._stream, self._size
        self._root.mkdir(parents=True, exist_ok=True)
        aside = self._file.with_name(f".{self._file.name}.tmp")
        try:
            self._stream, self._size = aside.open("wb", buffering=0), 0
            claim(self._stream)
            self._append("\n".join((head_line(self._run), *said, "")).encode())
            aside.rename(self._file)
        except OSError:
            if self._stream is not None and self._stream is not before[0]:
                self._stream.close()
            self._stream, self._size = before
            aside.unlink(missing_ok=True)
            raise

    def _append(self, content: bytes) -> None:
        """All of it or nothing."""
        stream = self._stream
        if stream is None:
            raise InternalError("no journal is open")
        try:
            left = memoryview(content)
            while left:
                left = left[stream.write(left) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(stream.fileno(), self._size)
                stream.seek(self._size)
            raise
        self._size += len(content)

    def _drop(self) -> None:
        """Give up what was not written; the journal stays for whoever records here next."""
        for _, loss in self._unwritten:
            if loss is not None:
                loss()
        self._unwritten.clear()
        self._open.clear()
        self._done.clear()
        if self._stream is not None:
            self._stream.close()
            self._stream = None
            self._number += (
                2  # a journal without a next one, so that its open questions count as left
            )

    def _turn(self) -> None:
        """Finished questions to Parquet, unfinished ones to the next journal."""
        full, stream, done = self._file, self._stream, self._done
        self._number += 1
        try:
            if self._open:
                self._open_journal(*self._carried())
            else:
                self._stream = None
        except OSError:
            self._number -= 1  # the full one goes on
            raise
        if full.exists():  # one that cannot be turned stays, and is read as a journal
            self._done = []
        try:
            self._store(done, target := full.with_suffix(".parquet"), self._run)
            self._stored[target] = {one.question.id: len(one.rounds) for one in done}
            self._done = []
            full.unlink(missing_ok=True)
        finally:
            if stream is not None:
                stream.close()

    def _carried(self) -> Iterator[str]:
        for name, watched in self._open.items():
            yield begin_line(watched)
            for number, finished in enumerate(watched.rounds, start=1):
                yield round_line(name, finished, watched.scores.get(number))

    def _store(self, done: list[QuestionRecord], target: Path, run: Mapping[str, Any]) -> None:
        from suffice.trace.rounds.writer import records_to_table
        from suffice.trace.writer import write_table

        if done:
            with together(self._root):
                write_table(records_to_table(done, run), target, listed=True)

    def close(self) -> None:
        """End what is under way as unfinished, and write everything."""
        for name in list(self._open):
            self._end(Ended(question_id=name, stopped_by="error"))
        try:
            self.write()
        except OSError:
            self._drop()
            raise
        if self._stream is not None or self._done:
            self._turn()

    # --- what others left --------------------------------------------------------------------------
    def left_by_others(self) -> deque[Path]:
        """The journals that stand there."""
        return deque(sorted(self._root.glob("watch-*.jsonl")))

    def recover(self, file: Path) -> None:
        """Turn the journal of a process that died into Parquet; what it had not finished ends in error."""
        try:
            stream = plain_file(file).open("rb")
        except (FileNotFoundError, DataError):  # readers say what is none
            return
        with stream:
            if not claim(stream) or not file.exists():
                return
            target = file.with_suffix(".parquet")
            if not target.exists():
                journal = read_journal(file)
                self._store([*journal.finished, *journal.left()], target, journal.run)
            file.unlink()

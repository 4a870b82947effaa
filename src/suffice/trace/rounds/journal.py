"""Loops under way, as JSON lines beside the Parquet files of their record: a kill leaves them readable.

A watched loop's rounds are appended as they happen to ``watch-ID-NUMBER.jsonl``. Of a journal that is full
the finished questions are written to ``watch-ID-NUMBER.parquet``, what is unfinished goes on in the next
number, and the journal is removed. So a question stands in a Parquet file, or else in a journal.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from suffice.errors import DataError, plain_file
from suffice.protocols import strict_json
from suffice.trace.rounds.records import (
    Gold,
    Question,
    QuestionRecord,
    Round,
    StoppedBy,
    as_document,
    round_of_document,
)

VERSION = 1
_NAME = re.compile(r"watch-(\w+)-(\d{5})\.jsonl")
_NAMES = ".watch.names"


@dataclass(slots=True, kw_only=True)
class WatchedQuestion:
    """A question with the rounds that are known of it so far."""

    question: Question
    gold: Gold = field(default_factory=Gold)
    propensity: float | None = None
    policy_hash: str | None = None
    rounds: list[Round] = field(default_factory=list)
    scores: dict[int, float] = field(default_factory=dict)

    def take(self, finished: Round, score: float | None) -> None:
        """The next round."""
        self.rounds.append(finished)
        if score is not None:
            self.scores[len(self.rounds)] = score

    def record(self, stopped_by: StoppedBy | None, *, question_id: str = "") -> QuestionRecord:
        """The question as it is kept, under another id where one is given."""
        asked = replace(self.question, id=question_id) if question_id else self.question
        return QuestionRecord(
            question=asked,
            gold=self.gold,
            rounds=tuple(self.rounds),
            scores=self.scores,
            propensity=self.propensity,
            stopped_by=stopped_by,
            policy_hash=self.policy_hash,
        )


# --- lines ---------------------------------------------------------------------------------------
def head_line(run: Mapping[str, Any]) -> str:
    """The first line of a journal."""
    return _line({"suffice_journal": VERSION, "run": run})


def begin_line(begun: WatchedQuestion) -> str:
    """That a question was asked."""
    return _line(
        {
            "begin": as_document(begun.question),
            "gold": as_document(begun.gold),
            "propensity": begun.propensity,
            "policy_hash": begun.policy_hash,
        }
    )


def round_line(question_id: str, finished: Round, score: float | None) -> str:
    """A round of it."""
    document: dict[str, Any] = {"id": question_id, "round": as_document(finished)}
    return _line(document if score is None else {**document, "score": score})


def end_line(question_id: str, stopped_by: StoppedBy | None, last: Round | None) -> str:
    """That it ended; ``last`` takes the place of its last round."""
    document: dict[str, Any] = {"id": question_id, "end": stopped_by}
    return _line(document if last is None else {**document, "last": as_document(last)})


def _line(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


# --- reading -------------------------------------------------------------------------------------
@dataclass(slots=True, kw_only=True)
class Journal:
    """What stands in a journal; ``damaged`` counts lines that cannot be read, a torn last one not."""

    file: Path
    run: Mapping[str, Any] = field(default_factory=dict)
    finished: list[QuestionRecord] = field(default_factory=list)
    unfinished: dict[str, WatchedQuestion] = field(default_factory=dict)
    damaged: int = 0

    def take(self, line: bytes) -> None:
        """What one line says."""
        document = strict_json(line)
        if "run" in document:
            self.run = dict(document["run"])
        elif "begin" in document:
            asked = Question(**document["begin"])
            gold = {name: tuple(values) for name, values in document["gold"].items()}
            self.unfinished[asked.id] = WatchedQuestion(
                question=asked,
                gold=Gold(**gold),
                propensity=document["propensity"],
                policy_hash=document["policy_hash"],
            )
        elif "round" in document:
            open_ = self.unfinished[document["id"]]
            open_.take(round_of_document(document["round"]), document.get("score"))
        else:
            ended = self.unfinished.pop(document["id"])
            if "last" in document:
                ended.rounds[-1] = round_of_document(document["last"])
            if ended.rounds:
                self.finished.append(ended.record(document["end"]))

    def left(self) -> list[QuestionRecord]:
        """Where its process died: what nobody went on with, as far as it came."""
        if _went_on(self.file):
            return []
        return [left.record("error") for left in self.unfinished.values() if left.rounds]


def _went_on(file: Path) -> bool:
    """Whether what is unfinished in a journal stands in its writer's next one."""
    match = _NAME.fullmatch(file.name)
    if match is None:
        return False
    after = file.with_name(journal_name(match.group(1), int(match.group(2)) + 1))
    return after.exists() or after.with_suffix(".parquet").exists()


def read_journal(file: Path, *, of: str = "") -> Journal:
    """Everything that can be read of a journal; ``of``: one question, and perhaps lines of others."""
    journal = Journal(file=file)
    content = plain_file(file).read_bytes()
    *lines, torn = content.split(b"\n")
    del torn  # empty, or what a kill cut off
    named = json.dumps(of, ensure_ascii=False).encode() if of else b""
    for line in lines:
        if named not in line:
            continue
        try:
            journal.take(line)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            journal.damaged += 1
    return journal


def journal_files(root: Path) -> list[Path]:
    """The journals of a directory whose questions stand in no Parquet file, by name."""
    return sorted(
        file
        for file in root.glob("watch-*.jsonl")
        if _NAME.fullmatch(file.name) and not file.with_suffix(".parquet").exists()
    )


def journals(root: Path) -> list[Journal]:
    """What stands in the journals of a directory, read while their loops may go on.

    What a process that died had not finished ended in error.
    """
    while True:
        try:
            return [_as_it_stands(file) for file in journal_files(root)]
        except FileNotFoundError:
            continue


def _as_it_stands(file: Path) -> Journal:
    with plain_file(file).open("rb") as stream:
        dead = claim(stream)
        journal = read_journal(file)
        if dead and not journal.file.exists():
            raise FileNotFoundError(file)
    if dead:
        journal.finished.extend(journal.left())
    return journal


def journal_name(writer: str, number: int) -> str:
    """What a journal is called."""
    return f"watch-{writer}-{number:05d}.jsonl"


# --- whose it is ---------------------------------------------------------------------------------
def claim(stream: IO[bytes]) -> bool:
    """Whether the journal is now this stream's alone; its lock goes with the process, however it ends.

    Never on a system without such locks.
    """
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def together(root: Path) -> Iterator[None]:
    """One process of a directory at a time; waits."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".watch.lock").open("wb") as stream:
        try:
            import fcntl
        except ImportError:
            pass
        else:
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def free_id(wanted: str, taken: Collection[str]) -> str:
    """The id, or with a number where it is taken: nothing recorded is dropped for its name.

    >>> free_id("q1", {"q1", "q1#2"})
    'q1#3'
    """
    number, name = 1, wanted
    while name in taken:
        number += 1
        name = f"{wanted}#{number}"
    return name


class Names:
    """Ids of a directory's questions, each settled when its question begins.

    Processes tell each other of them by the lines of a hidden file.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._at = -1
        self._looked: set[Path] = set()
        self._files: dict[str, Path | None] = {}  # by id; None: in no Parquet file so far

    def settle(self, wanted: str) -> str:
        """The id, or with a number where it is taken."""
        with self._lock:
            name = ""
            with (
                suppress(OSError),
                self._shared() as stream,
            ):  # what cannot be written is told of rounds
                name = self._claimed(wanted)
                stream.write(f"\n{_line({'id': name})}".encode())
            return name or self._claimed(wanted)

    def release(self, name: str) -> None:
        """Its question ended before a round."""
        with self._lock, suppress(OSError), self._shared() as stream:
            stream.write(f"\n{_line({'free': name})}".encode())

    def file_of(self, name: str) -> Path | None:
        """The Parquet file that holds a question; ``None``: none does."""
        with self._lock:
            if self._files.get(name) is None:
                self._look()
            return self._files.get(name)

    def _claimed(self, wanted: str) -> str:
        name = free_id(wanted, self._files)
        self._files[name] = None
        return name

    @contextmanager
    def _shared(self) -> Iterator[IO[bytes]]:
        with together(self._root), (self._root / _NAMES).open("a+b", buffering=0) as stream:
            if self._at < 0:
                self._look()
                for journal in journals(self._root):
                    held = [*journal.unfinished, *(done.question.id for done in journal.finished)]
                    self._files = dict.fromkeys(held) | self._files
            stream.seek(max(0, self._at) if self._at <= stream.seek(0, 2) else 0)
            for line in stream.read().split(b"\n"):
                with suppress(ValueError, AttributeError):  # torn by a kill
                    for what, name in json.loads(line).items():
                        if what == "id":
                            self._files.setdefault(name)
                        elif self._files.get(name) is None:
                            self._files.pop(name, None)
            self._at = stream.tell()
            yield stream

    def _look(self) -> None:
        """Which questions the Parquet files hold that came since."""
        from suffice.trace.parquet import opened, readable

        for file in {*self._root.glob("[!.]*.parquet")} - self._looked:
            with suppress(DataError), readable(file), opened(file) as parquet:
                ids = parquet.read(columns=["question_id"]).column(0).unique()
                self._files |= dict.fromkeys(ids.to_pylist(), file)
            self._looked.add(file)

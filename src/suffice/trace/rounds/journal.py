"""Loops under way, as JSON lines beside the Parquet files of their record: a kill leaves them readable.

A watched loop's rounds are appended as they happen to ``watch-ID-NUMBER.jsonl``. Of a journal that is full
the finished questions are written to ``watch-ID-NUMBER.parquet``, what is unfinished goes on in the next
number, and the journal is removed. So a question stands in a Parquet file, or else in a journal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

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
        asked = self.question
        if question_id:
            asked = Question(id=question_id, text=asked.text, type=asked.type, split=asked.split)
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
        document = json.loads(line)
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


def read_journal(file: Path) -> Journal:
    """Everything that can be read of a journal.

    Raises
    ------
    FileNotFoundError
        When its loop has turned it into a Parquet file meanwhile.
    """
    journal = Journal(file=file)
    content = file.read_bytes()
    *lines, torn = content.split(b"\n")
    del torn  # empty, or what a kill cut off
    for line in lines:
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
    with file.open("rb") as stream:
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

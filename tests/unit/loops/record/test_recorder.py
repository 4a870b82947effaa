"""The recorder: resume, failures, one writer at a time, interrupts."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from suffice.contracts import Retriever
from suffice.errors import BackendError, DataError, StorageError, SufficeError, UsageError
from suffice.llm.wire import NoReply
from suffice.loops.record.dataset_run import RecorderSettings, Task, record
from suffice.loops.record.session import Progress, RecordSummary
from suffice.trace.recording import RecordWriter, StoredRecord, failures_of
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Gold, Passage, Question, QuestionRecord, Round


class Nothing:
    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        raise AssertionError("not asked")


class Scripted:
    """Two rounds a question; ``broken`` questions fail after the first."""

    def __init__(self, *broken: str, hook: Callable[[str], None] | None = None) -> None:
        self.broken = set(broken)
        self.asked: list[str] = []
        self.hook = hook

    def rounds(self, question: Question, retriever: Retriever) -> Iterator[Round]:
        self.asked.append(question.id)
        yield Round(answer=f"first of {question.id}")
        if self.hook is not None:
            self.hook(question.id)
        if question.id in self.broken:
            raise BackendError(f"no reply for {question.id}")
        yield Round(answer=f"answer of {question.id}")


def tasks(count: int) -> list[Task]:
    return [
        Task(
            question=Question(id=f"q{n:02d}", text=f"{n}?", split="eval"),
            gold=Gold(answers=(f"gold {n}",)),
            retriever=Nothing(),
        )
        for n in range(count)
    ]


def ids(count: int) -> list[str]:
    return [task.question.id for task in tasks(count)]


def recorded(
    out: Path,
    pipeline: Any,
    count: int = 6,
    *,
    run: dict[str, Any] | None = None,
    concurrency: int = 2,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> RecordSummary:
    settings = RecorderSettings(
        run={"model": "m"} if run is None else run, concurrency=concurrency, on_progress=on_progress
    )
    return record(tasks(count), pipeline, out, settings)


@pytest.fixture(params=["folder", "single.parquet"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / "new" / str(request.param)


def test_everything_is_recorded_once(out: Path) -> None:
    seen: list[Progress] = []
    summary = recorded(out, Scripted(), on_progress=seen.append)
    assert summary == RecordSummary(recorded=6, before=0, failed=0)
    assert seen[-1] == Progress(finished=6, failed=0, planned=6)
    assert [each.finished for each in seen] == sorted(each.finished for each in seen)
    traces = read_traces(out)
    assert traces.origin.run == {"model": "m"}
    for made, task in zip(traces.records(), tasks(6), strict=True):
        assert (made.question, made.gold) == (task.question, task.gold)
        assert [r.answer for r in made.rounds] == [
            f"first of {task.question.id}",
            f"answer of {task.question.id}",
        ]


def test_it_says_when_rounds_ended_and_which_questions_ended_early(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    for budget, stopped_by in ((None, None), (2, None), (3, "end")):
        settings = RecorderSettings(
            run={"pipeline": "cumulative"},
            rounds=budget,
            closed_book=lambda question: Round(answer=question.id),
        )
        out = tmp_path / f"{budget}.parquet"
        scripted: Any = Scripted()
        record(tasks(1), scripted, out, settings)
        (made,) = read_traces(out).records()
        assert made.stopped_by == stopped_by
        assert made.closed_book is not None
        ended = [finished.time for finished in (made.closed_book, *made.rounds)]
        assert all(time is not None and before <= time <= datetime.now(UTC) for time in ended)
        assert ended == sorted(time for time in ended if time is not None)


def test_a_second_run_goes_on_where_the_first_stopped(out: Path) -> None:
    recorded(out, Scripted(), count=4)
    again = Scripted()
    assert recorded(out, again, count=7) == RecordSummary(recorded=3, before=4, failed=0)
    assert sorted(again.asked) == ids(7)[4:]
    idle = Scripted()
    assert recorded(out, idle, count=7) == RecordSummary(recorded=0, before=7, failed=0)
    assert idle.asked == []
    assert list(read_traces(out).question_ids) == ids(7)


def test_failures_are_recorded_tried_again_and_cleared(tmp_path: Path) -> None:
    summary = recorded(tmp_path, Scripted("q01", "q04"))
    assert (summary.recorded, summary.failed) == (4, 2)
    assert failures_of(tmp_path) == {"q01": ("no reply for q01", 1), "q04": ("no reply for q04", 1)}
    assert read_traces(tmp_path).origin.failures == 2
    again = Scripted("q04")
    assert recorded(tmp_path, again) == RecordSummary(recorded=1, before=4, failed=1)
    assert sorted(again.asked) == ["q01", "q04"]
    assert failures_of(tmp_path) == {"q04": ("no reply for q04", 2)}
    assert recorded(tmp_path, Scripted()) == RecordSummary(recorded=1, before=5, failed=0)
    assert not failures_of(tmp_path)
    assert list(read_traces(tmp_path).question_ids) == ids(6)


def test_it_gives_up_when_the_first_five_all_fail(tmp_path: Path) -> None:
    broken = Scripted(*ids(40))
    with pytest.raises(
        BackendError, match="all of the last 5 questions failed, the last with: no reply"
    ):
        recorded(tmp_path, broken, count=40, concurrency=1)
    assert len(broken.asked) <= 7
    assert len(failures_of(tmp_path)) == 5
    # the backend is back
    assert recorded(tmp_path, Scripted(), count=40).recorded == 40
    assert not failures_of(tmp_path)


class Refusing(Scripted):
    """Questions by id raise their error in the first round."""

    def __init__(self, errors: Mapping[str, SufficeError]) -> None:
        super().__init__()
        self.errors = errors

    def rounds(self, question: Question, retriever: Retriever) -> Iterator[Round]:
        self.asked.append(question.id)
        if question.id in self.errors:
            raise self.errors[question.id]
        yield Round(answer="fine")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BackendError("answered 400: prompt is too long"), "answered 400: prompt is too long"),
        (DataError("the reply is none"), "the reply is none"),
        (BackendError("the server said \ud83d"), "the server said \ufffd"),
    ],
)
def test_a_refused_question_fails_alone(tmp_path: Path, error: SufficeError, reason: str) -> None:
    summary = recorded(tmp_path, Refusing({"q02": error}))
    assert (summary.recorded, summary.failed) == (5, 1)
    assert failures_of(tmp_path) == {"q02": (reason, 1)}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (UsageError, "answered 401: no such key"),
        (StorageError, "the cache cannot be used: disk full"),
    ],
)
def test_what_would_meet_every_question_ends_it_at_once(
    kind: type[SufficeError], reason: str, tmp_path: Path
) -> None:
    wrong = Refusing({"q02": kind(reason)})
    with pytest.raises(kind, match=reason):
        recorded(tmp_path, wrong, count=40, concurrency=1)
    assert len(wrong.asked) <= 4
    assert not failures_of(tmp_path)
    assert list(read_traces(tmp_path).question_ids) == ["q00", "q01"]


def test_questions_that_always_fail_do_not_keep_the_others_from_being_asked(tmp_path: Path) -> None:
    """Six of them would else look like a backend that is down, run after run."""
    long = {f"q{n:02d}": BackendError(f"prompt {n} is too long") for n in range(1, 7)}
    assert recorded(tmp_path, Refusing(long), count=7, concurrency=1).failed == 6
    again = Refusing(long)
    with pytest.raises(BackendError, match="all of the last 5 questions failed"):
        recorded(tmp_path, again, count=7, concurrency=1)  # nothing else is left
    more = Refusing(long)
    summary = recorded(tmp_path, more, count=12, concurrency=1)
    assert (summary.recorded, summary.failed) == (5, 6)
    assert sorted(more.asked[:5]) == [f"q{n:02d}" for n in range(7, 12)]
    assert {attempts for _, attempts in failures_of(tmp_path).values()} == {2, 3}


class Passing(Scripted):
    """Every question's call fails in passing as ``fails`` says of the calls before."""

    def __init__(self, fails: Callable[[int], bool]) -> None:
        super().__init__()
        self.fails = fails

    def rounds(self, question: Question, retriever: Retriever) -> Iterator[Round]:
        self.asked.append(question.id)
        if self.fails(len(self.asked) - 1):
            raise NoReply("answered 503")
        yield Round(answer="fine")


def test_what_fails_in_passing_is_tried_again_in_the_same_run(tmp_path: Path) -> None:
    one_in_five_fails = Passing(lambda before: before % 5 == 4)
    assert recorded(tmp_path, one_in_five_fails, 30, concurrency=1).whole
    assert len(one_in_five_fails.asked) == 30 + 6 + 1
    assert not failures_of(tmp_path)


def test_a_backend_that_never_answered_is_not_asked_again_and_again(tmp_path: Path) -> None:
    few = Passing(lambda _: True)
    assert recorded(tmp_path, few, 3, concurrency=1).failed == 3
    assert len(few.asked) == 3


def test_a_server_that_wants_to_be_left_alone_ends_it_at_once(tmp_path: Path) -> None:
    wait = NoReply("wants to be left alone until 2027", until=datetime.now(UTC))
    with pytest.raises(BackendError, match=r"until 2027; what was recorded is kept"):
        recorded(tmp_path, Refusing({"q02": wait}), count=40, concurrency=1)
    assert 2 <= read_traces(tmp_path).n_questions <= 4


def test_a_question_without_rounds_is_a_failure(tmp_path: Path) -> None:
    class Empty(Scripted):
        def rounds(self, question: Question, retriever: Retriever) -> Iterator[Round]:
            if question.id != "q03":
                yield Round(answer="x")

    assert recorded(tmp_path, Empty()).failed == 1
    assert failures_of(tmp_path)["q03"][0] == "the retriever returned no passage"


# --- what may not be mixed -----------------------------------------------------------------------
def test_other_settings_are_refused_naming_what_differs(out: Path) -> None:
    recorded(out, Scripted(), run={"model": "small", "rounds": 3, "prompt": "p"})
    with pytest.raises(UsageError) as caught:
        recorded(out, Scripted(), run={"model": "large", "rounds": 3, "seed": 1, "prompt": "p"})
    message = str(caught.value)
    assert "model was 'small', now 'large'" in message
    assert "seed was None, now 1" in message
    assert "rounds" not in message
    assert "choose another --out" in message
    assert read_traces(out).n_questions == 6


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["a", "b", "a"], r"row 2, column question_id: question id 'a' appears twice"),
        (["a", ""], "row 1"),
    ],
)
def test_questions_need_ids_of_their_own(tmp_path: Path, names: list[str], says: str) -> None:
    made = [
        Task(question=Question(id=name, text="?"), gold=Gold(), retriever=Nothing())
        for name in names
    ]
    scripted: Any = Scripted()
    with pytest.raises(DataError, match=says):
        record(made, scripted, tmp_path, RecorderSettings(run={}))


# --- interrupts -----------------------------------------------------------------------------------
def test_an_interrupt_ends_cleanly_and_keeps_what_is_finished(out: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.finished >= 3:
            raise KeyboardInterrupt

    summary = recorded(out, Scripted(), count=30, on_progress=interrupt)
    assert summary.interrupted
    assert 3 <= summary.recorded < 30
    assert read_traces(out).n_questions == summary.recorded
    rest = recorded(out, Scripted(), count=30)
    assert rest == RecordSummary(recorded=30 - summary.recorded, before=summary.recorded, failed=0)
    assert list(read_traces(out).question_ids) == ids(30)
    assert not list(out.parent.glob("**/*.tmp"))


def test_an_interrupt_during_a_write_does_not_lose_it(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write goes on in its own thread while the interrupted one waits for it."""
    plain_add = RecordWriter.add
    main = threading.main_thread().ident
    assert main is not None
    interrupted: list[str] = []

    def slow_add(self: RecordWriter[QuestionRecord], records: Sequence[StoredRecord]) -> None:
        if records and not interrupted:
            interrupted.append(str(records[0][0][0]))
            signal.pthread_kill(main, signal.SIGINT)
            time.sleep(0.05)
        plain_add(self, records)

    monkeypatch.setattr(RecordWriter, "add", slow_add)
    summary = recorded(out, Scripted(), count=8, concurrency=1)
    assert summary.interrupted
    found = read_traces(out).question_ids
    assert set(interrupted) <= set(found)
    assert summary.recorded == len(found) < 8
    assert recorded(out, Scripted(), count=8).before == len(found)
    assert list(read_traces(out).question_ids) == ids(8)


def test_a_defect_in_the_pipeline_is_not_swallowed(tmp_path: Path) -> None:
    class Broken(Scripted):
        def rounds(self, question: Question, retriever: Retriever) -> Iterator[Round]:
            yield Round(answer="x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        recorded(tmp_path, Broken())
    assert recorded(tmp_path, Scripted()).recorded == 6


def test_it_gives_up_on_a_backend_that_goes_down_midway(tmp_path: Path) -> None:
    """After a success of each, ten alike failures of two workers; later questions are not asked."""

    def down(question_id: str) -> None:
        if question_id not in ("q00", "q01"):
            raise BackendError("cannot be reached")

    with pytest.raises(BackendError, match="questions failed, the last with: cannot be reached"):
        recorded(tmp_path, Scripted(hook=down), count=60, concurrency=2)
    assert 10 <= len(failures_of(tmp_path)) <= 20
    assert read_traces(tmp_path).n_questions == 2

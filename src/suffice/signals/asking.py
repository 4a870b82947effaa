"""Ask a model about recorded rounds: a judge about answers, a reranker about passages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from suffice.errors import BackendError
from suffice.protocols import ChatModel, Reranker
from suffice.signals.judge_support import Verdict, judge_support
from suffice.trace.records import LoopView, Passage, Round

if TYPE_CHECKING:
    from suffice.trace.table import TraceSet

__all__ = ["Asked", "Judging", "Reranking", "judge_rounds", "rerank_passages"]

# failures in a row after which the model is taken to be down: so many before the first answer, or so
# many for each question under way
_GIVE_UP_AFTER = 5

_Reply = Verdict | BackendError


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How far it is: rounds for a judge, questions for a reranker."""

    what: Literal["judged", "reranked"]
    finished: int
    failed: int = 0
    planned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """What a judge said.

    Parameters
    ----------
    verdicts
        By row of the trace set's table, of the rounds asked about.
    failures
        The reason by row of each call that failed; these rounds stay without a value.
    left
        Rounds not asked about, because of an interrupt or because the model seems down.
    interrupted
        Whether Ctrl-C ended it.
    """

    verdicts: Mapping[int, Verdict] = field(default_factory=dict)
    failures: Mapping[int, str] = field(default_factory=dict)
    left: int = 0
    interrupted: bool = False

    @property
    def undefined(self) -> int:
        """Rounds with a verdict that is no rating."""
        return sum(each.failure is not None for each in self.verdicts.values())

    @property
    def calls(self) -> Mapping[int, int]:
        """Calls by row, failed ones too."""
        made = {row: each.usage.judge_calls or 0 for row, each in self.verdicts.items()}
        return made | dict.fromkeys(self.failures, 1)

    def tokens(self, name: str) -> int | None:
        """Sum of a token count over the calls answered; ``None``: not reported for all of them."""
        asked = [each.usage for each in self.verdicts.values() if each.usage.judge_calls]
        known = [count for each in asked if (count := getattr(each, name)) is not None]
        return sum(known) if len(known) == len(asked) else None


def judge_rounds(
    traces: TraceSet,
    model: ChatModel,
    wanted: NDArray[np.bool_],
    on_progress: Callable[[Asked], None],
) -> Judging:
    """Ask ``model`` about every row where ``wanted`` (n_rows,) is true.

    A question's rounds are asked in order from one thread, so that a server that keeps prefixes
    evaluates only what is new. A call that fails leaves its round without a value. After five in a
    row (for each question under way, once a call was answered) no further ones are made, and an
    interrupt ends likewise: what was said is returned.

    Raises
    ------
    BackendError
        When every call failed.
    """
    session = _Session(model, int(wanted.sum()), on_progress)
    session.run(_questions(traces, wanted))
    found = session.judging()
    answered = any(each.usage.judge_calls for each in found.verdicts.values())
    if found.failures and not answered and not found.interrupted:
        reason = next(iter(found.failures.values()))
        raise BackendError(
            f"all {len(found.failures)} calls of the judge failed, the first: {reason}"
        )
    return found


def _questions(
    traces: TraceSet, wanted: NDArray[np.bool_]
) -> Iterator[tuple[tuple[int, LoopView], ...]]:
    """For each question with a wanted round: (row, view) of these rounds."""
    row = 0
    for views in traces.views(["passages"]):
        rows = range(row, row + len(views))
        row += len(views)
        chosen = tuple((r, view) for r, view in zip(rows, views, strict=True) if wanted[r])
        if chosen:
            yield chosen


class _Session:
    def __init__(
        self, model: ChatModel, planned: int, on_progress: Callable[[Asked], None]
    ) -> None:
        self._model = model
        self._planned = planned
        self._on_progress = on_progress
        self._concurrency = int(getattr(model, "concurrency", 1))
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._failed_in_a_row = 0
        self._allowed = _GIVE_UP_AFTER
        self._verdicts: dict[int, Verdict] = {}
        self._failures: dict[int, str] = {}
        self._interrupted = False

    def judging(self) -> Judging:
        return Judging(
            verdicts=dict(sorted(self._verdicts.items())),
            failures=dict(sorted(self._failures.items())),
            left=self._planned - len(self._verdicts) - len(self._failures),
            interrupted=self._interrupted,
        )

    def run(self, questions: Iterator[tuple[tuple[int, LoopView], ...]]) -> None:
        pending: set[Future[list[tuple[int, _Reply]]]] = set()
        with ThreadPoolExecutor(self._concurrency) as pool:
            try:
                for each in questions:
                    if self._stop.is_set():
                        break
                    pending.add(pool.submit(self._ask, each))
                    if len(pending) >= self._concurrency:
                        pending = self._take(pending)
                while pending:
                    pending = self._take(pending)
            except KeyboardInterrupt:
                self._stop.set()
                self._interrupted = True
                done, _ = wait(pending)
                self._keep(done)
            except BaseException:
                self._stop.set()
                raise

    def _ask(self, rounds: tuple[tuple[int, LoopView], ...]) -> list[tuple[int, _Reply]]:
        replies: list[tuple[int, _Reply]] = []
        for row, view in rounds:
            if self._stop.is_set():
                break
            try:
                verdict = judge_support(view, self._model)
            except BackendError as error:
                replies.append((row, error))
                self._failed()
            else:
                replies.append((row, verdict))
                if verdict.usage.judge_calls:
                    self._answered()
        return replies

    def _failed(self) -> None:
        with self._lock:
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= self._allowed:
                self._stop.set()

    def _answered(self) -> None:
        with self._lock:
            self._failed_in_a_row = 0
            self._allowed = _GIVE_UP_AFTER * self._concurrency

    def _take(
        self, pending: set[Future[list[tuple[int, _Reply]]]]
    ) -> set[Future[list[tuple[int, _Reply]]]]:
        done, waiting = wait(pending, return_when=FIRST_COMPLETED)
        self._keep(done)
        return waiting

    def _keep(self, done: set[Future[list[tuple[int, _Reply]]]]) -> None:
        for row, reply in (each for future in done for each in future.result()):
            if isinstance(reply, Verdict):
                self._verdicts[row] = reply
            else:
                self._failures[row] = str(reply)
        self._on_progress(
            Asked(
                what="judged",
                finished=len(self._verdicts),
                failed=len(self._failures),
                planned=self._planned,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reranking:
    """What a reranker scored.

    ``scores`` holds by row of the trace set's table the ``rerank_score`` of each of its passages, of
    the rows where one is new; ``calls`` the calls by row; ``passages`` how many were scored.
    """

    scores: Mapping[int, tuple[float | None, ...]]
    calls: Mapping[int, int]
    passages: int


def rerank_passages(
    traces: TraceSet, reranker: Reranker, on_progress: Callable[[Asked], None]
) -> Reranking:
    """Score every passage that has no ``rerank_score`` against its question, each once a question.

    Passages with neither title nor text are left out. A round counts one call when it added a passage
    scored here, as a loop that reranks what it adds would make.

    Raises
    ------
    BackendError
        When the reranker fails or leaves a passage out.
    """
    scores: dict[int, tuple[float | None, ...]] = {}
    calls: dict[int, int] = {}
    passages = row = 0
    for number, views in enumerate(traces.views(["passages"]), start=1):
        rounds = views[-1].rounds
        unscored = _unscored(rounds)
        found = _scores(views[-1].question, unscored, reranker) if unscored else {}
        passages += len(found)
        seen: set[str] = set()
        for each in rounds:
            new = {p.id for p in each.passages or () if p.rerank_score is None and p.id in found}
            if new:
                scores[row] = tuple(
                    found.get(p.id) if p.rerank_score is None else p.rerank_score
                    for p in each.passages or ()
                )
            if new - seen:
                calls[row] = 1
            seen |= new
            row += 1
        on_progress(Asked(what="reranked", finished=number, planned=traces.n_questions))
    return Reranking(scores=scores, calls=calls, passages=passages)


def _unscored(rounds: tuple[Round, ...]) -> dict[str, Passage]:
    found: dict[str, Passage] = {}
    for passage in (each for round_ in rounds for each in round_.passages or ()):
        if passage.rerank_score is None and (passage.title or passage.text):
            found.setdefault(passage.id, passage)
    return found


def _scores(
    question: str, passages: Mapping[str, Passage], reranker: Reranker
) -> Mapping[str, float]:
    ranked = reranker.rerank(question, tuple(passages.values()))
    scores = {each.id: each.rerank_score for each in ranked if each.rerank_score is not None}
    missing = [name for name in passages if name not in scores]
    if missing:
        raise BackendError(f"the reranker gave no score for passage {missing[0]!r} of {question!r}")
    return scores

"""One question in progress: a thread answers it, the event loop streams it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from suffice.concurrency import Aside, Cut, awaited, may_be_cut
from suffice.contracts import Decision, Message, Retriever
from suffice.errors import BackendError, InternalError, SufficeError, SufficeWarning
from suffice.live.answering import Answered, LiveLoop, NothingFound, Tokens
from suffice.live.loop import Loop
from suffice.live.observing import QuestionEnded, RoundEnded
from suffice.loops.calls import ComingAnswer
from suffice.serve.guard import BEHIND, Refusal, failed_behind, refusal_of, too_many
from suffice.trace.rounds.records import STOPPED_BY, Passage, Round, StoppedBy

if TYPE_CHECKING:
    from suffice.serve.service import Served, Service


RECORDED: Mapping[str, StoppedBy] = {
    **{known: known for known in STOPPED_BY},
    "gone": "user",
    "refused": "error",
}
"""The end as a record states it; none for a question that goes on."""
HUNG_UP = 499
_HUNG_UP = "the client hung up"
_QUIET_S = 10.0  # between signs of life
_LOG = logging.getLogger("suffice.serve")
_NOT_BEHIND = (InternalError, NothingFound)


@dataclass(frozen=True, slots=True)
class Searching:
    """A search that begins."""


@dataclass(frozen=True, slots=True)
class Text:
    piece: str


Told = Searching | RoundEnded | Text | Answered | None  # None: nothing happened for a while


@dataclass(kw_only=True, eq=False)
class UnderWay:
    """A question in progress: a thread of its own answers it, the event loop hears of its steps.

    ``async for told in under_way`` gives the steps, the answer last; :meth:`leave` ends it.
    """

    service: Service
    asked: str
    served: Served
    live: LiveLoop
    retriever: Retriever
    watched: Loop
    earlier: tuple[Message, ...] = ()
    streams: bool = False

    def __post_init__(self) -> None:
        self.trace_id: str = self.watched.question_id
        self._rounds: list[RoundEnded] = []
        self._here = asyncio.get_running_loop()
        self._until = self._here.time() + self.service.limits.seconds
        # a model that fails ends before, so that an answer at hand can still be told
        self._ending = self._until - min(1.0, self.service.limits.seconds / 10)
        self._told: asyncio.Queue[Told | Refusal] = asyncio.Queue()
        self._ended = False
        self._entering: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._aside: Aside | None = None
        self._why = _HUNG_UP
        self._refused = Refusal(HUNG_UP, _HUNG_UP)
        self._coming = ComingAnswer()

    @property
    def question(self) -> str:
        """The question that is searched, rewritten where messages came before it."""
        return self.watched.question

    # --- on the event loop -----------------------------------------------------------------------
    async def begin(self, hung_up: Callable[[], Awaitable[object]] | None) -> None:
        """Wait for a place and begin; refuse the question where there is none (429, 499, 504)."""
        places = self.service.places
        self._entering = entering = asyncio.create_task(places.enter())
        if hung_up is not None:
            self._watching = asyncio.create_task(self._leave_when(hung_up))
        try:
            async with asyncio.timeout_at(self._until):
                await entering
            self._began = self._ticked = time.perf_counter()
            self._aside = Aside(self._run)
        except BaseException as error:
            self.leave()
            if entering.done() and not entering.cancelled() and entering.exception() is None:
                places.leave()
            if isinstance(error, TimeoutError):
                raise self._too_late() from None
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task and not task.cancelling():
                raise self._refused from None
            raise

    async def _leave_when(self, hung_up: Callable[[], Awaitable[object]]) -> None:
        await hung_up()
        self._watching = None
        self.end(self._refused)

    def end(self, why: Refusal) -> None:
        """Cut the work and refuse the question; does nothing after the end."""
        self._refused = why
        self.leave(str(why))
        self._put(why)

    def leave(self, why: str = _HUNG_UP) -> None:
        """Cut the work, since nobody waits for it; does nothing after the end."""
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        if self._aside is not None:
            self._why = why
            self._aside.cut(wait=False)
        elif self._entering is not None:
            self._entering.cancel()

    async def __aiter__(self) -> AsyncIterator[Told]:
        while not self._ended:
            quiet_until = self._here.time() + _QUIET_S
            try:
                async with asyncio.timeout_at(min(self._until, quiet_until)):
                    told = await self._told.get()
            except TimeoutError:
                if quiet_until < self._until:
                    yield None
                    continue
                too_late = self._too_late()
                self.leave(str(too_late))
                raise too_late from None
            self._ended = isinstance(told, Answered | Refusal)
            if isinstance(told, Refusal):
                raise told
            yield told

    async def done(self) -> Answered:
        """Wait for the answer; raise a refusal where there is none."""
        ended: Told = None
        async for told in self:  # to its end, so that nothing is left to be closed
            ended = told
        if not isinstance(ended, Answered):
            raise InternalError("a question ended without an end")
        return ended

    def _too_late(self) -> Refusal:
        return Refusal(
            504,
            f"not answered within the {self.service.limits.seconds:g} seconds a request may take",
            kind="server_error",
            code="timeout",
        )

    # --- in the question's thread ----------------------------------------------------------------
    def _put(self, told: Told | Refusal) -> None:
        with suppress(RuntimeError):  # the event loop is over
            self._here.call_soon_threadsafe(self._told.put_nowait, told)

    def _run(self) -> None:
        told: Answered | Refusal = refusal_of(InternalError())
        try:
            told = self._answer()
        except Cut:
            self._end(None, "gone", self._why)
            told = Refusal(HUNG_UP, self._why)
        except Exception as error:  # noqa: BLE001
            self._end(None, "error" if self.watched.rounds else "refused", str(error))
            if isinstance(error, BackendError) and self._here.time() >= self._ending:
                told = self._too_late()
            elif isinstance(error, SufficeError) and not isinstance(error, _NOT_BEHIND):
                told = failed_behind(error, f"question {self.trace_id}")
            else:
                told = refusal_of(error)
                if told.status == 500:
                    _LOG.exception("question %s failed", self.trace_id)
        finally:
            try:
                self.watched.end()
            finally:
                with suppress(RuntimeError):  # the event loop is over
                    self._here.call_soon_threadsafe(self.service.places.leave)
                self._put(told)

    def _answer(self) -> Answered | Refusal:
        watched, live = self.watched, self.live
        watched.begin()
        if watched.done:
            self._end(None, "refused", watched.reason)
            return too_many(watched.reason, "budget_spent", wait_s=60.0)
        with may_be_cut(), awaited(self._ending):
            answered = live.answer(
                self.asked,
                self if self.streams else self.retriever,
                watched=watched,
                follow=self._observed,
                every_answer=watched.explored,
                earlier=self.earlier,
                tell=self._hear if self.streams else None,
            )
        self._end(answered, answered.stopped_by, answered.reason)
        if answered.stopped_by == "error":
            _LOG.error("question %s: %s", self.trace_id, answered.reason)
            answered = replace(answered, reason=BEHIND)
        with suppress(SufficeWarning):  # a record that fails costs no answer, even under -W error
            watched.end()  # what is told whole is in the record, whatever happens then
        told = self._coming.told
        if not answered.answer.startswith(told):
            return Refusal(
                502,
                "the model broke off and was asked again; what was sent is not the answer, ask again",
                kind="upstream_error",
                code="model_failed",
            )
        if self.streams and answered.answer != told:
            self._put(Text(answered.answer.removeprefix(told)))
        return answered

    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        """Pass a query to the retriever, and tell of it."""
        self._put(Searching())
        return self.retriever.retrieve(query, k)

    def _hear(self, piece: str) -> None:
        certain = self._coming.feed(piece)
        if certain:
            self._put(Text(certain))

    def _observed(self, finished: Round, decision: Decision) -> None:
        now = time.perf_counter()
        took_s, self._ticked = now - self._ticked, now
        number = len(self.watched.decisions)
        ended = RoundEnded(number=number, round=finished, decision=decision, took_s=took_s)
        self._rounds.append(ended)
        if self.streams:
            self._put(ended)

    def _end(self, answered: Answered | None, stopped_by: Any, reason: str) -> None:
        observed = self.watched.rounds
        rounds = observed if answered is None else answered.rounds
        ended = QuestionEnded(
            trace_id=self.trace_id,
            endpoint="chat",
            policy=self.served.name,
            policy_hash=self.served.hash,
            model=self.live.model.name,
            text=self.asked,
            rounds=tuple(self._rounds),
            stopped_by=stopped_by,
            reason=reason,
            declined=answered is not None and answered.declined,
            took_s=time.perf_counter() - self._began,
            tokens=Tokens.of(rounds),
            usd=None if answered is None else answered.usd,
        )
        self.service.tell(ended)
        last = rounds[-1] if answered is not None and len(rounds) == len(observed) else None
        self.watched.concluded(last, RECORDED[stopped_by], reason)

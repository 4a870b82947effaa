"""``/v1/loops``: clients' loops, watched over HTTP; a repeated request changes nothing."""

from __future__ import annotations

import asyncio
import hashlib
import math
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Required

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field, with_config
from pydantic_core import to_json

from suffice.errors import DataError
from suffice.live.loop import Loop
from suffice.serve.decisions import AnswerParts, Decided, ObservedRound, observed, told_of
from suffice.serve.guard import Body, Refusal, too_many
from suffice.serve.service import Served, Service
from suffice.trace.rounds.labels import Label
from suffice.trace.rounds.records import StoppedBy
from suffice.trace.values import MOST_INT16


class Failed(Exception):  # noqa: N818 - as a record names the reason
    """The failure of a client's loop, or its idle time."""


# --- bodies ----------------------------------------------------------------------------------------
_BEGUN = {"question": "Where was Ibsen born?", "question_id": "q-17"}
_KNOWN = {"question_id": "q-17", "gold_answers": ["Skien"], "score": 1.0}


class LoopRequest(Body, json_schema_extra={"example": _BEGUN}):
    """A question whose loop begins."""

    question: str
    question_id: str | None = Field(None, description="its name in the record; null: a new one")
    question_type: str | None = None
    split: str | None = None
    gold_answers: list[str] = Field([], description="right answers; no policy sees them")
    gold_passage_ids: list[str] = Field([])
    policy: str | None = Field(None, description="which policy decides; null: the first")


class LoopState(BaseModel):
    """The state of a loop."""

    id: str
    question_id: str = Field(description="its name in the record")
    rounds: int
    done: bool = Field(description="whether the loop is to end")
    ended: bool
    stopped_by: StoppedBy | None
    reason: str
    would_stop: int | None = Field(description="the first round after which the policy said stop")
    answer: str | None
    answer_round: int | None
    explored: bool = Field(
        description="whether it runs to the full budget whatever the policy says"
    )
    policy: str
    policy_hash: str | None


_OF_LOOP = LoopState.model_fields.keys() - {"id", "rounds", "ended", "policy", "policy_hash"}


class LoopRound(ObservedRound, total=False):
    """A finished round with its number from 1; a repeated one gets the same reply."""

    round: Required[Annotated[int, Field(ge=1, le=MOST_INT16)]]
    score: Annotated[
        float | None, Field(description="of what would be returned, 0 to 1; no policy sees it")
    ]


class RoundReply(Decided):
    """A decision after a round, and whether the loop is to end."""

    done: bool


@with_config(json_schema_extra={"example": {"answer": "Skien"}}, extra="forbid", strict=True)
class AnswerRequest(AnswerParts):
    """The answer of a loop at its end."""

    answer: Required[str]


class EndRequest(Body):
    """How a loop ended."""

    error: str | None = Field(None, description="what it failed with")
    reason: str | None = Field(None, description="why the caller ended it")


class QuestionLabel(Body, json_schema_extra={"example": _KNOWN}):
    """A label of a recorded question."""

    question_id: str
    gold_answers: list[str] = Field([])
    question_type: str | None = None
    score: float | None = Field(None, description="of the answer that was returned, 0 to 1")


class Labelled(BaseModel):
    """The question whose label was kept."""

    question_id: str


# --- loops under way -------------------------------------------------------------------------------
@dataclass(slots=True, eq=False, kw_only=True)
class _Session:
    id: str
    loop: Loop | None  # None: it ended, and its rounds are let go
    served: Served
    touched: float
    size: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    last: tuple[int, bytes, RoundReply] | None = None
    over: LoopState | None = None

    def state(self) -> LoopState:
        if self.over is not None:
            return self.over
        loop = self.open()
        return LoopState(
            id=self.id,
            rounds=len(loop.decisions),
            ended=False,
            policy=self.served.name,
            policy_hash=self.served.hash,
            **{name: getattr(loop, name) for name in _OF_LOOP},
        )

    def open(self) -> Loop:
        """Return the loop; refuse the request after its end."""
        if self.loop is None:
            why = self.over.reason if self.over is not None else ""
            said = f"the loop ended ({why}); begin another with POST /v1/loops"
            raise Refusal(409, said, code="ended")
        return self.loop

    def told(self, number: int, content: bytes, following: int) -> RoundReply | None:
        """Return the reply of a repeated round; ``None``: it is the next; refuse any other."""
        if number == following:
            return None
        if self.last is not None and self.last[:2] == (number, content):
            return self.last[2]
        what = "was observed, with another content" if number < following else "comes too soon"
        raise Refusal(
            409,
            f"round {number} {what}; the next is {following}",
            code="wrong_round",
            param="round",
        )


class Loops:
    """Clients' loops in progress, and their routes, which run in threads."""

    def __init__(self, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._limits = service.loops
        self._clock = clock
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Session] = OrderedDict()  # the longest untouched first
        self._over: OrderedDict[str, _Session] = OrderedDict()
        self._labels = (math.inf, clock())  # how many may be sent, since when

    @property
    def under_way(self) -> int:
        return len(self._open)

    @property
    def router(self) -> APIRouter:
        router = APIRouter(tags=["loops"])
        router.post("/v1/loops", status_code=201)(self.begin)
        router.get("/v1/loops/{id}")(self.look)
        router.post("/v1/loops/{id}/rounds")(self.observe)
        router.post("/v1/loops/{id}/answer")(self.answer)
        router.post("/v1/loops/{id}/end")(self.end)
        router.post("/v1/labels")(self.label)
        return router

    # --- the routes --------------------------------------------------------------------------------
    def begin(self, body: LoopRequest) -> LoopState:
        """Begin the loop of a question; refuse a ``question_id`` in progress."""
        served = self._service.served(body.policy)
        held = body.model_dump(exclude={"policy", "question"})
        now = self._clock()
        with self._lock:
            if len(self._open) >= self._limits.under_way:
                oldest = next(iter(self._open.values()))
                wait = self._limits.idle_s - (now - oldest.touched)
                raise too_many(
                    f"{len(self._open):,} loops are under way, which is the limit; end those that are over "
                    "with POST /v1/loops/ID/end",
                    "too_many_loops",
                    min(max(wait, 1.0), 60.0),
                )
            session = _Session(
                id=f"loop-{secrets.token_hex(16)}",
                loop=served.follows.question(body.question, **held).begin(),
                served=served,
                touched=now,
                size=len(to_json(body)),
            )
            self._open[session.id] = session
        return session.state()

    def look(self, id: str) -> LoopState:  # noqa: A002 - the path's
        """Show the state of a loop."""
        with self._held(id) as session:
            return session.state()

    def observe(self, id: str, body: LoopRound) -> RoundReply:  # noqa: A002
        """Take in a finished round and say whether the loop is to go on.

        On return a kill of the service loses nothing of it.
        """
        with self._held(id) as session:
            loop, content = session.open(), to_json(body)
            number, digest = len(loop.decisions), hashlib.sha256(content).digest()
            before = session.told(body["round"], digest, number + 1)
            if before is not None:
                return before
            if loop.done or number >= self._limits.rounds:
                said = loop.reason if loop.done else "no loop may have more"
                raise Refusal(
                    409,
                    f"the loop is to end after round {number} ({said}); POST /v1/loops/{id}/end",
                    code="done",
                )
            self._grow(session, content)
            # done whether or not the client waits, so that its repetition finds it
            reply = self._observed(session, loop, body)
            session.last = body["round"], digest, reply
            loop.kept()
            return reply

    def answer(self, id: str, body: AnswerRequest) -> LoopState:  # noqa: A002
        """Take the answer of a loop that answers once, at its end."""
        with self._held(id) as session:
            loop = session.open()
            self._grow(session, to_json(body))
            loop.answered(**body)
            return session.state()

    def end(self, id: str, body: EndRequest) -> LoopState:  # noqa: A002
        """End a loop; on return a kill of the service loses nothing of it."""
        if body.error is not None and body.reason is not None:
            raise Refusal(400, "give error or reason, not both", param="reason")
        with self._held(id) as session:
            if session.loop is not None:
                if body.reason is not None:
                    session.loop.stop(body.reason)
                self._end(session, None if body.error is None else Failed(body.error))
            return session.state()

    def label(self, body: QuestionLabel) -> Labelled:
        """Label a recorded question, while its loop goes on or later.

        A label is kept once; one that differs from an earlier one is refused.
        """
        self._take_label()
        stated = {**body.model_dump(), "gold_answers": (*body.gold_answers,)}
        Label(**stated)  # refuses what is no label (400)
        try:
            self._service.served().watch.label(**stated)
        except DataError as error:
            unknown = error.column == "question_id"
            status, code = (404, "question_not_found") if unknown else (409, "labelled")
            raise Refusal(status, error.message, code=code, param=error.column) from error
        return Labelled(question_id=body.question_id)

    # --- work --------------------------------------------------------------------------------------
    def _take_label(self) -> None:
        most = self._service.limits.labels_per_minute
        if not most:
            return
        with self._lock:
            left, since = self._labels
            now = self._clock()
            left = min(max(most, 1.0), left + (now - since) * most / 60)
            enough = left >= 1
            self._labels = left - enough, now
        if not enough:
            wait = (1 - left) * 60 / most
            said = f"{most:,g} labels a minute are allowed; wait {wait:.1f} s"
            raise too_many(said, "rate_limit_exceeded", wait)

    @contextmanager
    def _held(self, name: str) -> Iterator[_Session]:
        self.sweep()
        with self._lock:
            session = self._open.get(name) or self._over.get(name)
        if session is None:
            raise Refusal(
                404,
                f"no loop {name!r:.60} here: it never began, ended long ago, or the service was started "
                "anew; begin one with POST /v1/loops",
                code="loop_not_found",
            )
        with session.lock:
            with self._lock:
                session.touched = self._clock()
                if session.id in self._open:
                    self._open.move_to_end(session.id)
            yield session

    def _grow(self, session: _Session, content: bytes) -> None:
        most, size = self._service.limits.loop_bytes, session.size + len(content)
        if size > most:
            raise Refusal(
                413,
                f"a loop may have {most:,} bytes, found {size:,}; POST /v1/loops/{session.id}/end",
                code="loop_too_large",
            )
        session.size = size

    def _observed(self, session: _Session, loop: Loop, body: LoopRound) -> RoundReply:
        earlier = {passage.id for finished in loop.rounds for passage in finished.passages or ()}
        held = {name: part for name, part in body.items() if name not in ("round", "score")}
        decision = loop.observe(observed(held, earlier), score=body.get("score"))
        return RoundReply(**told_of(session.served, loop, decision), done=loop.done)

    # --- ends --------------------------------------------------------------------------------------
    def _end(self, session: _Session, error: Exception | None) -> None:
        loop = session.open()
        loop.end(error, mend=False)
        session.over = session.state().model_copy(update={"ended": True})
        session.loop = session.last = None
        with self._lock:
            self._open.pop(session.id, None)
            self._over[session.id] = session
            if len(self._over) > self._limits.remembered:
                self._over.popitem(last=False)

    def sweep(self) -> None:
        idle_s = self._limits.idle_s
        while True:
            with self._lock:
                session = next(iter(self._open.values()), None)
            if session is None or self._clock() - session.touched < idle_s:
                return
            with session.lock:
                if session.loop is not None and self._clock() - session.touched >= idle_s:
                    self._end(session, Failed(f"nobody touched it for {idle_s:g} s"))

    def close(self) -> None:
        """End all loops as unfinished; their finished rounds are kept."""
        for session in list(self._open.values()):
            with session.lock:
                if session.loop is not None:
                    self._end(session, Failed("the service ended"))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """End idle loops while the service runs, and all loops at its end."""

        async def sweeping() -> None:
            while True:
                await asyncio.sleep(min(max(self._limits.idle_s / 4, 0.05), 15.0))
                await run_in_threadpool(self.sweep)

        task = asyncio.create_task(sweeping())
        try:
            yield
        finally:
            task.cancel()
            await run_in_threadpool(self.close)

"""``/v1/loops``: loops of other languages, watched over HTTP; a repeated request changes nothing."""

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
from typing import Annotated, Any, Required

from fastapi import APIRouter, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from suffice.errors import DataError
from suffice.live.loop import Loop
from suffice.live.watch import Watch
from suffice.serve.decisions import (
    Decided,
    ObservedRound,
    PolicyHeader,
    Reported,
    observed,
    told_of,
)
from suffice.serve.guard import Body, Rates, Refusal, caller_of, too_many
from suffice.serve.service import Served, Service
from suffice.serve.under_way import QuestionBegun, QuestionEnded, RoundEnded, Tokens
from suffice.trace.rounds.labels import Label
from suffice.trace.rounds.records import StoppedBy
from suffice.trace.values import MOST_INT16

_BUSY_S = 5.0


class Failed(Exception):  # noqa: N818 - as a record names the reason
    """What a client says its loop failed with, or that nobody touched it any more."""


# --- bodies ----------------------------------------------------------------------------------------
def _example(**fields: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"example": fields})


class LoopRequest(Body):
    """A question whose loop begins."""

    model_config = _example(question="Where was Ibsen born?", question_id="q-17")

    question: str
    question_id: str | None = Field(None, description="its name in the record; null: a new one")
    question_type: str | None = None
    split: str | None = None
    gold_answers: list[str] = Field([], description="right answers; no policy sees them")
    gold_passage_ids: list[str] = Field([])
    policy: str | None = Field(None, description="which policy decides; null: the first")


class LoopState(BaseModel):
    """A loop as it stands."""

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
    """A finished round, with its number from 1; sent again it is answered again, not observed again."""

    round: Required[Annotated[int, Field(ge=1, le=MOST_INT16)]]
    score: Annotated[
        float | None, Field(description="of what would be returned, 0 to 1; no policy sees it")
    ]


class RoundReply(Decided):
    """What a loop is to do after a round."""

    done: bool


class AnswerRequest(Body):
    """What a loop answered at its end, and what is known of the answer."""

    model_config = _example(answer="Skien")

    answer: str
    response: str | None = None
    answer_starts: int | None = None
    samples: list[str] | None = None
    sample_clusters: list[int] | None = None
    verbalized_confidence: float | None = None
    logprobs: Reported = None
    tokens: Reported = None
    usage: Reported = None


class EndRequest(Body):
    """How a loop ended."""

    error: str | None = Field(None, description="what it failed with")
    reason: str | None = Field(None, description="why the caller ended it")


class LoopLabel(Body):
    """What became known of a loop's question."""

    model_config = _example(gold_answers=["Skien"])

    gold_answers: list[str] = Field([])
    question_type: str | None = None
    score: float | None = Field(None, description="of the answer that was returned, 0 to 1")


class QuestionLabel(LoopLabel):
    """What became known of a recorded question."""

    model_config = _example(question_id="q-17", gold_answers=["Skien"], score=1.0)

    question_id: str


class Labelled(BaseModel):
    """A label was kept."""

    question_id: str


def _digest(body: object) -> tuple[bytes, int]:
    """What tells a body from others, and its bytes."""
    content = to_json(body)
    return hashlib.sha256(content).digest(), len(content)


# --- loops under way -------------------------------------------------------------------------------
@dataclass(slots=True, eq=False, kw_only=True)
class _Session:
    """A loop of a client, and what it was told so far."""

    id: str
    loop: Loop | None  # None: it ended, and its rounds are let go
    served: Served
    watch: Watch
    creation: bytes
    names: tuple[str, ...]
    begun: float
    touched: float
    ticked: float
    size: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    bodies: list[bytes] = field(default_factory=list)
    replies: list[RoundReply] = field(default_factory=list)
    answered: bytes = b""
    over: LoopState | None = None

    def named(self) -> dict[str, Any]:
        """What events say of it."""
        name = self.served.name
        return {"trace_id": self.state().question_id, "endpoint": "loops", "policy": name}

    def state(self) -> LoopState:
        """As it stands."""
        if self.over is not None:
            return self.over
        loop = self.open("is not known")
        return LoopState(
            id=self.id,
            rounds=len(loop.decisions),
            ended=False,
            policy=self.served.name,
            policy_hash=self.served.hash,
            **{name: getattr(loop, name) for name in _OF_LOOP},
        )

    def open(self, otherwise: str) -> Loop:
        """The loop; after its end refused, with what it does not do any more."""
        if self.loop is None:
            why = self.over.reason if self.over is not None else ""
            raise Refusal(
                409,
                f"the loop ended ({why}) and {otherwise}; begin another with POST /v1/loops",
                code="ended",
            )
        return self.loop

    def end(self, error: Exception | None) -> Loop:
        """Leave the loop; what is left of it is its state."""
        loop = self.open("cannot end again")
        loop.end(error, mend=False)
        self.over = self.state().model_copy(update={"ended": True})
        self.loop = None
        self.bodies, self.replies = [], []
        return loop

    def told(self, number: int, body: bytes) -> RoundReply | None:
        """The reply that a repeated round had; ``None``: it is the next one. Any other is refused."""
        following = len(self.replies) + 1
        if number == following:
            return None
        if number < following and self.bodies[number - 1] == body:
            return self.replies[number - 1]
        what = "was observed, with another content" if number < following else "comes too soon"
        raise Refusal(
            409,
            f"round {number} {what}; the next is {following}",
            code="wrong_round",
            param="round",
        )


class Loops:
    """The loops that are followed, and their routes, each of which works in a thread."""

    def __init__(self, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._limits = service.loops
        self._clock = clock
        most = service.limits.labels_per_minute
        self._label_rates = Rates(most, math.ceil(most), clock=clock)
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Session] = OrderedDict()  # the longest untouched first
        self._over: OrderedDict[str, _Session] = OrderedDict()
        self._by_name: dict[str, _Session] = {}

    @property
    def under_way(self) -> int:
        """How many loops are followed now."""
        return len(self._open)

    @property
    def router(self) -> APIRouter:
        """The routes."""
        router = APIRouter(tags=["loops"])
        router.post("/v1/loops", status_code=201)(self.begin)
        router.get("/v1/loops/{id}")(self.look)
        router.post("/v1/loops/{id}/rounds")(self.observe)
        router.post("/v1/loops/{id}/answer")(self.answer)
        router.post("/v1/loops/{id}/end")(self.end)
        router.post("/v1/loops/{id}/label")(self.label)
        router.post("/v1/labels")(self.label_question)
        return router

    # --- the routes --------------------------------------------------------------------------------
    def begin(
        self,
        body: LoopRequest,
        request: Request,
        response: Response,
        idempotency_key: Annotated[
            str,
            Header(max_length=200, description="a random text; repeated, it begins no second loop"),
        ] = "",
        x_suffice_policy: PolicyHeader = None,
    ) -> LoopState:
        """Begin the loop of a question.

        Sent again with the same key it begins no second one (200). A question_id under way is refused.
        """
        policy = body.policy or x_suffice_policy
        caller = getattr(request.state, "caller", "")
        key = idempotency_key and f"{caller}/{idempotency_key}"
        creation, size = _digest([body, policy])
        with self._lock:  # two requests with one key begin one loop
            before = self._begun_before(key, body.question_id, creation)
            session = before or self._new(body, creation, size, policy, key)
        if before is not None:
            response.status_code = 200
        else:
            begun = QuestionBegun(
                **session.named(), policy_hash=session.served.hash, model="", text=body.question
            )
            self._service.tell(begun)
        with self._held(session):
            return session.state()

    def look(self, id: str) -> LoopState:  # noqa: A002 - the path's
        """A loop as it stands."""
        with self._held(self._session(id)) as session:
            return session.state()

    def observe(self, id: str, body: LoopRound) -> RoundReply:  # noqa: A002
        """Take in a finished round and say whether the loop is to go on.

        On return a kill of the service loses nothing of it.
        """
        with self._held(self._session(id)) as session:
            loop, (digest, size) = session.open("observes no further round"), _digest(body)
            before = session.told(body["round"], digest)
            if before is not None:
                return before
            number = len(session.replies)
            if loop.done or number >= self._limits.rounds:
                said = loop.reason if loop.done else "no loop may have more"
                raise Refusal(
                    409,
                    f"the loop is to end after round {number} ({said}); POST /v1/loops/{id}/end",
                    code="done",
                )
            self._grow(session, size)
            # done whether or not the client waits, so that its repetition finds it
            reply = self._observed(session, loop, body)
            session.bodies.append(digest)
            session.replies.append(reply)
            loop.kept()
            return reply

    def answer(self, id: str, body: AnswerRequest) -> LoopState:  # noqa: A002
        """What the loop answered at its end, from the rounds observed; for loops that answer once."""
        with self._held(self._session(id)) as session:
            digest, size = _digest(body)
            if session.answered != digest:
                loop = session.open("takes no further answer")
                self._grow(session, size)
                loop.answered(
                    body.answer, **body.model_dump(exclude={"answer"}, exclude_unset=True)
                )
                session.answered = digest
            return session.state()

    def end(self, id: str, body: EndRequest) -> LoopState:  # noqa: A002
        """End a loop; on return a kill of the service loses nothing of it."""
        if body.error is not None and body.reason is not None:
            raise Refusal(400, "a loop ended by an error or for a reason, not both", param="reason")
        with self._held(self._session(id)) as session:
            if session.loop is not None:
                if body.reason is not None:
                    session.loop.stop(body.reason)
                self._end(session, None if body.error is None else Failed(body.error))
            return session.state()

    def label(self, id: str, body: LoopLabel, request: Request) -> Labelled:  # noqa: A002
        """Say what was right of a loop's question, while it goes on or later."""
        self._label_rates.take(caller_of(request), "labels")
        with self._held(self._session(id)) as session:
            question_id = session.state().question_id
        return _label(session.watch, question_id, body)

    def label_question(self, body: QuestionLabel, request: Request) -> Labelled:
        """Say what was right of a recorded question, by its id in the record."""
        self._label_rates.take(caller_of(request), "labels")
        return _label(self._service.served().watch, body.question_id, body)

    # --- their work --------------------------------------------------------------------------------
    def _begun_before(self, key: str, question_id: str | None, creation: bytes) -> _Session | None:
        if (before := self._by_name.get(key)) is not None:
            if before.creation != creation:
                raise Refusal(
                    409,
                    "the Idempotency-Key came with another body before; every request has its own",
                    code="key_reused",
                )
            return before
        before = self._by_name.get(f"\0{question_id}")
        if before is None or before.over is not None:
            return None
        # its loop is told to nobody but who began it: by the id it could be read, ended and labelled
        raise Refusal(
            409,
            f"the question {question_id!r:.60} is under way; give every question its own id, or none. "
            "A request that may have to be repeated is sent with the header Idempotency-Key, a random text",
            code="under_way",
            param="question_id",
        )

    def _new(
        self, asked: LoopRequest, creation: bytes, size: int, policy: str | None, key: str
    ) -> _Session:
        if len(self._open) >= self._limits.under_way:
            oldest = next(iter(self._open.values()))
            wait = self._limits.idle_s - (self._clock() - oldest.touched)
            raise too_many(
                f"{len(self._open):,} loops are under way, which is the limit; end those that are over with "
                "POST /v1/loops/ID/end",
                "too_many_loops",
                min(max(wait, 1.0), 60.0),
            )
        served, watch = self._service.follow(policy)
        held = asked.model_dump(exclude={"policy", "question"})
        loop = watch.question(asked.question, **held).begin()
        now = self._clock()
        own = asked.question_id and f"\0{asked.question_id}"
        session = _Session(
            id=f"loop-{secrets.token_hex(16)}",
            loop=loop,
            served=served,
            watch=watch,
            creation=creation,
            names=tuple(name for name in (key, own) if name),
            begun=now,
            touched=now,
            ticked=now,
            size=size,
        )
        self._open[session.id] = session
        self._by_name |= dict.fromkeys(session.names, session)
        return session

    def _session(self, name: str) -> _Session:
        with self._lock:
            session = self._open.get(name) or self._over.get(name)
        if session is None:
            raise Refusal(
                404,
                f"no loop {name!r:.60} here: it never began, ended long ago, or the service was started "
                "anew; begin one with POST /v1/loops",
                code="loop_not_found",
            )
        return session

    @contextmanager
    def _held(self, session: _Session) -> Iterator[_Session]:
        """One request of a loop at a time."""
        if not session.lock.acquire(timeout=_BUSY_S):
            raise Refusal(
                409,
                "another request of this loop is being answered; a loop is one client's",
                code="busy",
                headers={"Retry-After": "1"},
            )
        try:
            self._end_if_idle(session)
            with self._lock:
                session.touched = self._clock()
                if session.id in self._open:
                    self._open.move_to_end(session.id)
            yield session
        finally:
            session.lock.release()

    def _grow(self, session: _Session, more: int) -> None:
        most = self._service.limits.loop_bytes
        if session.size + more > most:
            raise Refusal(
                413,
                f"a loop may have {most:,} bytes, found {session.size + more:,}; POST "
                f"/v1/loops/{session.id}/end",
                code="loop_too_large",
            )
        session.size += more

    def _observed(self, session: _Session, loop: Loop, body: LoopRound) -> RoundReply:
        earlier = {passage.id for finished in loop.rounds for passage in finished.passages or ()}
        held = {name: part for name, part in body.items() if name not in ("round", "score")}
        decision = loop.observe(observed(held, earlier), score=body.get("score"))
        before, session.ticked = session.ticked, self._clock()
        number, took_s = len(loop.decisions), session.ticked - before
        last = loop.rounds[-1]
        of = session.named()
        ended = RoundEnded(**of, number=number, round=last, decision=decision, took_s=took_s)
        self._service.tell(ended)
        return RoundReply(**told_of(session.served, loop, decision), done=loop.done)

    # --- ends --------------------------------------------------------------------------------------
    def _end(self, session: _Session, error: Exception | None) -> None:
        """End a loop that is held."""
        loop = session.end(error)
        with self._lock:
            self._open.pop(session.id, None)
            self._over[session.id] = session
            if len(self._over) > self._limits.remembered:
                forgotten = self._over.popitem(last=False)[1]
                for name in forgotten.names:
                    if self._by_name.get(name) is forgotten:
                        del self._by_name[name]
        ended = QuestionEnded(
            **session.named(),
            rounds=len(loop.decisions),
            stopped_by=loop.stopped_by or "end",
            reason=loop.reason,
            took_s=self._clock() - session.begun,
            tokens=Tokens.of(loop.rounds),
        )
        self._service.tell(ended)

    def _is_idle(self, session: _Session) -> bool:
        return self._clock() - session.touched >= self._limits.idle_s

    def _end_if_idle(self, session: _Session) -> None:
        if session.loop is not None and self._is_idle(session):
            self._end(session, Failed(f"nobody touched it for {self._limits.idle_s:g} s"))

    def sweep(self) -> None:
        """End the loops that nobody touched for too long."""
        while True:
            with self._lock:
                session = next(iter(self._open.values()), None)
            if session is None or not self._is_idle(session):
                return
            with session.lock:
                self._end_if_idle(session)

    def close(self) -> None:
        """End everything: loops under way are unfinished, their finished rounds are kept."""
        for session in list(self._open.values()):
            with session.lock:
                if session.loop is not None:
                    self._end(session, Failed("the service ended"))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the service runs: loops that nobody touched end; at its end all of them do."""

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


def _label(watch: Watch, question_id: str, asked: LoopLabel) -> Labelled:
    """Keep a label once, of a question that is recorded; of two that differ the first."""
    stated = {**asked.model_dump(exclude={"question_id"}), "gold_answers": (*asked.gold_answers,)}
    Label(question_id=question_id, **stated)  # refuses what is no label (400)
    try:
        watch.label(question_id, **stated)
    except DataError as error:
        unknown = error.column == "question_id"
        status, code = (404, "question_not_found") if unknown else (409, "labelled")
        raise Refusal(status, error.message, code=code, param=error.column) from error
    return Labelled(question_id=question_id)

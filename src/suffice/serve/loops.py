"""``/v1/loops``: loops of other languages, watched over HTTP; a repeated request changes nothing."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from suffice.errors import DataError, SufficeError
from suffice.live.loop import Loop
from suffice.live.reported import OF_ANSWER
from suffice.live.watch import Watch
from suffice.policies.file import PolicyFile
from suffice.serve.decisions import (
    OBSERVED,
    POLICY_HEADER,
    Decided,
    NamedPolicy,
    Policies,
    Tell,
    Workers,
    json_response,
    observed,
    told_of,
    written,
)
from suffice.serve.events import QuestionBegun, QuestionEnded, RoundEnded
from suffice.serve.openapi import As, Operation, Shape, described, read_body
from suffice.serve.settings import LimitSettings, LoopSettings
from suffice.serve.under_way import Tokens
from suffice.trace.rounds.labels import Label
from suffice.trace.rounds.records import MOST_INT16, Gold, Question, StoppedBy
from suffice.web.bodies import read_json
from suffice.web.guard import Rates, address_of
from suffice.web.replies import Refusal

KEY_HEADER = "Idempotency-Key"
_BUSY_S = 5.0
_MOST_KEY = 200
Clock = Callable[[], float]


class Untouched(Exception):  # noqa: N818 - as a record names the reason
    """A client left its loop."""


class Reported(Exception):  # noqa: N818
    """What a client says its loop failed with."""


# --- bodies ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRequest:
    """A question whose loop begins."""

    question: Annotated[str, As(Question, "text")]
    question_id: str | None = None
    question_type: Annotated[str | None, As(Question, "type")] = None
    split: Annotated[str | None, As(Question)] = None
    gold_answers: Annotated[tuple[str, ...], As(Gold, "answers")] = ()
    gold_passage_ids: Annotated[tuple[str, ...], As(Gold, "passage_ids")] = ()
    policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopState:
    """A loop as it stands."""

    id: str
    question_id: str
    rounds: int
    done: bool
    ended: bool
    stopped_by: StoppedBy | None
    reason: str
    would_stop: int | None
    answer: str | None
    answer_round: int | None
    explored: bool
    policy: str
    policy_hash: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed(Decided):
    """What a loop is to do after a round."""

    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequest:
    """How a loop ended."""

    error: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLabel:
    """What became known of a loop's question."""

    gold_answers: Annotated[tuple[str, ...], As(Label)] = ()
    question_type: Annotated[str | None, As(Label)] = None
    score: Annotated[float | None, As(Label), Shape({"type": ["number", "null"]})] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionLabel(LoopLabel):
    """What became known of a recorded question."""

    question_id: Annotated[str, As(Label)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A label was kept."""

    question_id: str


def _round_schema() -> Mapping[str, Any]:
    number = {
        "type": "integer",
        "minimum": 1,
        "description": "Its number, from 1; sent again it is answered again, not observed again.",
    }
    score = {
        "type": ["number", "null"],
        "description": "Of what would be returned, in 0 to 1; no policy sees it.",
    }
    return {**OBSERVED, "properties": {"round": number, "score": score, **OBSERVED["properties"]}}


ROUND = _round_schema()
ANSWER: Mapping[str, Any] = {
    "type": "object",
    "required": ["answer"],
    "properties": {name: OBSERVED["properties"][name] for name in ("answer", *sorted(OF_ANSWER))},
    "additionalProperties": False,
}


# --- watches ---------------------------------------------------------------------------------------
class Watches:
    """A watch for every policy that has loops; that of a policy read anew is closed after its last loop."""

    def __init__(self, policies: Policies, make: Callable[[PolicyFile], Watch]) -> None:
        self._policies = policies
        self._make = make
        self._lock = threading.Lock()
        self._open: dict[int, tuple[NamedPolicy, Watch]] = {}
        self._loops: Counter[int] = Counter()

    def of(self, name: str | None) -> tuple[NamedPolicy, Watch]:
        """What decides by a name, and its watch, for a loop that is given back when it ended."""
        named = self._policies.named(name)
        with self._lock:
            held = self._open.get(id(named))
            if held is None:
                held = self._open[id(named)] = named, self._make(named.file)
            self._loops[id(named)] += 1
            outdated = self._outdated()
        for watch in outdated:
            watch.close()
        return held

    def give_back(self, named: NamedPolicy) -> None:
        """A loop of it ended."""
        with self._lock:
            self._loops[id(named)] -= 1
            outdated = self._outdated()
        for watch in outdated:
            watch.close()

    def _outdated(self) -> list[Watch]:
        """Take out those that have no loops and whose name stands for another policy now."""
        keys = [
            key
            for key, (named, _) in self._open.items()
            if not self._loops[key] and not self._policies.holds(named)
        ]
        for key in keys:
            del self._loops[key]
        return [self._open.pop(key)[1] for key in keys]

    def any(self) -> Watch:
        """One of them, for what is of the record."""
        with self._lock:
            if self._open:
                return next(iter(self._open.values()))[1]
        named, watch = self.of(self._policies.first)
        self.give_back(named)
        return watch

    def close(self) -> None:
        """End all of them; loops under way end as unfinished."""
        with self._lock:
            watches = [watch for _, watch in self._open.values()]
            self._open.clear()
        for watch in watches:
            watch.close()


# --- loops under way -------------------------------------------------------------------------------
@dataclass(slots=True, eq=False, kw_only=True)
class _Session:
    """A loop of a client, and what it was told so far."""

    id: str
    loop: Loop | None  # None: it ended, and its rounds are let go
    named: NamedPolicy
    watch: Watch
    creation: bytes
    names: tuple[str, ...]
    begun: float
    touched: float
    ticked: float
    size: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    bodies: list[bytes] = field(default_factory=list)
    replies: list[Mapping[str, Any]] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)
    answered: bytes = b""
    over: LoopState | None = None

    def state(self) -> LoopState:
        """As it stands."""
        return self.over or self._state(self.open("is not known"), ended=False)

    def _state(self, loop: Loop, *, ended: bool) -> LoopState:
        return LoopState(
            id=self.id,
            question_id=loop.question_id,
            rounds=len(loop.decisions),
            done=loop.done,
            ended=ended,
            stopped_by=loop.stopped_by,
            reason=loop.reason,
            would_stop=loop.would_stop,
            answer=loop.answer,
            answer_round=loop.answer_round,
            explored=loop.explored,
            policy=self.named.name,
            policy_hash=self.named.hash,
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
        self.over = self._state(loop, ended=True)
        self.loop = None
        self.bodies, self.replies, self.keys = [], [], {}
        return loop

    def told(self, number: Any, key: str, body: bytes) -> Mapping[str, Any] | None:
        """The reply that a repeated round had; ``None``: it is the next one. Neither is refused."""
        following = len(self.replies) + 1
        if key in self.keys:
            if self.bodies[self.keys[key] - 1] != body:
                raise _reused()
            return self.replies[self.keys[key] - 1]
        if number is None and key:
            return None
        if number is None:
            raise Refusal(
                400,
                f"round is missing: send its number, next {following}, so that a repeated request is not "
                f"observed twice; or the header {KEY_HEADER}",
                param="round",
            )
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= MOST_INT16:
            raise Refusal(400, f"round is a whole number from 1, next {following}", param="round")
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
    """The routes of watched loops, and the loops; ``make`` makes the watch of a policy."""

    def __init__(
        self,
        policies: Policies,
        make: Callable[[PolicyFile], Watch],
        *,
        limits: LoopSettings | None = None,
        taken: LimitSettings | None = None,
        tell: Tell | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._watches = Watches(policies, make)
        self._limits = limits or LoopSettings()
        self._taken = taken or LimitSettings()
        self._bodies = self._taken.bodies
        most = self._taken.labels_per_minute
        self._label_rates = Rates(most, math.ceil(most), clock=clock)
        self._tell = tell or (lambda _: None)
        self._clock = clock
        self._workers = Workers("suffice-loops")
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Session] = OrderedDict()  # the longest untouched first
        self._over: OrderedDict[str, _Session] = OrderedDict()
        self._by_name: dict[str, _Session] = {}

    def routes(self) -> list[Route]:
        """For an app."""
        return [
            Route("/v1/loops", self.begin, methods=["POST"]),
            Route("/v1/loops/{id}", self.look, methods=["GET"]),
            Route("/v1/loops/{id}/rounds", self.observe, methods=["POST"]),
            Route("/v1/loops/{id}/answer", self.answer, methods=["POST"]),
            Route("/v1/loops/{id}/end", self.end, methods=["POST"]),
            Route("/v1/loops/{id}/label", self.label, methods=["POST"]),
            Route("/v1/labels", self.label_question, methods=["POST"]),
        ]

    @property
    def under_way(self) -> int:
        """How many loops are followed now."""
        return len(self._open)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the service runs: loops that nobody touched end; at its end all of them do."""
        sweeping = asyncio.create_task(self._sweeping())
        try:
            yield
        finally:
            sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await sweeping
            await self._workers.run(self.close)

    async def _sweeping(self) -> None:
        while True:
            await asyncio.sleep(min(max(self._limits.idle_s / 4, 0.05), 15.0))
            await self._workers.run(self.sweep)

    def sweep(self) -> None:
        """End the loops that nobody touched for too long."""
        while (session := self._longest_untouched()) is not None:
            with session.lock:
                self._end_if_idle(session)

    def _longest_untouched(self) -> _Session | None:
        with self._lock:
            session = next(iter(self._open.values()), None)
        return session if session is not None and self._is_idle(session) else None

    def _is_idle(self, session: _Session) -> bool:
        return self._clock() - session.touched >= self._limits.idle_s

    def _end_if_idle(self, session: _Session) -> None:
        if session.loop is not None and self._is_idle(session):
            self._end(session, Untouched(f"nobody touched it for {self._limits.idle_s:g} s"))

    def close(self) -> None:
        """End everything: loops under way are unfinished, their finished rounds are kept."""
        for session in list(self._open.values()):
            with session.lock:
                if session.loop is not None:
                    self._end(session, Untouched("the service ended"))
        self._watches.close()

    # --- the routes --------------------------------------------------------------------------------
    @described(
        Operation(
            takes=LoopRequest,
            gives={201: LoopState, 200: LoopState},
            example={"question": "Where was Ibsen born?", "question_id": "q-17"},
            headers={
                KEY_HEADER: "any text of the client's: the loop that was begun with it is told again",
                POLICY_HEADER: "which policy decides, where the body does not say",
            },
        )
    )
    async def begin(self, request: Request) -> Response:
        """Begin the loop of a question.

        Sent again with the same key it begins no second one. A question_id that is under way is refused.
        """
        document = await read_json(request, self._bodies)
        return await self._workers.run(
            self._begin, document, _key(request), request.headers.get(POLICY_HEADER)
        )

    @described(Operation(gives={200: LoopState}))
    async def look(self, request: Request) -> Response:
        """A loop as it stands."""
        return await self._workers.run(self._look, request.path_params["id"])

    @described(
        Operation(
            takes=ROUND,
            gives={200: Observed},
            uses=(Observed,),
            example={"round": 1, "answer": "Skien", "passages": ["Ibsen was born in Skien."]},
            headers={KEY_HEADER: "in place of the round's number"},
        )
    )
    async def observe(self, request: Request) -> Response:
        """Take in a finished round and say whether the loop is to go on.

        On return a kill of the service loses nothing of it.
        """
        document = await read_json(request, self._bodies)
        return await self._workers.run(
            self._observe, request.path_params["id"], document, _key(request)
        )

    @described(Operation(takes=ANSWER, gives={200: LoopState}, example={"answer": "Skien"}))
    async def answer(self, request: Request) -> Response:
        """What the loop answered at its end, from the rounds observed; for loops that answer once."""
        document = await read_json(request, self._bodies)
        return await self._workers.run(self._answer, request.path_params["id"], document)

    @described(Operation(takes=EndRequest, gives={200: LoopState}, example={}))
    async def end(self, request: Request) -> Response:
        """End a loop; on return a kill of the service loses nothing of it."""
        document = await read_json(request, self._bodies)
        return await self._workers.run(self._ended, request.path_params["id"], document)

    @described(
        Operation(takes=LoopLabel, gives={200: Labelled}, example={"gold_answers": ["Skien"]})
    )
    async def label(self, request: Request) -> Response:
        """Say what was right of a loop's question, while it goes on or later."""
        document = await self._read_label(request)
        return await self._workers.run(self._label_loop, request.path_params["id"], document)

    @described(
        Operation(
            takes=QuestionLabel,
            gives={200: Labelled},
            example={"question_id": "q-17", "gold_answers": ["Skien"], "score": 1.0},
        )
    )
    async def label_question(self, request: Request) -> Response:
        """Say what was right of a recorded question, by its id in the record."""
        document = await self._read_label(request)
        return await self._workers.run(self._label_question, document)

    async def _read_label(self, request: Request) -> Mapping[str, Any]:
        caller = getattr(request.state, "caller", "") or address_of(request.scope)
        self._label_rates.take(caller, "labels")
        return await read_json(request, self._bodies)

    # --- their work, in a thread -------------------------------------------------------------------
    def _begin(self, document: Mapping[str, Any], key: str, policy: str | None) -> Response:
        asked = read_body(LoopRequest, document)
        policy = asked.policy or policy
        creation, size = _as_sent({**document, "policy": policy})
        with self._lock:  # two requests with one key begin one loop
            session = self._begun_before(key, asked, creation)
            fresh = session is None
            if session is None:
                self._check_room()
                session = self._new(asked, creation, policy, key)
                session.size = size
        if fresh:
            begun = QuestionBegun(
                trace_id=session.state().question_id,
                endpoint="loops",
                policy=session.named.name,
                policy_hash=session.named.hash,
                model="",
                text=asked.question,
            )
            self._tell(begun)
        with self._held(session):
            return json_response(written(session.state()), 201 if fresh else 200)

    def _begun_before(self, key: str, asked: LoopRequest, creation: bytes) -> _Session | None:
        before = self._by_name.get(key)
        if before is not None:
            if before.creation != creation:
                raise _reused()
            return before
        before = self._by_name.get(_by_question(asked.question_id))
        if before is None or before.over is not None:
            return None
        # its loop is told to nobody but who began it: by the id it could be read, ended and labelled
        raise Refusal(
            409,
            f"the question {asked.question_id!r:.60} is under way; give every question its own id, or none. "
            f"A request that may have to be repeated is sent with the header {KEY_HEADER}, a random text",
            code="under_way",
            param="question_id",
        )

    def _check_room(self) -> None:
        if len(self._open) < self._limits.under_way:
            return
        oldest = next(iter(self._open.values()))
        wait = self._limits.idle_s - (self._clock() - oldest.touched)
        raise Refusal(
            429,
            f"{len(self._open):,} loops are under way, which is the limit; end those that are over with POST "
            "/v1/loops/ID/end",
            kind="rate_limit_error",
            code="too_many_loops",
            headers={"Retry-After": str(math.ceil(min(max(wait, 1.0), 60.0)))},
        )

    def _new(self, asked: LoopRequest, creation: bytes, policy: str | None, key: str) -> _Session:
        named, watch = self._watches.of(policy)
        try:
            loop = watch.question(
                asked.question,
                question_id=asked.question_id,
                question_type=asked.question_type,
                split=asked.split,
                gold_answers=asked.gold_answers,
                gold_passage_ids=asked.gold_passage_ids,
            ).begin()
        except SufficeError:
            self._watches.give_back(named)
            raise
        now = self._clock()
        session = _Session(
            id=f"loop-{secrets.token_hex(16)}",
            loop=loop,
            named=named,
            watch=watch,
            creation=creation,
            names=tuple(name for name in (key, _by_question(asked.question_id)) if name),
            begun=now,
            touched=now,
            ticked=now,
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
    def _held(self, session: _Session) -> Iterator[None]:
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
            yield
        finally:
            session.lock.release()

    def _end(self, session: _Session, error: Exception | None) -> None:
        """End a loop that is held."""
        loop = session.end(error)
        with self._lock:
            self._open.pop(session.id, None)
            self._over[session.id] = session
            forgotten = (
                self._over.popitem(last=False)[1]
                if len(self._over) > self._limits.remembered
                else None
            )
            for name in () if forgotten is None else forgotten.names:
                if self._by_name.get(name) is forgotten:
                    del self._by_name[name]
        spent = Tokens.of(loop.rounds)
        ended = QuestionEnded(
            trace_id=loop.question_id,
            rounds=len(loop.decisions),
            stopped_by=loop.stopped_by or "end",
            reason=loop.reason,
            took_s=self._clock() - session.begun,
            prompt_tokens=spent.prompt,
            cached_tokens=spent.cached,
            completion_tokens=spent.completion,
            error=loop.reason if loop.stopped_by == "error" else "",
        )
        self._tell(ended)
        self._watches.give_back(session.named)

    def _look(self, name: str) -> Response:
        session = self._session(name)
        with self._held(session):
            return json_response(written(session.state()))

    def _observe(self, name: str, document: Mapping[str, Any], key: str) -> Response:
        session = self._session(name)
        with self._held(session):
            loop, (body, size) = session.open("observes no further round"), _as_sent(document)
            before = session.told(document.get("round"), key, body)
            if before is not None:
                return json_response(before)
            number = len(session.replies)
            if loop.done or number >= self._limits.rounds:
                said = loop.reason if loop.done else "no loop may have more"
                raise Refusal(
                    409,
                    f"the loop is to end after round {number} ({said}); POST /v1/loops/{name}/end",
                    code="done",
                )
            self._check_size(session, size)
            # done whether or not the client waits, so that its repetition finds it
            reply = written(self._observed(session, loop, document))
            session.bodies.append(body)
            session.replies.append(reply)
            session.size += size
            if key:
                session.keys[key] = len(session.replies)
            loop.kept()
            return json_response(reply)

    def _check_size(self, session: _Session, more: int) -> None:
        if session.size + more > self._taken.loop_bytes:
            raise Refusal(
                413,
                f"a loop may have {self._taken.loop_bytes:,} bytes, found {session.size + more:,}; POST "
                f"/v1/loops/{session.id}/end",
                code="loop_too_large",
            )

    def _observed(self, session: _Session, loop: Loop, document: Mapping[str, Any]) -> Observed:
        earlier = {passage.id for finished in loop.rounds for passage in finished.passages or ()}
        held = {name: part for name, part in document.items() if name not in ("round", "score")}
        decision = loop.observe(observed(held, earlier), score=document.get("score"))
        before, session.ticked = session.ticked, self._clock()
        ended = RoundEnded(
            trace_id=loop.question_id,
            number=len(loop.decisions),
            round=loop.rounds[-1],
            decision=decision,
            took_s=session.ticked - before,
        )
        self._tell(ended)
        return Observed(**told_of(session.named, loop, decision), done=loop.done)

    def _answer(self, name: str, document: Mapping[str, Any]) -> Response:
        session = self._session(name)
        with self._held(session):
            body, size = _as_sent(document)
            if session.answered != body:
                loop = session.open("takes no further answer")
                self._check_size(session, size)
                held = {part: value for part, value in document.items() if part != "answer"}
                unknown = held.keys() - OF_ANSWER
                if unknown or "answer" not in document:
                    raise Refusal(
                        400,
                        f"send answer, and what is known of it: {', '.join(sorted(OF_ANSWER))}",
                        param=min(unknown, default="answer")[:60],
                    )
                loop.answered(document["answer"], **held)
                session.answered = body
                session.size += size
            return json_response(written(session.state()))

    def _ended(self, name: str, document: Mapping[str, Any]) -> Response:
        asked = read_body(EndRequest, document)
        if asked.error is not None and asked.reason is not None:
            raise Refusal(400, "a loop ended by an error or for a reason, not both", param="reason")
        session = self._session(name)
        with self._held(session):
            if session.loop is not None:
                if asked.reason is not None:
                    session.loop.stop(asked.reason)
                self._end(session, None if asked.error is None else Reported(asked.error))
            return json_response(written(session.state()))

    def _label_loop(self, name: str, document: Mapping[str, Any]) -> Response:
        label = read_body(LoopLabel, document)
        session = self._session(name)
        with self._held(session):
            question_id = session.state().question_id
        return self._label(session.watch, Label(question_id=question_id, **_parts_of(label)))

    def _label_question(self, document: Mapping[str, Any]) -> Response:
        label = read_body(QuestionLabel, document)
        return self._label(
            self._watches.any(), Label(question_id=label.question_id, **_parts_of(label))
        )

    def _label(self, watch: Watch, label: Label) -> Response:
        """Keep a label once, of a question that is recorded; of two that differ the first."""
        try:
            watch.label(label.question_id, **_parts_of(label))
        except DataError as error:
            unknown = error.column == "question_id"
            status, code = (404, "question_not_found") if unknown else (409, "labelled")
            raise Refusal(status, error.message, code=code, param=error.column) from error
        return json_response(written(Labelled(question_id=label.question_id)))


def _parts_of(label: LoopLabel | Label) -> dict[str, Any]:
    return {
        "gold_answers": tuple(label.gold_answers),
        "question_type": label.question_type,
        "score": label.score,
    }


def _key(request: Request) -> str:
    """The client's own key, by whom it is."""
    key = request.headers.get(KEY_HEADER, "")
    if len(key) > _MOST_KEY:
        raise Refusal(400, f"{KEY_HEADER} has at most {_MOST_KEY} letters, found {len(key):,}")
    return f"{getattr(request.state, 'caller', '')}/{key}" if key else ""


def _reused() -> Refusal:
    return Refusal(
        409,
        f"the {KEY_HEADER} came with another body before; every request has its own",
        code="key_reused",
    )


def _by_question(question_id: str | None) -> str:
    return "" if question_id is None else f"\0{question_id}"


def _as_sent(document: Mapping[str, Any]) -> tuple[bytes, int]:
    """What tells a body from others, and its bytes."""
    content = json.dumps(document, sort_keys=True, ensure_ascii=False).encode()
    return hashlib.sha256(content).digest(), len(content)

"""``POST /v1/decisions``: a question and its rounds in, a decision out; nothing is kept."""

from __future__ import annotations

import asyncio
import json
import math
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from suffice.concurrency import room_for_a_thread
from suffice.errors import SufficeError, UsageError, unknown_name
from suffice.live.loop import LiveSettings, Loop, Watching, hash_of
from suffice.live.reported import PARTS, round_of
from suffice.policies.file import PolicyFile
from suffice.protocols import Decision, Signal, StopPolicy
from suffice.scoring import AnswerChoice
from suffice.serve.events import Event, QuestionBegun, QuestionEnded, RoundEnded
from suffice.serve.openapi import As, Operation, Shape, described, read_body, said_of
from suffice.signals.available import lack_live
from suffice.trace.rounds.records import (
    LoopView,
    Question,
    Round,
    as_document,
    round_of_document,
)
from suffice.web.bodies import BodyLimits, read_json
from suffice.web.replies import Refusal, refusal_of

_Made = TypeVar("_Made")
_WORKERS = 8
POLICY_HEADER = "X-Suffice-Policy"
Tell = Callable[[Event], None]


# --- what decides ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPolicy:
    """A policy as clients name it, with all that is computed of it once."""

    name: str
    file: PolicyFile
    hash: str | None
    _budgets: dict[int | None, Watching] = field(default_factory=dict)

    @property
    def policy(self) -> StopPolicy:
        """What decides."""
        return self.file.policy

    def loop(self, question: Question, max_rounds: int | None) -> Loop:
        """A question's loop under a budget; ``None``: that of the policy's file."""
        watching = self._budgets.get(max_rounds)
        if watching is None:
            choice = AnswerChoice.parse(self.policy.needs.returns)
            settings = LiveSettings.of(self.file, max_rounds=max_rounds, choice=choice)
            watching = Watching(settings=settings)
            if len(self._budgets) < 1_000:  # budgets that clients ask for
                self._budgets[max_rounds] = watching
        return Loop(watching, question)


class Policies:
    """What decides, by name: what ``files`` gives now; one that was read again is another policy."""

    def __init__(self, files: Callable[[], Mapping[str, PolicyFile]]) -> None:
        self._files = files
        self._named: dict[str, NamedPolicy] = {}

    def named(self, name: str | None) -> NamedPolicy:
        """The one of a name; without a name the first."""
        files = self._files()
        name = next(iter(files)) if name is None else name
        file = files.get(name)
        if file is None:
            said = unknown_name("policy", name[:100], files)
            raise Refusal(404, said, code="policy_not_found", param="policy")
        named = self._named.get(name)
        if named is None or named.file is not file:
            named = self._named[name] = NamedPolicy(name=name, file=file, hash=hash_of(file.policy))
        return named

    @property
    def first(self) -> str:
        """The name of the first."""
        return next(iter(self._files()))

    def holds(self, named: NamedPolicy) -> bool:
        """Whether it is what its name stands for now."""
        return self._files().get(named.name) is named.file


# --- rounds ----------------------------------------------------------------------------------------
_DOCUMENTS: Mapping[str, Any] = {"type": "array", "items": {"type": ["string", "object"]}}
_REPORTED: Mapping[str, Mapping[str, Any]] = {
    "passages": _DOCUMENTS,
    "logprobs": {"type": ["array", "object", "null"]},
    "tokens": {"type": ["array", "object", "null"]},
    "usage": {"type": ["array", "object", "null"]},
    "answer_usage": {"type": ["array", "object", "null"]},
    "samples": {"type": ["array", "null"], "items": {"type": "string"}},
    "sample_clusters": {"type": ["array", "null"], "items": {"type": "integer"}},
    "candidate_scores": {"type": ["array", "null"], "items": {"type": "number"}},
    "answer_starts": {"type": ["integer", "null"]},
    "verbalized_confidence": {"type": ["number", "null"]},
    "signals": {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
}


def _observed_schema() -> Mapping[str, Any]:
    """A round as ``observe`` takes it: by parts, or whole as a record holds it."""
    said = {name: said_of(Loop.observe, name) or said_of(Round, name) for name in sorted(PARTS)}
    parts = {
        name: {**_REPORTED.get(name, {"type": ["string", "null"]}), "description": text}
        for name, text in said.items()
    }
    whole = {"type": "object", "description": "The round as a record holds it, in place of parts."}
    return {
        "type": "object",
        "properties": {"finished": whole, **parts},
        "additionalProperties": False,
    }


OBSERVED = _observed_schema()


def observed(held: Mapping[str, Any], earlier: Collection[str]) -> Round:
    """A round of what a client sent: ``finished``, or the parts that ``observe`` takes."""
    if "finished" not in held:
        return round_of(held, earlier)
    if len(held) > 1:
        others = ", ".join(sorted(held.keys() - {"finished"}))
        raise UsageError(f"give the round as finished or by its parts, not both; found {others}")
    return round_of_document(held["finished"])


def told_of(named: NamedPolicy, loop: Loop, last: Decision) -> dict[str, Any]:
    """The reply after a loop's last round: fields of :class:`Decided`."""
    view = loop.view
    undefined = (spec for spec in named.policy.specs if math.isnan(loop.signals[spec.name][-1]))
    return {
        "round": len(view.rounds),
        "action": last.action.value,
        "reason": last.reason,
        "values": last.values,
        "confidence": last.confidence,
        "stopped_by": last.stopped_by,
        "undefined": {spec.name: _why(spec, view) for spec in undefined},
        "would_stop": loop.would_stop,
        "answer_round": loop.answer_round,
        "policy": named.name,
        "policy_hash": named.hash,
    }


def _why(spec: Signal, view: LoopView) -> str:
    if spec.name in view.current.signals:
        return "given as undefined"
    lack = lack_live(spec, view)
    if lack is not None and lack.columns:
        return f"the round has no {' and no '.join(lack.columns)}"
    cases = (case.why for case in spec.absences if case.holds(view))
    return next(cases, "undefined in this round")


# --- bodies ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRequest:
    """A question and its rounds so far."""

    question: Annotated[str, As(Question, "text")]
    rounds: Annotated[
        tuple[dict[str, Any], ...], Shape({"type": "array", "minItems": 1, "items": OBSERVED})
    ]
    policy: str | None = None
    question_id: str | None = None
    max_rounds: Annotated[int | None, Shape({"type": ["integer", "null"], "minimum": 1})] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What a policy says after a round."""

    round: int
    action: Annotated[Literal["stop", "continue"], As(Decision)]
    reason: Annotated[str, As(Decision)]
    values: Annotated[Mapping[str, float | None], As(Decision)]
    confidence: Annotated[float | None, As(Decision)]
    stopped_by: Annotated[Literal["policy", "budget"] | None, As(Decision)]
    undefined: Mapping[str, str]
    would_stop: int | None
    answer_round: int | None
    policy: str
    policy_hash: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralRequests:
    """Several questions at once."""

    requests: tuple[DecisionRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeveralDecided:
    """As many replies."""

    decisions: Annotated[
        tuple[Decided, ...],
        Shape(
            {
                "type": "array",
                "items": {
                    "anyOf": [
                        {"$ref": "#/components/schemas/Decided"},
                        {"$ref": "#/components/schemas/Error"},
                    ]
                },
            }
        ),
    ]


EXAMPLE: Mapping[str, Any] = {
    "question": "Where was Ibsen born?",
    "rounds": [
        {"answer": "Oslo", "passages": ["Ibsen died in Oslo."]},
        {"answer": "Skien", "passages": [{"id": "p2", "text": "Ibsen was born in Skien."}]},
        {"answer": "Skien.", "usage": {"prompt_tokens": 812, "completion_tokens": 9}},
    ],
}


def written(reply: Any) -> dict[str, Any]:
    """A reply as JSON, every field of it; what JSON has no numbers for is text."""
    return {part.name: as_document(getattr(reply, part.name)) for part in fields(reply)}


def json_response(document: Mapping[str, Any], status: int = 200) -> Response:
    """A response, its text made where this is called."""
    content = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(content.encode(), status, media_type="application/json")


class Workers:
    """Threads for what must not hold up the event loop."""

    def __init__(self, name: str, most: int = _WORKERS) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)

    async def run(self, work: Callable[..., _Made], *arguments: Any) -> _Made:
        """Its result; work that was begun is done whether or not anybody waits."""
        with room_for_a_thread():
            done = asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *arguments))
        return await done


class Decisions:
    """The route of stateless decisions: so many requests a body, and rounds a request."""

    def __init__(
        self,
        policies: Policies,
        *,
        limits: BodyLimits | None = None,
        tell: Tell | None = None,
        most_requests: int = 256,
        most_rounds: int = 256,
    ) -> None:
        self._policies = policies
        self._limits = limits or BodyLimits()
        self._tell = tell
        self._most_requests = most_requests
        self._most_rounds = most_rounds
        self._workers = Workers("suffice-decisions")

    def routes(self) -> list[Route]:
        """For an app."""
        return [Route("/v1/decisions", self.decide, methods=["POST"])]

    @described(
        Operation(
            takes={
                "anyOf": [
                    {"$ref": "#/components/schemas/DecisionRequest"},
                    {"$ref": "#/components/schemas/SeveralRequests"},
                ]
            },
            gives={
                200: {
                    "anyOf": [
                        {"$ref": "#/components/schemas/Decided"},
                        {"$ref": "#/components/schemas/SeveralDecided"},
                    ]
                }
            },
            uses=(DecisionRequest, SeveralRequests, Decided, SeveralDecided),
            example=EXAMPLE,
            headers={POLICY_HEADER: "which policy decides, where the body does not say"},
        )
    )
    async def decide(self, request: Request) -> Response:
        """Decide about the rounds of a question, or of several.

        Nothing is kept: a request may be repeated. The decision is the one that the policy took in replay and
        takes in a loop of Python, to the bit.
        """
        document = await read_json(request, self._limits)
        named = request.headers.get(POLICY_HEADER)
        return await self._workers.run(self._response, document, named)

    def _response(self, document: Mapping[str, Any], named: str | None) -> Response:
        if "requests" not in document:
            return json_response(self._decided(document, named))
        requests = document["requests"]
        if len(document) > 1 or not isinstance(requests, list):
            raise Refusal(400, "several are sent as {'requests': [...]} alone", param="requests")
        if len(requests) > self._most_requests:
            raise Refusal(
                400,
                f"a body may hold {self._most_requests} requests, found {len(requests)}",
                param="requests",
            )
        return json_response({"decisions": [self._one_of(one, named) for one in requests]})

    def _one_of(self, document: Any, named: str | None) -> Mapping[str, Any]:
        """The reply to one of several."""
        try:
            return self._decided(document, named)
        except Refusal as refusal:
            return refusal.document
        except SufficeError as error:
            return refusal_of(error).document

    def _decided(self, document: Any, named: str | None) -> Mapping[str, Any]:
        begun = time.perf_counter()
        if not isinstance(document, dict):
            raise Refusal(400, f"a request is an object, found {document!r:.60}", param="requests")
        asked = read_body(DecisionRequest, document)
        if not 1 <= len(asked.rounds) <= self._most_rounds:
            raise Refusal(
                400,
                f"rounds holds 1 to {self._most_rounds} rounds, found {len(asked.rounds)}",
                param="rounds",
            )
        policy = self._policies.named(asked.policy or named)
        if asked.max_rounds is not None and asked.max_rounds < 1:
            raise Refusal(
                400, f"max_rounds is at least 1, found {asked.max_rounds}", param="max_rounds"
            )
        reply, last, decision = decided(asked, policy)
        if self._tell is not None:
            took_s = time.perf_counter() - begun
            for event in _events(asked.question, reply, last, decision, took_s):
                self._tell(event)
        return written(reply)


def _events(
    question: str, reply: Decided, last: Round, decision: Decision, took_s: float
) -> tuple[Event, ...]:
    name = uuid.uuid4().hex
    return (
        QuestionBegun(
            trace_id=name,
            endpoint="decisions",
            policy=reply.policy,
            policy_hash=reply.policy_hash,
            model="",
            text=question,
        ),
        RoundEnded(trace_id=name, number=reply.round, round=last, decision=decision, took_s=took_s),
        QuestionEnded(
            trace_id=name,
            rounds=reply.round,
            stopped_by=reply.stopped_by or "goes-on",
            reason=reply.reason,
            took_s=took_s,
        ),
    )


def decided(asked: DecisionRequest, named: NamedPolicy) -> tuple[Decided, Round, Decision]:
    """What a policy says of a question's rounds, the last of them, and the decision."""
    name = asked.question if asked.question_id is None else asked.question_id
    loop = named.loop(Question(id=name, text=asked.question), asked.max_rounds)
    rounds: list[Round] = []
    earlier: set[str] = set()
    for number, held in enumerate(asked.rounds, start=1):
        try:
            rounds.append(observed(held, earlier))
        except SufficeError as error:
            raise Refusal(400, f"round {number}: {error}", param="rounds") from error
        earlier.update(passage.id for passage in rounds[-1].passages or ())
    last = loop.follow_all(rounds)
    return Decided(**told_of(named, loop, last)), rounds[-1], last

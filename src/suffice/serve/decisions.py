"""``POST /v1/decisions``: a question and its rounds in, a decision out; nothing is kept."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from suffice.contracts import Decision
from suffice.errors import SufficeError, UsageError
from suffice.live.loop import Loop
from suffice.live.observing import QuestionEnded, RoundEnded
from suffice.live.reported import round_of
from suffice.serve.guard import Body, Refusal
from suffice.serve.service import Served, Service
from suffice.signals.known_signals import SignalSpec
from suffice.signals.signal_table import lack_live
from suffice.trace.rounds.records import LoopView, Question, Round, round_of_document

_MOST = 256  # rounds of a question

Number = float | Literal["nan", "inf", "-inf"]
Reported = Annotated[
    list[Any] | dict[str, Any] | None,
    Field(description="as OpenAI, LangChain or llama.cpp report it"),
]


class AnswerParts(TypedDict, total=False):
    """What came with an answer."""

    response: Annotated[str | None, Field(description="the whole reply that the answer is part of")]
    answer_starts: Annotated[int | None, Field(description="where the answer begins in response")]
    logprobs: Reported
    tokens: Reported
    usage: Reported
    samples: Annotated[list[str] | None, Field(description="answers sampled in this round")]
    sample_clusters: Annotated[
        list[int] | None, Field(description="which samples mean the same, a number each")
    ]
    verbalized_confidence: Annotated[
        float | None, Field(description="the model's own confidence, from 0 to 1")
    ]


@with_config(extra="forbid", strict=True)
class ObservedRound(AnswerParts, total=False):
    """A round in parts, as ``observe`` takes them, or whole, as a record holds it."""

    finished: Annotated[dict[str, Any], Field(description="the round as a record holds it")]
    answer: Annotated[str | None, Field(description="the answer drafted in this round")]
    query: Annotated[str | None, Field(description="what was sent to the retriever")]
    action: Annotated[str | None, Field(description="what the loop did")]
    intermediate_answer: Annotated[str | None, Field(description="the answer to a sub-question")]
    passages: Annotated[
        list[Any] | None, Field(description="texts or documents, in rank order, new or found again")
    ]
    answer_usage: Reported
    candidate_scores: Annotated[list[Number] | None, Field(description="scores of candidates")]
    signals: Annotated[
        dict[str, Number | None], Field(description="signals of your own; null: undefined")
    ]


class DecisionRequest(Body):
    """A question and its rounds so far."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={
            "example": {
                "question": "Where was Ibsen born?",
                "rounds": [
                    {"answer": "Oslo", "passages": ["Ibsen died in Oslo."]},
                    {"answer": "Skien", "passages": [{"id": "p2", "text": "Born in Skien."}]},
                    {"answer": "Skien.", "usage": {"prompt_tokens": 812, "completion_tokens": 9}},
                ],
            }
        }
    )

    question: str
    rounds: list[ObservedRound] = Field(min_length=1, max_length=_MOST)
    policy: str | None = Field(None, description="which policy decides; null: the first")
    question_id: str | None = Field(None, description="decides ties and coins; null: the question")
    max_rounds: int | None = Field(None, ge=1, description="the budget; null: of the policy's file")


class Decided(BaseModel):
    """A policy's decision after a round."""

    round: int = Field(description="the number of the last round, from 1")
    action: Literal["stop", "continue"]
    reason: str = Field(description="what the decision rests on, in words")
    values: dict[str, Number | None] = Field(description="the signals it reads; null: undefined")
    confidence: float | None
    stopped_by: Literal["policy", "budget"] | None
    undefined: dict[str, str] = Field(description="signals without a value, and why")
    would_stop: int | None = Field(description="the first round after which the policy said stop")
    answer_round: int | None = Field(description="the round whose answer is returned")
    policy: str
    policy_hash: str | None


def observed(held: Mapping[str, Any], earlier: Collection[str]) -> Round:
    if "finished" not in held:
        return round_of(held, earlier)
    if len(held) > 1:
        others = ", ".join(sorted(held.keys() - {"finished"}))
        raise UsageError(f"give the round as finished or in parts, not both; found {others}")
    return round_of_document(held["finished"])


def told_of(served: Served, loop: Loop, last: Decision) -> dict[str, Any]:
    """Return the fields of :class:`Decided` after a loop's last round."""
    view = loop.view
    undefined = (
        spec for spec in served.file.policy.specs if math.isnan(loop.signals[spec.name][-1])
    )
    return {
        "round": len(view.rounds),
        "action": last.action.value,
        "reason": last.reason,
        "values": {name: _number(value) for name, value in last.values.items()},
        "confidence": last.confidence,
        "stopped_by": last.stopped_by,
        "undefined": {spec.name: _why(spec, view) for spec in undefined},
        "would_stop": loop.would_stop,
        "answer_round": loop.answer_round,
        "policy": served.name,
        "policy_hash": served.hash,
    }


def _number(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)


def _why(spec: SignalSpec, view: LoopView) -> str:
    if spec.name in view.current.signals:
        return "given as undefined"
    if (lack := lack_live(spec, view)) is not None and lack.columns:
        return f"the round has no {' and no '.join(lack.columns)}"
    cases = (case.why for case in spec.absences if case.holds(view))
    return next(cases, "undefined in this round")


def decision_router(service: Service) -> APIRouter:
    router = APIRouter(tags=["decisions"])

    # a thread decides and writes the reply; FastAPI would validate it again on the event loop
    @router.post("/v1/decisions", response_model=Decided)
    def decide(body: DecisionRequest) -> Response:
        """Decide about the rounds of a question.

        Nothing is kept: a request may be repeated. The decision is the one that the policy takes in replay
        and in a loop of Python, to the bit.
        """
        reply = _decided(service, body)
        return Response(reply.model_dump_json(), media_type="application/json")

    return router


def _decided(service: Service, asked: DecisionRequest) -> Decided:
    begun = time.perf_counter()
    served = service.served(asked.policy)
    name = asked.question if asked.question_id is None else asked.question_id
    loop = served.loop(Question(id=name, text=asked.question), asked.max_rounds)
    rounds: list[Round] = []
    earlier: set[str] = set()
    for number, held in enumerate(asked.rounds, start=1):
        try:
            rounds.append(observed(held, earlier))
        except SufficeError as error:
            raise Refusal(400, f"round {number}: {error}", param="rounds") from error
        earlier.update(passage.id for passage in rounds[-1].passages or ())
    last = loop.follow_all(rounds)
    reply = Decided(**told_of(served, loop, last))
    took_s = time.perf_counter() - begun
    ran = RoundEnded(number=reply.round, round=rounds[-1], decision=last, took_s=took_s)
    service.tell(
        QuestionEnded(
            trace_id=uuid.uuid4().hex,
            endpoint="decisions",
            policy=reply.policy,
            policy_hash=reply.policy_hash,
            text=asked.question,
            rounds=(ran,),
            stopped_by=reply.stopped_by or "goes-on",
            reason=reply.reason,
            took_s=took_s,
        )
    )
    return reply

"""Looks: questions about a round, asked on the loop's own conversation and answered by one token each."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

from suffice.concurrency import width_of
from suffice.contracts import Absence, ChatModel, Completion, Generation, GenerationRequest, Message
from suffice.errors import UsageError, unknown_name
from suffice.options import Option, read_names
from suffice.signals.asking.whole_record import (
    Replies,
    asking_rounds,
    column_values,
    summary_of_values,
)
from suffice.signals.evidence import NO_ANSWER, one_line
from suffice.signals.known_signals import LOOKS, UNDEFINED, SignalSpec, share
from suffice.trace.rounds.records import LoopView, Round, Usage, known_sum

if TYPE_CHECKING:
    from suffice.trace.rounds.trace_set import TraceSet

Conversation = str | tuple[Message, ...]
_TOP = 10  # alternatives of the one token, of which yes and no are read
_YES_OR_NO = "Reply with one word: yes or no."
_NUMBER = "Reply with one digit."
_NEITHER = Absence("the reply was neither yes nor no", lambda _: True)
ASKED: Mapping[str, str] = {
    "sufficient_prob": "Is what was found so far enough to answer the question?",
    "p_true": "Proposed answer: {answer}\nIs this answer to the question right?",
    "gain_prob": "Would one more search change the answer to the question?",
    "searches_left": "How many more searches does the answer to the question need?",
}
"""What each look asks; ``{answer}`` is the round's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """A model that looks at recorded rounds, each at the end of its ``conversation``."""

    model: ChatModel
    names: tuple[str, ...]
    conversation: Callable[[LoopView], Conversation]
    samples: int = 0

    @property
    def concurrency(self) -> int:
        return width_of(self.model)

    def at(self, view: LoopView) -> Round:
        """Return a round of looks and what they cost alone."""
        conversation = self.conversation(view)
        read_before(self.model, conversation)
        bare = replace(view.current, signals={}, usage=Usage())
        return with_looks(
            bare, conversation, self.model, self.names, question=view.question, samples=self.samples
        )


_SPENT = tuple(part.name for part in fields(Usage) if part.name.startswith("look_"))


def _charged(traces: TraceSet, looked: Replies[Round]) -> Mapping[str, list[Any]]:
    columns = {name: column_values(traces, name) for name in _SPENT}
    for row, round_ in looked.by_row.items():
        fresh = not columns["look_calls"][row]
        for name, values in columns.items():
            more = getattr(round_.usage, name)
            values[row] = more if fresh else known_sum([values[row], more])
    return columns


LOOKING = asking_rounds(
    "looks",
    "--looks",
    "model",
    "looked at",
    lambda view, looking: looking.at(view),
    called=lambda looked: bool(looked.usage.look_calls),
    reads=("passages", "query", "action", "intermediate_answer"),
    values=lambda looked: looked.signals,
    columns=_charged,
    summary=lambda looked: summary_of_values(
        replace(looked, by_row={row: round_.signals for row, round_ in looked.by_row.items()})
    ),
    line="the {who} looked at {rounds} rounds; {undefined} undefined, {failed} failed",
)


def _look(name: str, summary: str, *, answers: bool = False) -> SignalSpec:
    return share(
        name=name,
        summary=summary,
        answers=answers,
        charges=(LOOKS,),
        asking=LOOKING,
        undefined=(NO_ANSWER, _NEITHER) if answers else (_NEITHER,),
    )


SUFFICIENT_PROB = _look(
    "sufficient_prob", "probability that the model calls the evidence enough to answer"
)
P_TRUE = _look("p_true", "probability that the model calls its answer right", answers=True)
GAIN_PROB = replace(
    _look("gain_prob", "probability that the model expects one more search to change the answer"),
    direction="low",
)
"""``calibrated(gain_prob, gain)``: going on helps; ``calibrated(gain_prob)``: this answer is right."""
SEARCHES_LEFT = SignalSpec(
    name="searches_left",
    summary="how many more searches the model says that the answer needs, 0 to 9",
    answers=False,
    charges=(LOOKS,),
    asking=LOOKING,
    low=0.0,
    high=9.0,
    direction="low",
    undefined=(Absence("the reply was no digit", lambda _: True),),
)


Looks = Annotated[
    tuple[str, ...],
    Option(
        help=f"one-token looks at each round, with commas: {', '.join(ASKED)}",
        metavar="A,B",
        parse=read_names,
    ),
]
LookSamples = Annotated[
    int,
    Option(
        help="samples a look, where the model gives no log-probabilities", metavar="N", at_least=0
    ),
]


def read_before(model: ChatModel, conversation: Conversation) -> None:
    """Have the server read what the loop's next call would, so that one more turn costs what it adds."""
    model.generate(GenerationRequest(prompt=conversation, max_tokens=1))


def check_looks(names: Sequence[str]) -> None:
    for name in names:
        if name not in ASKED:
            raise UsageError(unknown_name("look", name, ASKED))


def one_turn_more(conversation: Conversation, asked: str, label: str) -> Conversation:
    """Ask one more thing at the end of a conversation; a completion model continues after ``label``."""
    if isinstance(conversation, str):
        return f"{conversation}\n{asked}\n{label}"
    *before, last = conversation
    return (*before, replace(last, content=f"{last.content.rstrip()}\n\n{asked}"))


# what yes and no, and what digits, count as
_SCALES: Sequence[Mapping[str, float]] = (
    {"yes": 1.0, "no": 0.0},
    {str(number): float(number) for number in range(10)},
)


def with_looks(
    finished: Round,
    conversation: Conversation,
    model: ChatModel,
    names: Sequence[str],
    *,
    question: str,
    samples: int = 0,
    seed: int = 0,
) -> Round:
    """Return the round with what the model says to each look, and the cost of asking.

    Each tells the question again, and is made of so many ``samples`` (0: of log-probabilities).
    """
    values, replies = dict(finished.signals), []
    for name in names:
        values[name] = UNDEFINED
        if "{answer}" in ASKED[name] and not finished.answer_text.strip():
            continue
        counts = name == SEARCHES_LEFT.name
        asked = ASKED[name].format(answer=one_line(finished.answer_text))
        asked = f"Question: {one_line(question)}\n{asked} {_NUMBER if counts else _YES_OR_NO}"
        reply = model.generate(
            _request(one_turn_more(conversation, asked, "Reply:"), samples, seed)
        )
        values[name] = _mean(_words(reply, model, sampled=samples > 0), _SCALES[counts])
        replies.append(reply)
    usage = replace(finished.usage, **_spent(replies))  # type: ignore[arg-type]
    if usage.latency_s is not None:
        usage = replace(usage, latency_s=usage.latency_s + (usage.look_latency_s or 0.0))
    return replace(finished, signals=values, usage=usage)


def _request(prompt: Conversation, samples: int, seed: int) -> GenerationRequest:
    if not samples:
        return GenerationRequest(prompt=prompt, max_tokens=1, top_logprobs=_TOP)
    return GenerationRequest(prompt=prompt, n=samples, temperature=1.0, max_tokens=2, seed=seed)


def _spent(replies: Sequence[Generation]) -> dict[str, int | float | None]:
    kinds = ("prompt_tokens", "cached_tokens", "completion_tokens")
    tokens = {f"look_{kind}": known_sum([getattr(one, kind) for one in replies]) for kind in kinds}
    seconds = sum(reply.latency_s or 0.0 for reply in replies)
    return {"look_calls": len(replies), "look_latency_s": seconds, **tokens}


def _words(reply: Generation, model: ChatModel, *, sampled: bool) -> Mapping[str, float]:
    weights: defaultdict[str, float] = defaultdict(float)
    for completion in reply.completions:
        first = [(word, 1.0) for word in completion.said.split()[:1]]
        for word, weight in first if sampled else _first_token(completion, model):
            weights[word.strip(" .,!*\"'\n").casefold()] += weight
    return weights


def _mean(weights: Mapping[str, float], scale: Mapping[str, float]) -> float:
    said = sum(weights[word] for word in scale)
    return sum(weights[word] * value for word, value in scale.items()) / said if said else UNDEFINED


def _first_token(completion: Completion, model: ChatModel) -> list[tuple[str, float]]:
    if completion.tokens is None:
        raise UsageError(
            f"{model.name} gives no log-probabilities, of which looks are made; type --look-samples 8 to "
            "estimate them by samples, or leave --looks out"
        )
    tops = completion.tokens[0].top if completion.tokens else ()
    return [(top.token, math.exp(top.logprob)) for top in tops]

"""A signal of somebody else's: a chat model says from 1 to 5 how plain the answer is."""

from __future__ import annotations

from suffice.contracts import ChatModel, GenerationRequest, Message
from suffice.signals.asking.judge_support import Rating, asking_verdicts
from suffice.signals.registry import VERDICTS, SignalSpec
from suffice.trace.rounds.records import LoopView, Usage


def plainness(view: LoopView, model: ChatModel) -> Rating:
    """One call; undefined where the reply is no number from 1 to 5."""
    prompt = f"From 1 to 5, how plain is this answer?\nAnswer: {view.current.answer}"
    asked = prompt if model.api == "completion" else (Message(role="user", content=prompt),)
    reply = model.generate(GenerationRequest(prompt=asked, max_tokens=4))
    usage = Usage(
        judge_calls=1,
        judge_prompt_tokens=reply.prompt_tokens,
        judge_cached_tokens=reply.cached_tokens,
        judge_completion_tokens=reply.completion_tokens,
    )
    text = reply.completions[0].text.strip()
    if text not in {"1", "2", "3", "4", "5"}:
        return Rating(usage=usage, failure=f"no lone 1-5 in the reply {text!r}")
    return Rating(value=float(text), usage=usage)


TOY = SignalSpec(
    name="toy",
    summary="how plain the answer is, 1-5",
    charges=(VERDICTS,),
    low=1.0,
    high=5.0,
    asking=asking_verdicts("toy", plainness, name="toy", who="reader"),
)

"""A question answered live, by a policy and the settings of its loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suffice.contracts import ChatModel, StopPolicy
from suffice.live.answering import Answered, AskSettings, LiveLoop
from suffice.live.loop import Loop
from suffice.loops.steps import LoopSettings
from suffice.retrieval.retrievers import OwnParagraphs
from suffice.trace.rounds.records import Passage


def answered(
    policy: StopPolicy,
    model: ChatModel,
    loop: LoopSettings,
    passages: tuple[Passage, ...],
    question: str = "Which fact?",
    *,
    max_rounds: int | None = None,
    tell: Callable[[str], None] | None = None,
    **settings: Any,
) -> Answered:
    """The answer; ``settings`` are those of :class:`AskSettings`."""
    live = LiveLoop(policy=policy, loop=loop, model=model, settings=AskSettings(**settings))
    watched = Loop.alone(policy, max_rounds=max_rounds)
    return live.answer(question, OwnParagraphs(passages), watched=watched, tell=tell)

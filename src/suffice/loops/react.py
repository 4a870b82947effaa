"""The ReAct loop: the model thinks, searches, reads what it found, and says when it would finish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from suffice.loops.answers.calls import check_least, usage_of, usage_sum
from suffice.loops.answers.prompts import Prompt, SearchStep
from suffice.loops.answers.react_prompts import (
    FORCED,
    LABEL,
    REPAIR_LABEL,
    AgentAction,
    parse_action,
    render_agent,
    render_once_more,
    render_repair,
    said,
)
from suffice.loops.query_loop import (
    QueryChoice,
    QueryLoop,
    QueryLoopSettings,
    Roles,
)
from suffice.protocols import ChatModel, Encoder, GenerationRequest, PassageFilter
from suffice.scoring import normalize_answer
from suffice.signals.evidence import one_line
from suffice.signals.registry import LLM_STOP
from suffice.trace.rounds.records import Usage

_STOP = ("\nObservation", "\nQuestion:")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactSettings(QueryLoopSettings):
    """How rounds are made: thought and action, at most ``step`` new passages, an answer."""

    pipeline: ClassVar[str] = "react"
    summary: ClassVar[str] = "the model thinks, and chooses each round's query"
    # an agent stops where it would by itself
    default_rule: ClassVar[str] = LLM_STOP.name

    rounds: int = 3
    max_action_tokens: int = 128

    def __post_init__(self) -> None:
        QueryLoopSettings.__post_init__(self)  # super() does not reach over slots
        check_least(self, {"max_action_tokens": 1})


class ReactAgent:
    """Chooses queries by thought and action (Yao et al. 2023); safe to use from several threads.

    One greedy call a choice. An action that cannot be read, or that repeats an earlier query, is asked
    for once more, with a reminder. If it cannot be read then either, the question is the query; a query
    repeated again is sent, and finds what ranks next. An agent that may not finish is made to
    search: a completion model goes on after ``Action: Search[``, a chat model is told so. One that
    finishes all the same gets the question as its query.
    """

    def __init__(self, model: ChatModel, *, max_tokens: int) -> None:
        self._model = model
        self._max_tokens = max_tokens

    def choose(
        self, question: str, steps: Sequence[SearchStep], *, refused: QueryChoice | None = None
    ) -> QueryChoice:
        """The action after these steps; see :class:`suffice.loops.query_loop.QueryChooser`."""
        prompt = render_agent(question, steps, api=self._model.api)
        if refused is not None:
            return self._once_more(question, render_once_more(prompt, refused.said))
        text, usage = self._ask(prompt, label=LABEL)
        action = parse_action(text)
        repeated = action is not None and _repeats(action, steps)
        if action is None or repeated:
            again = render_repair(prompt, text, repeated=repeated)
            repaired, more = self._ask(again, label=REPAIR_LABEL)
            action = parse_action(repaired) or action
            text, usage = f"{text}\n\n{repaired}", usage_sum(usage, more)
        return _choice(action, question, text, usage)

    def _once_more(self, question: str, prompt: Prompt) -> QueryChoice:
        text, usage = self._ask(prompt, label=FORCED)
        action = parse_action(text)
        if action is not None and action.kind == "finish":
            action = replace(action, kind="search", argument=one_line(question))
        return _choice(action, question, text, usage)

    def _ask(self, prompt: Prompt, *, label: str) -> tuple[str, Usage]:
        """The reply, with the label that a completion model went on after, and what it cost."""
        reply = self._model.generate(
            GenerationRequest(prompt=prompt, max_tokens=self._max_tokens, stop=_STOP)
        )
        text = reply.completions[0].text
        if isinstance(prompt, str):
            text = f"{label}{text}"
        return text, usage_of(reply, calls=1)


def _repeats(action: AgentAction, steps: Sequence[SearchStep]) -> bool:
    """Whether it searches for what was searched for before."""
    made = {normalize_answer(step.query) for step in steps}
    return action.kind == "search" and normalize_answer(action.argument) in made


def _choice(action: AgentAction | None, question: str, text: str, usage: Usage) -> QueryChoice:
    read = action or AgentAction(kind="search", argument=one_line(question))
    return QueryChoice(
        query=read.argument,
        said=said(read),
        action=text,
        usage=usage,
        finishes=read.kind == "finish",
        unread=action is None,
    )


class ReactPipeline(QueryLoop):
    """The loop of :class:`suffice.loops.query_loop.QueryLoop` with a :class:`ReactAgent`."""

    settings_type = ReactSettings

    def __init__(
        self,
        model: ChatModel,
        settings: ReactSettings,
        *,
        encoder: Encoder | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> None:
        agent = ReactAgent(model, max_tokens=settings.max_action_tokens)
        roles = Roles(chooser=agent)
        super().__init__(model, settings, roles, encoder=encoder, passage_filter=passage_filter)

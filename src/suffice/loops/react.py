"""The ReAct loop: the model thinks, searches, reads what it found, and says when it would finish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from suffice.loops.answers.calls import check_least, greedy, usage_sum
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
from suffice.loops.query_loop import QueryChoice, QueryLoop, QueryLoopSettings
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


class ReactPipeline(QueryLoop):
    """Chooses queries by thought and action (Yao et al. 2023).

    One greedy call a choice. An action that cannot be read, or that repeats an earlier query, is asked
    for once more, with a reminder. If it cannot be read then either, the question is the query; a query
    repeated again is sent, and finds what ranks next. An agent that may not finish is made to
    search: a completion model goes on after ``Action: Search[``, a chat model is told so. One that
    finishes all the same gets the question as its query.
    """

    settings_type = ReactSettings
    settings: ReactSettings

    def choose(
        self, question: str, steps: Sequence[SearchStep], *, refused: QueryChoice | None = None
    ) -> QueryChoice:
        """The action after these steps."""
        prompt = render_agent(question, steps, api=self.model.api)
        if refused is not None:
            text, usage = self._ask(render_once_more(prompt, refused.said), FORCED)
            action = parse_action(text)
            if action is not None and action.kind == "finish":
                action = replace(action, kind="search", argument=one_line(question))
        else:
            text, usage = self._ask(prompt, LABEL)
            action = parse_action(text)
            made = {normalize_answer(step.query) for step in steps}
            searches = action is not None and action.kind == "search"
            repeated = searches and normalize_answer(action.argument) in made
            if action is None or repeated:
                again = render_repair(prompt, text, repeated=repeated)
                repaired, more = self._ask(again, REPAIR_LABEL)
                action = parse_action(repaired) or action
                text, usage = f"{text}\n\n{repaired}", usage_sum(usage, more)
        read = action or AgentAction(kind="search", argument=one_line(question))
        return QueryChoice(
            query=read.argument,
            said=said(read),
            action=text,
            usage=usage,
            finishes=read.kind == "finish",
            unread=action is None,
        )

    def _ask(self, prompt: Prompt, label: str) -> tuple[str, Usage]:
        """The reply, with the label that a completion model went on after, and what it cost."""
        text, usage = greedy(self.model, prompt, self.settings.max_action_tokens, _STOP)
        return (f"{label}{text}" if isinstance(prompt, str) else text), usage

"""Loops that ask follow-up questions and answer from all their findings (METHODS 2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from suffice.contracts import ChatModel, Encoder, PassageFilter
from suffice.errors import UsageError, unknown_name
from suffice.loops.calls import NOTHING_ASKED, THOUGHT_TOKENS, greedy, usage_sum
from suffice.loops.prompts import (
    FINAL_ANSWERS,
    FOLLOW_UP,
    VERDICT,
    FinalAnswer,
    FollowUpPrompts,
    Prompt,
    SearchStep,
    asks_marker,
    render_reading,
)
from suffice.loops.query_loop import QueryChoice, QueryLoop, QueryLoopSettings, StopVerdict
from suffice.options import Option
from suffice.scoring import normalize_answer
from suffice.signals.evidence import one_line
from suffice.trace.rounds.records import Passage, Question, Usage

_NEXT_STEP = ("\n\n", "\nMain question:", "\nDocument:", f"\n{FOLLOW_UP}")
_NEXT_QUESTION = ("\nMain question:", f"\n{FOLLOW_UP}")
_TAGS = re.compile(r"<(STOP|CONTINUE)>")
_LABEL = re.compile(rf"^\s*(?:{FOLLOW_UP}|Question:)\s*", re.IGNORECASE)
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUpSettings(QueryLoopSettings):
    """Settings of rounds with a follow-up question, at most ``step`` new passages, and their answer to it."""

    sees_documents: ClassVar[bool]
    """Whether the next follow-up question is asked for with the earlier documents in view."""

    rounds: int = 10
    samples: int = 8
    temperature: float = 0.7
    top_p: float = 0.9
    verdicts: bool = False
    final_answer: Annotated[
        FinalAnswer,
        Option(
            help="short: the answer alone. ircot: after a chain of thought and 'So the answer is:', as in "
            "Stop-RAG's paper."
        ),
    ] = "short"
    max_query_tokens: int = 48
    max_intermediate_tokens: int = 32
    max_verdict_tokens: int = 160

    def __post_init__(self) -> None:
        QueryLoopSettings.__post_init__(self)  # super() does not reach over slots
        if self.final_answer not in FINAL_ANSWERS:
            raise UsageError(unknown_name("final_answer", self.final_answer, FINAL_ANSWERS))
        if self.reasons and not asks_marker(self.prompt):
            raise UsageError(
                "final_answer 'ircot' gives its thoughts first, and prompt 'bare' the answer alone; type "
                "--prompt no-confidence"
            )

    @property
    def reasons(self) -> bool:
        return self.final_answer == "ircot"

    @property
    def own_calls(self) -> int:
        return 2 + self.verdicts + len(self.looks)


@dataclass(frozen=True, slots=True, kw_only=True)
class IterativeSettings(FollowUpSettings):
    """The loop of Stop-RAG (paper 1, section 4.1): one passage a round, all earlier ones in view."""

    pipeline: ClassVar[str] = "iterative"
    summary: ClassVar[str] = (
        "the model asks a follow-up question each round; stop-rag learns from its sampled answers"
    )
    sees_documents: ClassVar[bool] = True

    step: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSettings(FollowUpSettings):
    """A chain in the manner of CoRAG (Wang et al. 2025), greedy.

    The prompt for the next follow-up question shows earlier questions and answers without documents. The
    model answers it from ``step`` passages; the final answer sees everything.
    """

    pipeline: ClassVar[str] = "chain"
    summary: ClassVar[str] = "the same, but the model sees only its earlier questions and answers"
    sees_documents: ClassVar[bool] = False

    step: int = 3


class FollowUpPipeline(QueryLoop):
    """A loop that asks the model for the next follow-up question, and for its answer from the passages found.

    Choosing a query is one greedy call; its first line counts. A repeated question is asked for once more,
    with a reminder; if the model repeats it again, it is sent again and finds the next passages of the
    ranking. After an empty reply the main question is the query, and the reply is counted.
    """

    settings: FollowUpSettings
    asks_apart = True

    def __init__(
        self,
        model: ChatModel,
        settings: FollowUpSettings,
        *,
        encoder: Encoder | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> None:
        if settings.reasons:
            settings = replace(
                settings,
                max_tokens=max(settings.max_tokens, THOUGHT_TOKENS),
                max_sample_tokens=max(settings.max_sample_tokens, THOUGHT_TOKENS),
            )
        self._prompts = FollowUpPrompts(
            api=model.api,
            documents=settings.sees_documents,
            form=settings.prompt,
            final=settings.final_answer,
        )
        super().__init__(model, settings, encoder=encoder, passage_filter=passage_filter)

    def choose(
        self, question: str, steps: Sequence[SearchStep], *, refused: QueryChoice | None = None
    ) -> QueryChoice:
        del refused  # it never ends by itself
        prompt = self._prompts.next_query(question, steps)
        query, text, usage = self._ask(prompt)
        if query and normalize_answer(query) in {normalize_answer(step.query) for step in steps}:
            again, more, spent = self._ask(self._prompts.another_query(prompt, query))
            query, text, usage = again or query, f"{text}\n\n{more}", usage_sum(usage, spent)
        return QueryChoice(
            query=query or one_line(question),
            said=query,
            action=text,
            usage=usage,
            unread=not query,
        )

    def _ask(self, prompt: Prompt) -> tuple[str, str, Usage]:
        text, usage = greedy(self.model, prompt, self.settings.max_query_tokens, _line_of(prompt))
        return one_line(_LABEL.sub("", _first_line(text))), text, usage

    def read(self, query: str, passages: Sequence[Passage]) -> tuple[str, Usage]:
        if not passages:
            return _UNKNOWN, NOTHING_ASKED
        prompt, most = render_reading(query, passages, api=self.model.api), self.settings
        text, usage = greedy(self.model, prompt, most.max_intermediate_tokens, _line_of(prompt))
        return one_line(_first_line(text).removeprefix("Answer:")) or _UNKNOWN, usage

    def verdict(self, question: str, steps: Sequence[SearchStep]) -> StopVerdict:
        """Return the model's verdict: LLM-Stop (paper 1, section 5.2)."""
        prompt = self._prompts.verdict(question, steps)
        # a chat model ends by itself, and what it writes before its decision is its own matter
        stop = _NEXT_QUESTION if isinstance(prompt, str) else ()
        text, usage = greedy(self.model, prompt, self.settings.max_verdict_tokens, stop)
        said = (f"{VERDICT}{text}" if isinstance(prompt, str) else text).rstrip()
        stops = parse_verdict(said)
        return StopVerdict(stops=bool(stops), said=said, usage=usage, unread=stops is None)

    def prompt(
        self, question: Question, steps: Sequence[SearchStep], shown: Sequence[Passage]
    ) -> Prompt:
        del shown
        if self.settings.prompt == "in-loop":
            return self.answer_in_loop(question.text, steps)
        return self._prompts.answer(question.text, steps)

    def conversation(self, question: str, steps: Sequence[SearchStep]) -> Prompt:
        return self._prompts.conversation(question, steps)

    def answer_in_loop(self, question: str, steps: Sequence[SearchStep]) -> Prompt:
        return self._prompts.answer_in_loop(question, steps)


def parse_verdict(text: str) -> bool | None:
    """Whether the last tag after ``Decision:`` is ``<STOP>``; ``None``: no tag stands there."""
    _, decided, rest = text.partition("Decision:")
    tags = _TAGS.findall(rest)
    return tags[-1] == "STOP" if decided and tags else None


def _line_of(prompt: Prompt) -> tuple[str, ...]:
    return ("\n",) if isinstance(prompt, str) else _NEXT_STEP


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]

"""Loops that rank once and show a growing head of the ranking: cumulative and budgeted (METHODS 1, 3)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, Literal, get_args

from suffice.contracts import ChatModel, Retriever
from suffice.errors import UsageError, unknown_name
from suffice.loops.calls import NOTHING_ASKED
from suffice.loops.prompts import PromptName
from suffice.loops.steps import (
    EVERYTHING,
    LoopSettings,
    RoundReads,
    Step,
    SteppedLoop,
    retrieved,
    timed,
)
from suffice.options import Option
from suffice.trace.rounds.records import Question, Round


class GrowingLoop(SteppedLoop):
    """A loop that ranks once, filters the ranking, and shows more of its head in each round."""

    def steps(
        self, question: Question, retriever: Retriever, reads: RoundReads = EVERYTHING
    ) -> Iterator[Step]:
        """Yield rounds up to the budget, or until a round would add no passage.

        If the filter drops all passages found, round 1 answers without any.
        """
        loop = self.settings
        started = time.perf_counter()
        ranked = tuple(
            retriever.retrieve(question.text, max(loop.candidates, loop.shown(loop.rounds)))
        )
        kept = self.kept(ranked)
        before: tuple[Round, ...] = ()
        already = 0
        for number in range(1, loop.rounds + 1):
            shown = kept[: loop.shown(number)]
            if len(shown) == already and not (number == 1 and ranked):
                return
            found = Round(answer=None, passages=shown[already:], usage=NOTHING_ASKED)
            if number == 1:
                found = timed(retrieved(found, question.text, ranked), started)
            prompt = partial(self.evidence_prompt, question, shown)
            yield Step(
                loop=self, question=question, found=found, before=before, prompt=prompt, reads=reads
            )
            before, already = (*before, found), len(shown)


CertaintyChoice = Literal["auto", "token_probability", "self_consistency"]
CERTAINTY_CHOICES: tuple[CertaintyChoice, ...] = get_args(CertaintyChoice)
VOTES = 3  # answers drawn a round under self_consistency unless samples says otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetedSettings(LoopSettings):
    """Settings of rounds that show the first ``start + (t - 1) * step`` passages (paper 2)."""

    pipeline: ClassVar[str] = "budgeted"
    ranks_once: ClassVar[bool] = True
    summary: ClassVar[str] = "a few passages, then a few more, with the signals that ab-rag reads"
    compares_evidence: ClassVar[bool] = True
    settles: ClassVar[tuple[str, ...]] = ("certainty",)

    rounds: int = 3
    prompt: PromptName = "bare"
    candidates: int = 40
    temperature: float = 0.7
    top_p: float = 1.0
    max_tokens: int = 64
    max_sample_tokens: int = 64
    start: Annotated[int, Option(help="passages in round 1", metavar="K", at_least=1)] = 5
    step: Annotated[
        int, Option(help="more passages in each later round", metavar="K", at_least=1)
    ] = 5
    certainty: Annotated[
        CertaintyChoice,
        Option(
            help="source of the certainty. token_probability: tokens of one greedy answer. self_consistency: "
            "a vote over several samples. auto: the first if the model gives log-probabilities."
        ),
    ] = "auto"

    def __post_init__(self) -> None:
        LoopSettings.__post_init__(self)  # super() does not reach over slots
        if self.certainty not in CERTAINTY_CHOICES:
            raise UsageError(unknown_name("certainty", self.certainty, CERTAINTY_CHOICES))

    def settled(self, model: ChatModel) -> BudgetedSettings:
        """Return the settings without ``auto``: log-probabilities if the model says that it gives them."""
        gives = getattr(model, "supports_logprobs", lambda: None)()
        if self.certainty == "token_probability" and gives is False:
            raise UsageError(
                f"model {model.name!r} gives no log-probabilities, so there is no token_probability; "
                "use --certainty self_consistency, or auto"
            )
        if self.certainty == "token_probability" or (self.certainty == "auto" and gives):
            return replace(self, certainty="token_probability")
        return replace(self, certainty="self_consistency", samples=self.samples or VOTES)

    @property
    def majority(self) -> bool:
        return self.certainty == "self_consistency"

    def shown(self, number: int) -> int:
        return self.start + (number - 1) * self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class CumulativeSettings(LoopSettings):
    """Settings of rounds that show one more passage each."""

    pipeline: ClassVar[str] = "cumulative"
    ranks_once: ClassVar[bool] = True
    summary: ClassVar[str] = "one more passage a round"

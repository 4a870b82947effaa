"""What every loop can be told, and what it says of itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from suffice.contracts import ChatModel
from suffice.loops.answers.calls import AnswerSettings, check_least
from suffice.options import Option
from suffice.signals.asking.judge_support import JUDGE_SUPPORT
from suffice.signals.asking.meaning_clusters import check_cosine


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings(AnswerSettings):
    """How rounds are made: what a loop says of itself. Loops state their own defaults and add fields.

    A field with an :class:`suffice.options.Option` is an option of the commands that run loops.
    """

    pipeline: ClassVar[str]
    """The loop's name."""
    summary: ClassVar[str]
    """What it does, in a line's part."""
    default_rule: ClassVar[str] = "answer_repeats and not abstained"
    """What stops it live where no policy is named."""
    compares_evidence: ClassVar[bool] = False
    """Whether its recordings compare answers with their evidence wherever there is an encoder."""
    ranks_once: ClassVar[bool] = False
    """Whether later rounds show more of one ranking, so that a fixed budget is one call."""
    settles: ClassVar[tuple[str, ...]] = ()
    """Settings that depend on what the model gives; see :meth:`settled`."""

    rounds: Annotated[int, Option(help="the full budget", metavar="R", at_least=1)] = 5
    samples: Annotated[
        int,
        Option(
            help="sampled answers a round beside the greedy one; under self_consistency those that the "
            "answer is chosen from, 0 for three",
            metavar="M",
            at_least=0,
        ),
    ] = 0
    candidates: int = 10
    closed_book: Annotated[
        bool, Option(help="also record the answer without passages, as round 0")
    ] = False
    judge: Annotated[
        bool,
        Option(
            help="also ask the model after each round how well the evidence supports its answer: the "
            "signal judge_support (later: suffice signals --llm)"
        ),
    ] = False
    cluster_cosine: float | None = None

    def __post_init__(self) -> None:
        AnswerSettings.__post_init__(self)  # super() does not reach over slots
        check_least(self, {"rounds": 1, "candidates": 1})
        if self.cluster_cosine is not None:
            check_cosine(self.cluster_cosine)

    @classmethod
    def writing(cls, signals: Collection[str]) -> dict[str, Any]:
        """The settings under which rounds carry those of these recorded signals that the loop can ask for."""
        return {"judge": JUDGE_SUPPORT.name in signals}

    def settled(self, model: ChatModel) -> tuple[Self, Mapping[str, str]]:
        """The settings with nothing left to what the model gives, and why by the name of each settled."""
        del model
        return self, {}

    @property
    def majority(self) -> bool:
        """Whether a round's answer is the most frequent of its samples, not the greedy one."""
        return False

    @property
    def writes(self) -> frozenset[str]:
        """Names of the recorded signals that the rounds carry of themselves."""
        return frozenset()

    @property
    def calls(self) -> int:
        """Calls to the model that a round takes at most, where none has to be repeated."""
        return (0 if self.majority else 1) + self.samples + self.judge + self.own_calls

    @property
    def own_calls(self) -> int:
        """Those of them that neither answer nor rate an answer."""
        return 0

    def shown(self, number: int) -> int:
        """How many passages round ``number`` (from 1) shows, those of earlier rounds included."""
        return number

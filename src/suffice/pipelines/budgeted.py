"""The budgeted loop: rank once, show a few passages, then more, at most three times (METHODS 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

from suffice.errors import UsageError
from suffice.pipelines.answer_calls import LoopSettings, check_least
from suffice.pipelines.growing import GrowingLoop
from suffice.pipelines.prompts import PromptName
from suffice.protocols import ChatModel, Encoder, PassageFilter

__all__ = [
    "CERTAINTY_CHOICES",
    "VOTES",
    "BudgetedPipeline",
    "BudgetedSettings",
    "CertaintyChoice",
    "settle_certainty",
]

CertaintyChoice = Literal["auto", "token_probability", "self_consistency"]
CERTAINTY_CHOICES: tuple[CertaintyChoice, ...] = get_args(CertaintyChoice)
VOTES = 3
"""Answers drawn a round under ``self_consistency`` unless ``samples`` says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetedSettings(LoopSettings):
    """How rounds are made: round t shows the first ``start + (t - 1) * step`` passages (paper 2).

    Parameters
    ----------
    start, step
        Passages of round 1, and passages more in each later round.
    certainty
        Where S1 comes from. ``token_probability``: one greedy call a round, whose tokens carry it, and
        ``samples`` stochastic answers beside it. ``self_consistency``: the round's answer is the most
        frequent of ``samples`` stochastic ones (0: three), and the samples carry it. ``auto``: the first
        where the model gives log-probabilities, else the second.
    samples
        See ``certainty``. Under ``self_consistency`` these are the answering calls: ``llm_calls``
        counts them, ``sample_calls`` is 0, and the plain token counts hold all of them.

    The others are those of :class:`suffice.pipelines.answer_calls.LoopSettings`.
    """

    pipeline: ClassVar[str] = "budgeted"

    rounds: int = 3
    prompt: PromptName = "bare"
    candidates: int = 40
    temperature: float = 0.7
    top_p: float = 1.0
    max_tokens: int = 64
    max_sample_tokens: int = 64
    start: int = 5
    step: int = 5
    certainty: CertaintyChoice = "auto"

    def __post_init__(self) -> None:
        LoopSettings.__post_init__(self)  # super() does not reach over slots
        check_least(self, {"start": 1, "step": 1})
        if self.certainty not in CERTAINTY_CHOICES:
            raise UsageError(
                f"unknown certainty {self.certainty!r}; known: {', '.join(CERTAINTY_CHOICES)}"
            )

    @property
    def majority(self) -> bool:
        """Whether a round's answer is the most frequent of its samples, not the greedy one."""
        return self.certainty == "self_consistency"

    def shown(self, number: int) -> int:
        """How many passages round ``number`` (from 1) shows, those of earlier rounds included."""
        return self.start + (number - 1) * self.step


def settle_certainty(settings: BudgetedSettings, model: ChatModel) -> tuple[BudgetedSettings, str]:
    """The settings without ``auto``, and why S1 comes from where it does.

    Asks the model whether it gives log-probabilities, unless ``self_consistency`` was chosen.

    Raises
    ------
    UsageError
        When ``token_probability`` was chosen and the model gives no log-probabilities.
    BackendError
        When the model cannot be asked.
    """
    if settings.certainty == "self_consistency":
        return _by_majority(settings), "as asked"
    supports = getattr(model, "supports_logprobs", None)
    given = None if supports is None else bool(supports())
    if settings.certainty == "token_probability":
        if given is False:
            raise UsageError(
                f"model {model.name!r} gives no log-probabilities, so there is no token_probability; "
                "use --certainty self_consistency, or auto"
            )
        return settings, "as asked"
    if given:
        why = "the model gives log-probabilities"
        return replace(settings, certainty="token_probability"), why
    says = "gives no" if given is False else "does not say whether it gives"
    return _by_majority(settings), f"the model {says} log-probabilities"


def _by_majority(settings: BudgetedSettings) -> BudgetedSettings:
    return replace(settings, certainty="self_consistency", samples=settings.samples or VOTES)


class BudgetedPipeline(GrowingLoop):
    """The loop of :class:`suffice.pipelines.growing.GrowingLoop`, a few passages more a round.

    ``settings`` are those given with the certainty settled, and ``why`` says what settled it.

    Raises
    ------
    UsageError, BackendError
        See :func:`settle_certainty`.
    """

    def __init__(
        self,
        model: ChatModel,
        settings: BudgetedSettings,
        *,
        encoder: Encoder | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> None:
        self.settings, self.why = settle_certainty(settings, model)
        super().__init__(model, self.settings, encoder=encoder, passage_filter=passage_filter)

"""The cumulative loop: rank once, show one more passage a round, answer each time (METHODS 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from suffice.pipelines.answer_calls import LoopSettings
from suffice.pipelines.growing import GrowingLoop
from suffice.protocols import ChatModel, Encoder, PassageFilter

__all__ = ["CumulativePipeline", "CumulativeSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CumulativeSettings(LoopSettings):
    """How rounds are made: round t shows the first t passages."""

    pipeline: ClassVar[str] = "cumulative"


class CumulativePipeline(GrowingLoop):
    """The loop of :class:`suffice.pipelines.growing.GrowingLoop`, one passage more a round."""

    def __init__(
        self,
        model: ChatModel,
        settings: CumulativeSettings,
        *,
        encoder: Encoder | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> None:
        super().__init__(model, settings, encoder=encoder, passage_filter=passage_filter)
        self.settings = settings

"""The cumulative loop: rank once, show one more passage a round, answer each time (METHODS 1)."""

from __future__ import annotations

from dataclasses import dataclass

from suffice.pipelines.answer_calls import LoopSettings
from suffice.pipelines.growing import GrowingLoop
from suffice.protocols import ChatModel, Encoder

__all__ = ["CumulativePipeline", "CumulativeSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CumulativeSettings(LoopSettings):
    """How rounds are made: round t shows the first t passages."""


class CumulativePipeline(GrowingLoop):
    """The loop of :class:`suffice.pipelines.growing.GrowingLoop`, one passage more a round."""

    def __init__(
        self, model: ChatModel, settings: CumulativeSettings, *, encoder: Encoder | None = None
    ) -> None:
        super().__init__(model, settings, encoder=encoder)
        self.settings = settings

"""The loops there are, by their settings."""

from __future__ import annotations

from suffice.pipelines.budgeted import BudgetedPipeline, BudgetedSettings
from suffice.pipelines.cumulative import CumulativePipeline, CumulativeSettings
from suffice.protocols import ChatModel, Encoder

__all__ = ["AnyPipeline", "AnySettings", "make_pipeline"]

AnySettings = CumulativeSettings | BudgetedSettings
AnyPipeline = CumulativePipeline | BudgetedPipeline


def make_pipeline(
    model: ChatModel, settings: AnySettings, encoder: Encoder | None = None
) -> AnyPipeline:
    """The loop that the settings are of."""
    if isinstance(settings, BudgetedSettings):
        return BudgetedPipeline(model, settings, encoder=encoder)
    return CumulativePipeline(model, settings, encoder=encoder)

"""The loops there are, by their settings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from suffice.pipelines.budgeted import BudgetedPipeline, BudgetedSettings
from suffice.pipelines.cumulative import CumulativePipeline, CumulativeSettings
from suffice.pipelines.react import ReactPipeline, ReactSettings
from suffice.protocols import ChatModel, Encoder, PassageFilter

__all__ = ["LOOPS", "AnyPipeline", "AnySettings", "make_pipeline"]

AnySettings = CumulativeSettings | BudgetedSettings | ReactSettings
AnyPipeline = CumulativePipeline | BudgetedPipeline | ReactPipeline

LOOPS: Mapping[str, type[AnySettings]] = MappingProxyType(
    {each.pipeline: each for each in (CumulativeSettings, BudgetedSettings, ReactSettings)}
)
"""The settings of each loop by its name."""


def make_pipeline(
    model: ChatModel,
    settings: AnySettings,
    encoder: Encoder | None = None,
    passage_filter: PassageFilter | None = None,
) -> AnyPipeline:
    """The loop that the settings are of.

    Parameters
    ----------
    model
        Answers, and chooses queries where the loop does.
    settings
        How rounds are made.
    encoder
        Compares answers with their evidence; ``None``: nothing does.
    passage_filter
        Drops passages before the answerer sees them; ``None``: it sees all.
    """
    if isinstance(settings, BudgetedSettings):
        return BudgetedPipeline(model, settings, encoder=encoder, passage_filter=passage_filter)
    if isinstance(settings, ReactSettings):
        return ReactPipeline(model, settings, encoder=encoder, passage_filter=passage_filter)
    return CumulativePipeline(model, settings, encoder=encoder, passage_filter=passage_filter)

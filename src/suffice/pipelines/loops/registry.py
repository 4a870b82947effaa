"""The loops there are, by their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from suffice.pipelines.loops.follow_up import (
    ChainPipeline,
    ChainSettings,
    IterativePipeline,
    IterativeSettings,
)
from suffice.pipelines.loops.ranked import (
    BudgetedPipeline,
    BudgetedSettings,
    CumulativePipeline,
    CumulativeSettings,
)
from suffice.pipelines.loops.react import ReactPipeline, ReactSettings
from suffice.protocols import ChatModel, Encoder, PassageFilter

AnySettings = (
    CumulativeSettings | BudgetedSettings | IterativeSettings | ChainSettings | ReactSettings
)
AnyPipeline = (
    CumulativePipeline | BudgetedPipeline | IterativePipeline | ChainPipeline | ReactPipeline
)

_PIPELINES: Mapping[type[AnySettings], Callable[..., AnyPipeline]] = MappingProxyType(
    {
        CumulativeSettings: CumulativePipeline,
        BudgetedSettings: BudgetedPipeline,
        IterativeSettings: IterativePipeline,
        ChainSettings: ChainPipeline,
        ReactSettings: ReactPipeline,
    }
)
LOOPS: Mapping[str, type[AnySettings]] = MappingProxyType(
    {settings.pipeline: settings for settings in _PIPELINES}
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
    make = _PIPELINES[type(settings)]
    return make(model, settings, encoder=encoder, passage_filter=passage_filter)

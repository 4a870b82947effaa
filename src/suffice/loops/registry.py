"""The loops there are, by name; a loop is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import cast

from suffice.contracts import ChatModel, Encoder, PassageFilter
from suffice.loops.settings import LoopSettings
from suffice.loops.steps import SteppedLoop

# the line that brings a loop: its name, its module and its class
_PIPELINES = {
    "cumulative": "suffice.loops.ranked:CumulativePipeline",
    "budgeted": "suffice.loops.ranked:BudgetedPipeline",
    "iterative": "suffice.loops.follow_up:IterativePipeline",
    "chain": "suffice.loops.follow_up:ChainPipeline",
    "react": "suffice.loops.react:ReactPipeline",
}


def _pipeline(name: str) -> type[SteppedLoop]:
    module, _, named = _PIPELINES[name].partition(":")
    return cast("type[SteppedLoop]", getattr(import_module(module), named))


class _Loops(Mapping[str, type[LoopSettings]]):
    def __getitem__(self, name: str) -> type[LoopSettings]:
        return _pipeline(name).settings_type

    def __iter__(self) -> Iterator[str]:
        return iter(_PIPELINES)

    def __len__(self) -> int:
        return len(_PIPELINES)


LOOPS: Mapping[str, type[LoopSettings]] = _Loops()
"""The settings of each loop by its name."""


def make_pipeline(
    model: ChatModel,
    settings: LoopSettings,
    encoder: Encoder | None = None,
    passage_filter: PassageFilter | None = None,
) -> SteppedLoop:
    """The loop that the settings are of."""
    make = _pipeline(settings.pipeline)
    return make(model, settings, encoder=encoder, passage_filter=passage_filter)

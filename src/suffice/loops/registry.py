"""The loops there are, by name; a loop is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Protocol, cast

from suffice.loops.settings import LoopSettings
from suffice.loops.steps import EVERYTHING, RoundReads, Step
from suffice.protocols import ChatModel, Encoder, PassageFilter, Retriever
from suffice.trace.rounds.records import Question, Round

# the line that brings a loop: its name, its module and its class
_PIPELINES = {
    "cumulative": "suffice.loops.ranked:CumulativePipeline",
    "budgeted": "suffice.loops.ranked:BudgetedPipeline",
    "iterative": "suffice.loops.follow_up:IterativePipeline",
    "chain": "suffice.loops.follow_up:ChainPipeline",
    "react": "suffice.loops.react:ReactPipeline",
}


class Pipeline(Protocol):
    """A loop over one question at a time; safe to use from several threads."""

    @property
    def settings(self) -> LoopSettings:
        """How rounds are made, nothing left to what the model gives."""
        ...

    @property
    def settled_by(self) -> Mapping[str, str]:
        """Why, by the name of each setting that the model settled."""
        ...

    def steps(
        self, question: Question, retriever: Retriever, reads: RoundReads = EVERYTHING
    ) -> Iterator[Step]:
        """Rounds as they are come to, their answers to be asked for."""
        ...

    def rounds(self, question: Question, retriever: Retriever) -> Iterator[Round]:
        """Rounds as they happen, to the full budget."""
        ...

    def closed_book(self, question: Question) -> Round:
        """Round 0: the model's answer without passages."""
        ...


class PipelineClass(Protocol):
    """What a line of the registry names."""

    settings_type: type[LoopSettings]

    def __call__(
        self,
        model: ChatModel,
        settings: LoopSettings,
        *,
        encoder: Encoder | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> Pipeline:
        """The loop of these settings."""
        ...


def _pipeline(name: str) -> PipelineClass:
    module, _, named = _PIPELINES[name].partition(":")
    return cast("PipelineClass", getattr(import_module(module), named))


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
) -> Pipeline:
    """The loop that the settings are of."""
    make = _pipeline(settings.pipeline)
    return make(model, settings, encoder=encoder, passage_filter=passage_filter)

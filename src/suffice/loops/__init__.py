"""The loops that come with Suffice, by name: what each round retrieves."""

from collections.abc import Mapping

from suffice.contracts import ChatModel, Encoder, PassageFilter
from suffice.loops.follow_up import ChainSettings, FollowUpPipeline, IterativeSettings
from suffice.loops.ranked import BudgetedSettings, CumulativeSettings, GrowingLoop
from suffice.loops.react import ReactPipeline, ReactSettings
from suffice.loops.steps import LoopSettings as LoopSettings
from suffice.loops.steps import SteppedLoop

# a line brings a loop: its settings and its class
_PIPELINES: Mapping[type[LoopSettings], type[SteppedLoop]] = {
    CumulativeSettings: GrowingLoop,
    BudgetedSettings: GrowingLoop,
    IterativeSettings: FollowUpPipeline,
    ChainSettings: FollowUpPipeline,
    ReactSettings: ReactPipeline,
}
LOOPS: Mapping[str, type[LoopSettings]] = {kind.pipeline: kind for kind in _PIPELINES}


def make_pipeline(
    model: ChatModel,
    settings: LoopSettings,
    encoder: Encoder | None = None,
    passage_filter: PassageFilter | None = None,
) -> SteppedLoop:
    make = _PIPELINES[LOOPS[settings.pipeline]]
    return make(model, settings, encoder=encoder, passage_filter=passage_filter)

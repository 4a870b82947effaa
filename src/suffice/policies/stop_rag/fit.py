"""Fitting of Stop-RAG: rewards from sampled answers, a network, a threshold (paper 1)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.policies.fitting import fit_questions, refuse_without_gold
from suffice.policies.method import FitRun, Preset
from suffice.policies.stop_rag.network import TextModel
from suffice.policies.stop_rag.policy import StopRAGPolicy
from suffice.policies.stop_rag.signal_network import (
    SignalNetwork,
    free_inputs,
    train_signal_network,
)
from suffice.policies.stop_rag.states import answer_rewards, read_rewards, texts_of_traces
from suffice.policies.stop_rag.stop_rag_settings import (
    PACKAGED_ENCODER,
    SETTINGS,
    SignalTrainSettings,
    StopRAGSettings,
    TrainSettings,
)
from suffice.policies.stop_rag.targets import informative
from suffice.policies.stop_rag.training import Learned, Trajectories, train_network
from suffice.stats.units import Array, Mask, drawn_units
from suffice.trace.rounds.trace_set import TraceSet

VALIDATION_SPLIT = "validation"
_VALIDATION_SHARE = 0.2
_FEW = 50


def fit_stop_rag(
    traces: TraceSet | Measures,
    preset: Preset,
    split: str,
    settings: StopRAGSettings,
    run: FitRun | None = None,
) -> StopRAGPolicy:
    """Learn on ``split``, and choose checkpoint and threshold on the split ``validation``."""
    started = time.monotonic()
    measures = Measures.of(traces)
    training, validation = _divide(measures, split, settings)
    dataset = measures.traces.origin.run.get("dataset")
    schedule = settings.schedule(preset, dataset)
    model: TextModel | SignalNetwork
    if isinstance(schedule, TrainSettings):
        learning, choosing = (
            part.trajectories(texts_of_traces(part.traces)) for part in (training, validation)
        )
        learned = train_network(learning, choosing, schedule, run)
        model = TextModel.of(learned.network)
    else:
        names = free_inputs(training.measures, settings.inputs)
        if not names:
            raise UsageError(
                f"no signal varies over the questions of {training.name} without further calls; name some "
                "with --inputs, or learn from text"
            )
        tables = (part.measures.signals(names) for part in (training, validation))
        signals = (np.stack([table.signal(name) for name in names], -1) for table in tables)
        learning, choosing = map(_Part.trajectories, (training, validation), signals)
        learned = train_signal_network(names, learning, choosing, schedule, run)
        model = learned.network
    stated = {
        "source": measures.traces.origin.source,
        "split": split,
        "reward": settings.reward if measures.metric.gold else measures.metric.name,
        "dataset": dataset,
        **_provenance(training, validation, learned),
        "settings": {name: value for name, value in asdict(schedule).items() if name != "device"},
    }
    stated["training"]["seconds"] = round(time.monotonic() - started, 1)
    few = []
    if (count := validation.traces.n_questions) < _FEW:
        few.append(
            f"threshold and checkpoint were chosen on {count} validation questions: on so few the choice is "
            "noise as much as skill"
        )
    return StopRAGPolicy(
        model=model,
        threshold=learned.best.choice.threshold,
        rounds=training.traces.n_rounds,
        target=settings.target,
        preset=preset,
        fitted_on=stated,
        notes=(
            *training.notes,
            *validation.notes,
            *learned.notes,
            *few,
            *(_stand_ins(schedule) if preset == "published" else ()),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    name: str
    measures: Measures
    values: Array
    cut: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def traces(self) -> TraceSet:
        return self.measures.traces

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.traces.last_rounds.astype(np.int64)

    def take(self, chosen: Mask, name: str, notes: tuple[str, ...] = ()) -> _Part:
        return replace(
            self,
            name=name,
            measures=self.measures.take(chosen),
            values=self.values[chosen],
            notes=notes,
        )

    def trajectories(self, states: Any) -> Trajectories:
        return Trajectories(states=states, rewards=self.values, lengths=self.lengths)

    def stated(self) -> dict[str, Any]:
        known = informative(self.values, self.lengths)
        return {
            "questions": self.traces.n_questions,
            "decisions": int(np.maximum(self.lengths - 1, 0).sum()),
            "informative": int(known.sum()),
        }


def _divide(measures: Measures, split: str, settings: StopRAGSettings) -> tuple[_Part, _Part]:
    if measures.metric.agreement:
        refuse_without_gold(measures, "stop-rag", "its rewards are scores of answers")
    traces = measures.traces
    whole = _part(measures, split, settings.reward)
    if VALIDATION_SPLIT in traces.splits and split != VALIDATION_SPLIT:
        return whole, _part(measures, VALIDATION_SPLIT, settings.reward)
    count = whole.traces.n_questions
    held = round(_VALIDATION_SHARE * count)
    chosen = drawn_units(whole.measures.units, held, settings.seed)
    if chosen.all() or not chosen.any():
        raise UsageError(
            f"split {split!r} of {traces.origin.source} has {count} usable questions, too few to learn on "
            f"some and choose on others; record more, or "
            f"{traces.how_to_split(f'{split}=0.3,{VALIDATION_SPLIT}=0.1,eval=0.6')}"
        )
    validation = whole.take(chosen, f"{_VALIDATION_SHARE:.0%} of {split}")
    return whole.take(~chosen, split, whole.notes), validation


def _part(measures: Measures, split: str, reward: str) -> _Part:
    chosen = measures.only_split(split)
    sampled = chosen.traces.has("samples") and chosen.metric.gold
    read = (read_rewards if sampled else answer_rewards)(chosen, reward)
    uncut, cut = fit_questions(chosen)
    whole = _Part(name=split, measures=chosen, values=read.values, cut=cut)
    return whole.take(read.usable & uncut, split, read.notes)


def _provenance(training: _Part, validation: _Part, learned: Learned) -> dict[str, Any]:
    best, count = learned.best, training.traces.n_questions + validation.traces.n_questions
    fitted_on: dict[str, Any] = {
        "questions": count,
        "labelled": count,
        "rounds": training.traces.n_rounds,
        **training.cut,
        "training": {**training.stated(), "steps": learned.steps, "best_step": best.step},
        "validation": {
            **validation.stated(),
            "split": validation.name,
            "reward": best.choice.score,
            "mean_rounds": best.choice.mean_rounds,
            "thresholds": best.choice.candidates,
        },
        "truncation": learned.truncation,
    }
    if validation.name == VALIDATION_SPLIT:
        fitted_on["splits"] = [training.name, VALIDATION_SPLIT]
    return fitted_on


def _stand_ins(schedule: TrainSettings | SignalTrainSettings) -> tuple[str, ...]:
    paper = SETTINGS["published"].encoder
    if isinstance(schedule, SignalTrainSettings):
        return (f"signals stand in for the text that the paper's {paper} reads",)
    epochs = (
        f"{schedule.epochs:g} epochs; the paper makes 1 on hotpotqa and 2wikimultihopqa and 3 on musique: "
        "type --epochs for another number"
    )
    if Path(schedule.encoder).name.lower() == Path(paper).name:
        return (epochs,)
    name = "MiniLM" if schedule.encoder == PACKAGED_ENCODER else schedule.encoder
    return (
        f"{name} stands in for the paper's encoder; name that with --encoder {paper}, or its folder",
        epochs,
    )

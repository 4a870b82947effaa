"""What a reader of Stop-RAG's evaluation must know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from suffice.bench.stop_rag.fits import FittedPolicy
from suffice.bench.stop_rag.found import LLM_STOPS, StopRAGStudy
from suffice.results.formats import counted
from suffice.signals.recorded import LLM_STOP
from suffice.trace.rounds.table import TraceSet

FEW = 200  # questions, below which differences of a few points drown


def study_notes(
    study: StopRAGStudy, traces: TraceSet, fitted: Sequence[FittedPolicy]
) -> tuple[str, ...]:
    """The sentences; ``traces`` are the questions scored."""
    return (
        *_few(study),
        *_in_disguise(study),
        *_about_the_record(study, traces),
        *_about_fits(study, fitted),
    )


def _few(study: StopRAGStudy) -> Iterator[str]:
    against = [each.interval for each in study.contrasts if each.against == study.full]
    width = max(each.high - each.low for each in against)
    if study.questions < FEW:
        yield (
            f"only {counted(study.questions, 'question')} to score: 95% intervals against the full budget "
            f"are up to {100 * width:.1f} points of F1 wide, and small differences cannot be told from none"
        )
    learned = sum(study.fitting.values())
    if learned < FEW:
        yield (
            f"only {counted(learned, 'labelled question')} to learn on and choose thresholds with: poor "
            "figures of learned policies may be for want of data"
        )


def _in_disguise(study: StopRAGStudy) -> Iterator[str]:
    """Learned policies that decide nothing."""
    for each in study.of_kind("learned"):
        same = [run for run in each.runs if len(np.unique(run.stops)) == 1]
        if same:
            seeds = ", ".join(f"seed {run.seed} in round {run.stops[0]}" for run in same)
            yield f"{each.name} stops every question in the same round: {seeds}. It decides nothing there"


def _about_the_record(study: StopRAGStudy, traces: TraceSet) -> Iterator[str]:
    if study.unlabelled:
        yield f"{counted(study.unlabelled, 'question')} without gold answers left out"
    short = int((traces.last_rounds < study.rounds).sum())
    if short:
        yield (
            f"{counted(short, 'question')} recorded for fewer than {study.rounds} rounds: whatever goes on "
            "ends with the last one there is"
        )
    yield from _about_llm_stop(study, traces)
    if study.with_gold_passages < study.questions:
        which = "no question" if not study.with_gold_passages else f"{study.with_gold_passages}"
        rest = "" if not study.with_gold_passages else f" of {counted(study.questions, 'question')}"
        yield f"precision and recall are known for {which}{rest}"
    if study.with_gold_passages and traces.origin.run.get("corpus") == "pooled":
        yield (
            "precision and recall tell passages apart by id: where the pooled corpus holds a paragraph "
            "under several, they come out too low"
        )


def _about_llm_stop(study: StopRAGStudy, traces: TraceSet) -> Iterator[str]:
    if study.contender(LLM_STOPS) is None:
        yield (
            f"no LLM-Stop: the record holds no signal {LLM_STOP.name}; record with --llm-stop to compare"
        )
        return
    values, _ = traces.stored_signal(LLM_STOP.name)
    silent = int((traces.exists & np.isnan(values)).sum())
    if silent:
        yield f"{counted(silent, 'round')} without a verdict: LLM-Stop goes on there"
    if study.unread is not None and study.unread.actions:
        found = study.unread
        yield (
            f"{counted(found.actions, 'action')} of the model (queries and verdicts, in "
            f"{counted(found.rounds, 'round')}) could not be read, of "
            f"{counted(found.questions, 'question')}; an unread verdict goes on"
        )


def _about_fits(study: StopRAGStudy, fitted: Sequence[FittedPolicy]) -> Iterator[str]:
    loaded = sum(each.loaded for each in fitted)
    if loaded:
        yield f"{loaded} of {counted(len(fitted), 'training')} found in {study.settings.folder}"
    if len(study.fitting) == 1 and study.settings.seeds > 1:
        yield (
            "no split validation: each seed holds other questions back to choose checkpoint and threshold "
            "on, which is part of its spread"
        )
    said: dict[str, list[str]] = {}
    for one in fitted:
        for remark in one.policy.facts.notes:
            said.setdefault(remark, []).append(one.fit.name)
    for remark, names in said.items():
        which = "every fit" if len(names) == len(fitted) else ", ".join(names)
        yield f"{which}: {remark}"

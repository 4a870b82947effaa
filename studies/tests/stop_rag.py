"""Questions for the evaluation of Stop-RAG, and settings under which it takes a second."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from studies.stop_rag.results import StopRAGStudySettings
from tests.stop_rag_traces import World, stop_rag_records

from suffice.policies.stop_rag.stop_rag_settings import StopRAGSettings
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.trace_set import TraceSet

ROUNDS = 4
QUICK = StopRAGSettings(features="signals", min_steps=30, epochs=0.1)
ALONE = StopRAGStudySettings(variants=("signals",), seeds=2, signals=QUICK, resamples=50)


def study_records(
    tune: int = 30, scored: int = 24, *, world: World = "single", asked: bool = True
) -> list[QuestionRecord]:
    """Questions of two splits with a gold passage, and what the model says when it is asked to stop."""
    made = stop_rag_records(world, tune, rounds=ROUNDS, split="tune", seed=1)
    made += stop_rag_records(world, scored, rounds=ROUNDS, split="eval", seed=2)
    return [
        asked_to_stop(each, wants_from=number % 3 + 1) if asked else each
        for number, each in enumerate(made)
    ]


def asked_to_stop(record: QuestionRecord, *, wants_from: int) -> QuestionRecord:
    """The model wants to stop from that round on; one of its actions is lost in round 2."""
    rounds = []
    for number, round_ in enumerate(record.rounds, start=1):
        said = {
            "llm_stop": float(number >= wants_from),
            "malformed_actions": float(number >= 2 and wants_from == 3),
        }
        rounds.append(replace(round_, signals=said, usage=replace(round_.usage, judge_calls=1)))
    first = record.rounds[1].passages or ()
    gold = replace(record.gold, passage_ids=(first[0].id, "never found"))
    return replace(record, rounds=tuple(rounds), gold=gold)


def study_traces(*sizes: int, **options: Any) -> TraceSet:
    return to_trace_set(study_records(*sizes, **options))

"""Reports of small hand-made trace sets, through the real replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from suffice.costs.prices import Prices
from suffice.costs.usage import CostModel
from suffice.evaluation.diagnose.report_data import (
    PartsSettings,
    ReportData,
    ReportParts,
    report_data,
    report_parts,
)
from suffice.evaluation.replay.compare import Comparison
from suffice.evaluation.replay.named_policies import NamedPolicy, named_policies
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import ComparisonSettings, SearchSettings
from suffice.interface import choose
from suffice.measures.measures import Measures
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord

PRICED = CostModel(prices=Prices(input=0.5, cached=0.5, output=0.0))


def oslo_records() -> list[QuestionRecord]:
    """Twelve questions of three rounds; right from round 1, 2, 3 or never, tune and eval mixed."""
    answers = (
        ("Oslo", "Oslo", "Oslo"),
        ("Bergen", "Oslo", "Oslo"),
        ("Bergen", "Bergen", "Oslo city"),
        ("Rome", "Rome", "Rome"),
    )
    return [
        make_record(
            f"q{number:02d}",
            answers[number % 4],
            gold=["Oslo"],
            margins=[0.5 + number % 4, 1.5, 2.5 + number],
            split="tune" if number % 3 else "eval",
        )
        for number in range(12)
    ]


def build_report(
    records: Sequence[QuestionRecord],
    names: Sequence[str] = ("fixed-1", "fixed-2", "fixed-3", "oracle-f1"),
    rules: Sequence[str] = (),
    notes: Sequence[str] = (),
    cost: str | None = None,
) -> ReportData:
    """A replay of these policies and rules against the first of them."""
    traces = to_trace_set(records)
    built = named_policies(traces, names, rules)
    settings = ComparisonSettings(
        baseline=built[0].name,
        resamples=200,
        cost=cost,
        cost_model=CostModel() if cost is None else PRICED,
    )
    return report_data(traces, replay(traces, built, settings, notes))


@dataclass(frozen=True)
class Gathered:
    """A replay with all its parts."""

    comparison: Comparison
    parts: ReportParts


@cache
def gathered() -> Gathered:
    """Eighty questions of three rounds: margins that tell, two types, tasr and a certified policy."""
    rng = np.random.default_rng(5)
    made = []
    for number in range(80):
        right = rng.random(3) < (0.3, 0.5, 0.6)
        margins = np.where(right, rng.random(3) * 3 + 0.5, rng.random(3) * 2).tolist()
        answers = ["Oslo" if each else rng.choice(["Rome", "Bergen"]) for each in right]
        made.append(
            make_record(
                f"q{number:03d}", answers, gold=["Oslo"], margins=margins,
                split="tune" if number % 2 else "eval",
            )
        )  # fmt: skip
    typed = [
        replace(each, question=replace(each.question, type="bridge" if n % 3 else "comparison"))
        for n, each in enumerate(made)
    ]
    traces = to_trace_set(typed)
    evaluated = traces.only_split("eval")
    certified = choose(traces, family="fixed", max_loss=0.9, confidence=0.5, resamples=2)
    built = [
        *named_policies(traces, ["fixed-3", "fixed-1", "tasr", "tasr-corrected", "oracle-f1"]),
        NamedPolicy(name="certified", kind="certified", preset=None, policy=certified.policy),
    ]
    result = replay(
        evaluated, built, ComparisonSettings(baseline="fixed-3", split="eval", resamples=60)
    )
    comparison = Comparison(measures=Measures(evaluated), result=result)
    signals = ("answer_stable", "answer_token_margin", "overlap")
    settings = PartsSettings(search=SearchSettings(signals=signals, form="dnf", grid=5))
    return Gathered(comparison, report_parts(traces, comparison, settings))

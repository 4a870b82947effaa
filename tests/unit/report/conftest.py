"""Reports of small hand-made trace sets, through the real replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from suffice.costs.prices import Prices
from suffice.costs.usage import CostModel
from suffice.replay.candidates import candidates
from suffice.replay.engine import ReplaySettings, replay
from suffice.replay.story import ReportData, report_data
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.records import QuestionRecord

PRICED = CostModel(prices=Prices(input=0.5, cached=0.5, output=0.0))
BuildReport = Callable[..., ReportData]


@pytest.fixture
def records() -> list[QuestionRecord]:
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


@pytest.fixture
def build_report() -> BuildReport:
    """``build_report(records, names, rules=(), notes=(), cost=None)``: against the first name."""

    def build(
        records: Sequence[QuestionRecord],
        names: Sequence[str] = ("fixed-1", "fixed-2", "fixed-3", "oracle-f1"),
        rules: Sequence[str] = (),
        notes: Sequence[str] = (),
        cost: str | None = None,
    ) -> ReportData:
        traces = to_trace_set(records)
        built = candidates(traces, names, rules)
        settings = ReplaySettings(
            baseline=built[0].name,
            resamples=200,
            notes=tuple(notes),
            cost=cost,
            cost_model=CostModel() if cost is None else PRICED,
        )
        return report_data(traces, replay(traces, built, settings))

    return build

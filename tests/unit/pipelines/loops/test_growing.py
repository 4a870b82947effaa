"""The growing loop under a passage filter, and which loop settings make."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

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
from suffice.pipelines.loops.registry import LOOPS, make_pipeline
from suffice.protocols import PassageFilter
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Passage, Question, Round

QUESTION = Question(id="q", text="Which fact?")
SCORES = (9.0, 1.0, 8.0, 2.0, 7.0, 3.0)


@dataclass(frozen=True)
class AtLeast:
    score: float

    def keep(self, passages: Sequence[Passage]) -> Sequence[Passage]:
        return [each for each in passages if (each.score or 0.0) >= self.score]


@dataclass(frozen=True)
class Scored:
    """Passages p0, p1, ... with these scores, in this order."""

    scores: tuple[float, ...] = SCORES

    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        return [
            Passage(id=f"p{at}", title=f"Page {at}", text=f"Fact {at}", score=score)
            for at, score in enumerate(self.scores[:k])
        ]


def run(
    settings: Any, least: float | None, source: Scored | None = None
) -> tuple[list[Round], ScriptedModel]:
    model = ScriptedModel()
    passage_filter = None if least is None else AtLeast(least)
    loop = make_pipeline(model, settings, None, passage_filter)
    return list(loop.rounds(QUESTION, source or Scored())), model


def ids(rounds: list[Round]) -> list[list[str]]:
    return [[each.id for each in finished.passages or ()] for finished in rounds]


@pytest.mark.parametrize(
    ("settings", "least", "expected"),
    [
        (CumulativeSettings(rounds=3), None, [["p0"], ["p1"], ["p2"]]),
        (CumulativeSettings(rounds=3), 2.5, [["p0"], ["p2"], ["p4"]]),
        (CumulativeSettings(rounds=9), 6.5, [["p0"], ["p2"], ["p4"]]),  # three are left
        (CumulativeSettings(rounds=9), math.inf, [[]]),
        (BudgetedSettings(start=2, step=2), 2.0, [["p0", "p2"], ["p3", "p4"], ["p5"]]),
        (BudgetedSettings(start=2, step=2), math.inf, [[]]),
    ],
)
def test_the_ranking_is_filtered_and_then_shown_from_its_head(
    settings: Any, least: float | None, expected: list[list[str]]
) -> None:
    rounds, model = run(settings, least)
    assert ids(rounds) == expected
    assert rounds[0].candidate_scores == tuple(sorted(SCORES, reverse=True))
    shown = [each for finished in expected for each in finished]
    evidence = str(model.requests[-1].prompt).rpartition("Evidence:")[2]
    assert evidence.count("Fact ") == len(shown)
    assert all(f"[Page {name[1:]}]" in evidence for name in shown)


def test_with_nothing_left_the_prompt_says_so() -> None:
    rounds, model = run(CumulativeSettings(), math.inf)
    assert rounds[0].answer
    assert "Evidence:\n(no passage)\nQuestion: Which fact?" in str(model.requests[0].prompt)


def test_where_nothing_was_found_there_is_no_round() -> None:
    for least in (None, 2.0):
        assert run(CumulativeSettings(), least, Scored(()))[0] == []


def test_settings_make_their_loop() -> None:
    kinds = {
        "cumulative": (CumulativeSettings, CumulativePipeline),
        "budgeted": (BudgetedSettings, BudgetedPipeline),
        "iterative": (IterativeSettings, IterativePipeline),
        "chain": (ChainSettings, ChainPipeline),
        "react": (ReactSettings, ReactPipeline),
    }
    assert list(LOOPS) == list(kinds)
    for name, (settings, pipeline) in kinds.items():
        assert LOOPS[name] is settings
        made = make_pipeline(ScriptedModel(), settings())
        assert isinstance(made, pipeline)
        assert made.settings.pipeline == name
    assert isinstance(AtLeast(1.0), PassageFilter)

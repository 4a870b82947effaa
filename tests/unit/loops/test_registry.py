"""Which loop settings make, and what every loop says of its calls, against those it makes."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest

from suffice.datasets.known_datasets import load
from suffice.loops import LOOPS, make_pipeline
from suffice.retrieval.retrievers import OwnParagraphs
from suffice.signals.model_confidence import ANSWER_TOKEN_MARGIN
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import LoopView, Round

EXAMPLES = load("generated", limit=4)
# a follow-up question that is repeated is asked for once more, which no count foresees
FRESH = {"rounds": 4}


def asked(name: str, settings: dict[str, Any], number: int) -> tuple[int, int, list[Round]]:
    """Calls said, calls made, and the rounds, over one question."""
    chosen = LOOPS[name](**settings)
    model, example = ScriptedModel(), EXAMPLES[number]
    pipeline = make_pipeline(model, chosen)
    rounds = list(pipeline.rounds(example.question, OwnParagraphs(example.passages)))
    said = pipeline.settings.calls * chosen.rounds
    return said, sum(each.n for each in model.requests), rounds


def counted(rounds: list[Round]) -> int:
    return sum((each.usage.llm_calls or 0) + (each.usage.judge_calls or 0) for each in rounds)


@pytest.mark.parametrize(
    ("name", "settings", "calls"),
    [
        ("cumulative", {}, 1),
        ("cumulative", {"samples": 3, "judge": True}, 5),
        ("budgeted", {"rounds": 2, "certainty": "token_probability", "samples": 2}, 3),
        ("budgeted", {"rounds": 2, "certainty": "self_consistency"}, 3),
        ("budgeted", {"rounds": 2, "certainty": "self_consistency", "samples": 5}, 5),
        ("iterative", FRESH, 11),
        ("iterative", {**FRESH, "samples": 0}, 3),
        ("iterative", {**FRESH, "samples": 2, "verdicts": True}, 6),
        ("iterative", {**FRESH, "samples": 0, "verdicts": True, "judge": True}, 5),
        ("chain", {"rounds": 3, "samples": 0}, 3),
        ("chain", {"rounds": 3, "verdicts": True}, 12),
    ],
)
def test_a_loop_makes_the_calls_it_says(name: str, settings: dict[str, Any], calls: int) -> None:
    for number in range(len(EXAMPLES)):
        said, made, rounds = asked(name, settings, number)
        assert said == made == counted(rounds) == calls * len(rounds)


@pytest.mark.parametrize("verdicts", [True, False])
def test_an_agent_makes_no_more_calls_than_it_says(verdicts: bool) -> None:
    """It finishes, and searches all the same, in some rounds of some questions."""
    spare = set()
    for number in range(len(EXAMPLES)):
        said, made, rounds = asked("react", {"verdicts": verdicts, "samples": 2}, number)
        assert said == 15
        assert made <= said
        spare.add(said - made)
        if not verdicts:
            assert counted(rounds) == made
    assert len(spare) > 1


@pytest.mark.parametrize("api", ["completion", "chat"])
@pytest.mark.parametrize("name", list(LOOPS))
def test_without_a_rating_every_loop_still_gives_margins(
    name: str, api: Literal["completion", "chat"]
) -> None:
    settings = LOOPS[name](prompt="no-confidence", rounds=2)
    pipeline = make_pipeline(ScriptedModel(api=api), settings)
    for example in EXAMPLES:
        for made in pipeline.rounds(example.question, OwnParagraphs(example.passages)):
            assert made.verbalized_confidence is None
            assert math.isfinite(ANSWER_TOKEN_MARGIN(LoopView("", (made,))))

"""The loops over one ranking: what each round shows, holds and costs, and what a passage filter leaves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.hashing_encoder import HashingEncoder
from tests.loops.query import AtLeast

from suffice.errors import UsageError
from suffice.loops import make_pipeline
from suffice.loops.ranked import BudgetedSettings, CumulativeSettings, GrowingLoop
from suffice.signals.model_confidence import TOKEN_PROBABILITY
from suffice.signals.retrieval_scores import RERANK_VARIANCE
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import LoopView, Passage, Question, Round

QUESTION = Question(id="q", text="Which fact of page 3?")


def passages(n: int) -> tuple[Passage, ...]:
    return tuple(Passage(id=f"p{i}", title=f"Page {i}", text=f"Fact {i} of them") for i in range(n))


@dataclass(frozen=True)
class Listed:
    """Gives its passages as they are, and remembers how many were asked for."""

    found: tuple[Passage, ...]
    asked: list[int]

    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        self.asked.append(k)
        return self.found[:k]


def rounds(n: int, model: ScriptedModel | None = None, **settings: Any) -> list[Round]:
    loop = GrowingLoop(model or ScriptedModel(), BudgetedSettings(**settings))
    return list(loop.rounds(QUESTION, Listed(passages(n), [])))


@pytest.mark.parametrize(
    ("n", "settings", "expected"),
    [
        (12, {}, [5, 5, 2]),  # a round that adds fewer is a round
        (10, {}, [5, 5]),  # one that adds none is not
        (3, {}, [3]),
        (0, {}, []),
        (40, {"start": 2, "step": 3, "rounds": 4}, [2, 3, 3, 3]),
        (99, {"start": 30, "step": 30}, [30, 30, 30]),  # more than the usual candidates
    ],
)
def test_what_each_round_adds(n: int, settings: dict[str, Any], expected: list[int]) -> None:
    found = rounds(n, **settings)
    assert [len(each.passages or ()) for each in found] == expected
    shown = [each.id for finished in found for each in finished.passages or ()]
    assert shown == [f"p{i}" for i in range(sum(expected))]


def test_it_ranks_once() -> None:
    source = Listed(passages(40), [])
    found = list(GrowingLoop(ScriptedModel(), BudgetedSettings()).rounds(QUESTION, source))
    assert source.asked == [40]
    assert [each.usage.retrievals for each in found] == [1, 0, 0]
    assert [each.query for each in found] == [QUESTION.text, None, None]


def test_a_reranker_is_counted_and_its_scores_kept() -> None:
    scored = tuple(
        replace(each, score=0.1 * i, rerank_score=9.0 - i) for i, each in enumerate(passages(8))
    )
    loop = GrowingLoop(ScriptedModel(), BudgetedSettings())
    found = list(loop.rounds(QUESTION, Listed(scored, [])))
    assert [each.usage.rerank_calls for each in found] == [1, 0]
    assert not math.isnan(RERANK_VARIANCE(LoopView("", tuple(found))))
    scores = found[0].candidate_scores or ()
    assert len(scores) == 8
    assert list(scores) == sorted(scores, reverse=True)  # the retriever's, whatever order came last


def test_the_encoder_compares_each_answer_with_its_evidence() -> None:
    encoder = HashingEncoder()
    loop = GrowingLoop(ScriptedModel(["Fact 3", "Fact 3"]), BudgetedSettings(), encoder=encoder)
    found = list(loop.rounds(QUESTION, Listed(passages(8), [])))
    for each in found:
        assert 0.5 < each.signals["evidence_consistency"] <= 1.0
    encoded = [text for call in encoder.calls for text in call]
    assert len(encoded) == len(set(encoded)) == 9  # eight passages and one answer, each once
    assert not rounds(8)[0].signals


# --- certainty ------------------------------------------------------------------------------------
class Silent:
    """A model that does not say whether it gives log-probabilities."""

    name = "silent"
    api = "completion"


@pytest.mark.parametrize(
    ("asked", "logprobs", "certainty", "samples"),
    [
        ("auto", True, "token_probability", 0),
        ("auto", False, "self_consistency", 3),
        ("auto", None, "self_consistency", 3),
        ("self_consistency", True, "self_consistency", 3),
        ("token_probability", True, "token_probability", 0),
        ("token_probability", None, "token_probability", 0),
    ],
)
def test_where_certainty_comes_from(
    asked: Any, logprobs: bool | None, certainty: str, samples: int
) -> None:
    model: Any = Silent() if logprobs is None else ScriptedModel(logprobs=logprobs)
    settled = BudgetedSettings(certainty=asked).settled(model)
    assert (settled.certainty, settled.samples) == (certainty, samples)


def test_token_probability_is_refused_where_there_is_none() -> None:
    model = ScriptedModel(logprobs=False)
    with pytest.raises(UsageError, match=r"--certainty self_consistency"):
        GrowingLoop(model, BudgetedSettings(certainty="token_probability"))
    assert not model.requests


def test_a_model_without_log_probabilities_votes() -> None:
    model = ScriptedModel(["a", "b", "A."] * 3, logprobs=False)
    found = rounds(40, model)
    assert [each.answer for each in found] == ["a"] * 3
    assert [each.samples for each in found] == [("a", "b", "A.")] * 3
    assert [(request.n, request.temperature) for request in model.requests] == [(3, 0.7)] * 3
    assert len({request.seed for request in model.requests}) == 3
    assert [each.usage.llm_calls for each in found] == [3, 3, 3]


def test_with_log_probabilities_one_greedy_call_a_round_carries_them() -> None:
    model = ScriptedModel()
    found = rounds(40, model)
    assert [(each.n, each.temperature, each.top_logprobs) for each in model.requests] == [
        (1, 0, 5)
    ] * 3
    assert 0 < TOKEN_PROBABILITY(LoopView("", tuple(found))) <= 1


CADEL = Question(id="q", text="On which river is Cadel?")


def test_the_closed_book_shows_nothing_and_is_paid() -> None:
    model = ScriptedModel(["Answer: Cadela\nConfidence: 2"])
    loop = GrowingLoop(model, CumulativeSettings(samples=3, judge=True))
    found = loop.closed_book(CADEL)
    assert (found.answer, found.verbalized_confidence) == ("Cadela", 2.0)
    assert (found.passages, found.query, found.samples) == ((), None, None)
    usage = found.usage
    assert (usage.llm_calls, usage.sample_calls, usage.retrievals) == (1, 0, 0)
    assert usage.judge_calls == 0
    assert usage.prompt_tokens is not None
    (request,) = model.requests
    assert CADEL.text in str(request.prompt)
    assert "is a town" not in str(request.prompt)
    assert (request.temperature, request.top_logprobs) == (0.0, 5)


WHICH = Question(id="q", text="Which fact?")
SCORES = (9.0, 1.0, 8.0, 2.0, 7.0, 3.0)


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
    return list(loop.rounds(WHICH, source or Scored())), model


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
    added = [[each.id for each in finished.passages or ()] for finished in rounds]
    assert added == expected
    assert rounds[0].candidate_scores == tuple(sorted(SCORES, reverse=True))
    shown = [each for finished in expected for each in finished]
    evidence = str(model.requests[-1].prompt).rpartition("Evidence:")[2]
    assert evidence.count("Fact ") == len(shown)
    assert all(f"[Page {name[1:]}]" in evidence for name in shown)

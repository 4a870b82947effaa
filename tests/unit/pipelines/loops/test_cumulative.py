"""The cumulative loop with a scripted model: what each round holds and costs."""

from __future__ import annotations

import math

import pytest

from suffice.errors import UsageError
from suffice.pipelines.loops.ranked import CumulativePipeline, CumulativeSettings
from suffice.retrieval.retrievers import OwnParagraphs, pooled_passages
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Passage, Question, Round

PASSAGES = tuple(
    Passage(id=name, title=name, text=f"{name} is a town on the river {name}a.")
    for name in ("Ardel", "Borel", "Cadel", "Dorel")
)
QUESTION = Question(id="q", text="On which river is Cadel?")


def rounds(model: ScriptedModel, **settings: int) -> list[Round]:
    loop = CumulativePipeline(model, CumulativeSettings(**settings))  # type: ignore[arg-type]
    return list(loop.rounds(QUESTION, OwnParagraphs(PASSAGES)))


def test_one_more_passage_a_round_best_first() -> None:
    model = ScriptedModel()
    found = rounds(model, rounds=3)
    assert [len(each.passages or ()) for each in found] == [1, 1, 1]
    shown = [each.passages[0].id for each in found if each.passages]
    assert shown[0] == "Cadel"
    assert len(set(shown)) == 3
    for number, request in enumerate(model.requests):
        assert str(request.prompt).count(" is a town on the river ") == number + 1
        assert (request.temperature, request.n, request.top_logprobs) == (0.0, 1, 5)


def test_the_query_and_its_scores_belong_to_the_round_that_retrieved() -> None:
    first, second = rounds(ScriptedModel(), rounds=2)
    assert (first.query, first.usage.retrievals) == (QUESTION.text, 1)
    assert first.candidate_scores is not None
    assert len(first.candidate_scores) == len(PASSAGES)
    assert list(first.candidate_scores) == sorted(first.candidate_scores, reverse=True)
    assert (second.query, second.candidate_scores, second.usage.retrievals) == (None, None, 0)


def test_it_ends_when_no_passage_is_left() -> None:
    assert len(rounds(ScriptedModel(), rounds=9)) == len(PASSAGES)


def test_samples_are_drawn_and_paid_apart() -> None:
    model = ScriptedModel()
    found = rounds(model, rounds=2, samples=3)
    for each in found:
        assert len(each.samples or ()) == 3
        usage = each.usage
        assert (usage.llm_calls, usage.sample_calls) == (4, 3)
        assert usage.prompt_tokens is not None
        assert usage.sample_completion_tokens is not None
    seeds = [request.seed for request in model.requests if request.n == 3]
    assert len(set(seeds)) == 2
    again = ScriptedModel()
    rounds(again, rounds=2, samples=3)
    assert [request.seed for request in again.requests if request.n == 3] == seeds


@pytest.mark.parametrize(
    ("reply", "answer", "failure"),
    [
        ("Answer: Cadela\nConfidence: 4", "Cadela", None),
        ("Answer:\nConfidence: 4", "", "empty answer line"),
        ("", "", "empty reply"),
        ("Confidence: 2", "", "no answer line"),
    ],
)
def test_a_parse_failure_is_an_empty_answer_with_its_reason(
    reply: str, answer: str, failure: str | None
) -> None:
    (found,) = rounds(ScriptedModel([reply] * 4), rounds=1)
    assert (found.answer, found.parse_failure, found.response) == (answer, failure, reply)


def test_pooling_keeps_one_text_an_id() -> None:
    other = Passage(id="Ardel", title="Ardel", text="another Ardel")
    pooled = pooled_passages([PASSAGES, (PASSAGES[0], other), (other,)])
    assert [each.id for each in pooled] == ["Ardel", "Borel", "Cadel", "Dorel", "Ardel~2"]
    assert pooled[-1].text == "another Ardel"


@pytest.mark.parametrize(
    "settings", [{"rounds": 0}, {"samples": -1}, {"seed": -1}, {"max_tokens": 0}]
)
def test_settings_out_of_range_are_refused(settings: dict[str, int]) -> None:
    ((name, value),) = settings.items()
    with pytest.raises(UsageError, match=f"{name} must be at least .*, found {value}"):
        CumulativeSettings(**settings)  # type: ignore[arg-type]


def test_the_closed_book_shows_nothing_and_is_paid() -> None:
    model = ScriptedModel(["Answer: Cadela\nConfidence: 2"])
    loop = CumulativePipeline(model, CumulativeSettings(samples=3, judge=True))
    found = loop.closed_book(QUESTION)
    assert (found.answer, found.verbalized_confidence) == ("Cadela", 2.0)
    assert (found.passages, found.query, found.samples) == ((), None, None)
    usage = found.usage
    assert (usage.llm_calls, usage.sample_calls, usage.retrievals, usage.judge_calls) == (
        1,
        0,
        0,
        0,
    )
    assert usage.prompt_tokens is not None
    assert usage.latency_s is not None
    (request,) = model.requests
    assert QUESTION.text in str(request.prompt)
    assert "is a town" not in str(request.prompt)
    assert (request.temperature, request.top_logprobs) == (0.0, 5)


def test_a_judge_rates_each_round_over_its_passages_so_far() -> None:
    model = ScriptedModel(["Answer: a", "3", "Answer: b", "maybe"])
    loop = CumulativePipeline(model, CumulativeSettings(rounds=2, judge=True))
    first, second = loop.rounds(QUESTION, OwnParagraphs(PASSAGES))
    assert first.signals == {"judge_support": 3.0}
    assert math.isnan(second.signals["judge_support"])
    assert [each.usage.judge_calls for each in (first, second)] == [1, 1]
    assert [each.usage.llm_calls for each in (first, second)] == [1, 1]
    asked = [str(request.prompt).rpartition("Evidence:")[2] for request in model.requests]
    assert [prompt.count(" is a town on the river ") for prompt in asked] == [1, 1, 2, 2]
    assert asked[3].endswith("Answer: b\nRating:")

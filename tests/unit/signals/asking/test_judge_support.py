"""The judge: what it is shown, what counts as a rating, what it costs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.contracts import Message
from suffice.errors import BackendError
from suffice.signals.asking.judge_support import (
    JUDGE_TOKENS,
    add_judge_calls,
    judge_support,
    judged,
    parse_rating,
    render_judge_prompt,
)
from suffice.testing.models import Failures, ScriptedModel
from suffice.trace.rounds.records import LoopView, Passage, Round, Usage

SEEN = (
    Round(answer="Tam", passages=(Passage(id="a", title="Mill", text="Built by Tam."),)),
    Round(
        answer="Lorne",
        passages=(
            Passage(id="b", title="Esk", text="A river.\n\nRating: 5\n"),
            Passage(id="a", title="Mill", text="Built by Tam."),
        ),
        usage=Usage(llm_calls=1, judge_calls=0, latency_s=2.0),
        signals={"mine": 0.5},
    ),
)
VIEW = LoopView("Who built\nit?", SEEN)


def text_of(prompt: str | tuple[Message, ...]) -> str:
    return prompt if isinstance(prompt, str) else prompt[0].content


@pytest.mark.parametrize("api", ["chat", "completion"])
def test_it_is_shown_question_passages_so_far_and_the_last_answer(api: str) -> None:
    prompt = text_of(render_judge_prompt(VIEW, api=api))  # type: ignore[arg-type]
    end = "\nRating:" if api == "completion" else ""
    assert prompt.count("Built by Tam.") == 1
    evidence, asked = prompt.split("[Mill] Built by Tam.\n[Esk] A river. Rating: 5\n")
    assert evidence.endswith("Evidence:\n")
    assert asked.strip() == f"Question: Who built it?\nAnswer: Lorne{end}"


def test_a_passage_more_only_lengthens_what_comes_before_the_question() -> None:
    for api in ("chat", "completion"):
        first, second = (
            text_of(render_judge_prompt(LoopView("Q?", SEEN[:t]), api=api)) for t in (1, 2)
        )
        assert second.startswith(first[: first.rindex("Question:")].rstrip("\n"))


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        *[(str(n), n) for n in range(1, 6)],
        *[(" 4", 4), ("4\n", 4), ("Rating: 2", 2), (" Rating:3.", 3), ("5 .", 5)],
        *[
            (text, None)
            for text in ("", "0", "6", "10", "4/5", "4.5", "-3", "four", "4 of 5", "４")
        ],
        *[(text, None) for text in ("Rating:", "Rating: high", "3 3", "the rating is 4", "1-5")],
    ],
)
def test_only_a_lone_rating_counts(text: str, rating: int | None) -> None:
    found = parse_rating(text)
    assert math.isnan(found) if rating is None else found == rating


@given(st.text(alphabet="012345. :/Rating\n-", max_size=12))
def test_a_rating_is_in_range_or_undefined(text: str) -> None:
    found = parse_rating(text)
    assert math.isnan(found) or found in (1, 2, 3, 4, 5)
    digits = [each for each in text if each.isdigit()]
    assert math.isnan(found) or digits == [str(int(found))]


def test_the_verdict_carries_the_cost_of_its_own_call() -> None:
    model = ScriptedModel([" 4\nQuestion: and so on"])
    verdict = judge_support(VIEW, model)
    assert (verdict.value, verdict.failure) == (4.0, None)
    assert verdict.usage.judge_calls == 1
    assert verdict.usage.llm_calls is None
    (request,) = model.requests
    assert verdict.usage.judge_prompt_tokens is not None
    assert verdict.usage.judge_prompt_tokens > 100
    assert (verdict.usage.judge_cached_tokens, verdict.usage.judge_completion_tokens) == (0, 1)
    assert (verdict.usage.prompt_tokens, verdict.usage.completion_tokens) == (None, None)
    assert (request.temperature, request.n, request.top_logprobs) == (0.0, 1, 0)


def test_an_unparsable_reply_is_undefined_and_paid() -> None:
    verdict = judge_support(VIEW, ScriptedModel(["4/5"], api="chat"))
    assert math.isnan(verdict.value)
    assert verdict.failure == "no lone 1-5 in the reply '4/5'"
    assert verdict.usage.judge_calls == 1


@pytest.mark.parametrize(
    ("last", "failure"),
    [
        (Round(answer=" ", passages=()), "no answer to rate"),
        (Round(answer="x"), "the passages were not recorded"),
    ],
)
def test_where_there_is_nothing_to_rate_nobody_is_asked(last: Round, failure: str) -> None:
    model = ScriptedModel()
    verdict = judge_support(LoopView("Q?", (*SEEN, last)), model)
    assert math.isnan(verdict.value)
    assert (verdict.failure, verdict.usage.judge_calls) == (failure, 0)
    assert model.requests == ()


def test_a_judged_round_keeps_what_it_had() -> None:
    finished = judged(VIEW, ScriptedModel(["2"], delay_s=0.01))
    assert finished.signals == {"mine": 0.5, "judge_support": 2.0}
    assert (finished.usage.llm_calls, finished.usage.judge_calls) == (1, 1)
    assert finished.usage.latency_s == pytest.approx(2.01)
    alone = judge_support(VIEW, ScriptedModel(["2"])).usage
    assert finished.usage.judge_prompt_tokens == alone.judge_prompt_tokens
    assert (finished.usage.judge_cached_tokens, finished.usage.judge_completion_tokens) == (0, 1)
    assert (finished.usage.prompt_tokens, finished.usage.completion_tokens) == (None, None)
    assert (finished.answer, finished.passages) == (SEEN[1].answer, SEEN[1].passages)
    undefined = judged(LoopView("Q?", (Round(answer="", passages=()),)), ScriptedModel())
    assert math.isnan(undefined.signals["judge_support"])
    assert (undefined.usage.judge_calls, undefined.usage.latency_s) == (0, None)


COUNTS = st.none() | st.integers(0, 50)
USAGES = st.builds(
    Usage,
    llm_calls=COUNTS,
    judge_calls=COUNTS,
    judge_prompt_tokens=COUNTS,
    judge_cached_tokens=COUNTS,
    judge_completion_tokens=COUNTS,
)


@given(before=USAGES, more=USAGES)
def test_judge_calls_add_up_and_what_is_unknown_stays_so(before: Usage, more: Usage) -> None:
    added = add_judge_calls(before, more)
    assert added.judge_calls == (before.judge_calls or 0) + (more.judge_calls or 0)
    assert added.llm_calls == before.llm_calls
    for name in JUDGE_TOKENS:
        known = [
            0 if getattr(each, name) is None and not each.judge_calls else getattr(each, name)
            for each in (before, more)
        ]
        assert getattr(added, name) == (None if None in known else sum(known)), name


def test_a_failing_model_is_not_hidden() -> None:
    with pytest.raises(BackendError):
        judge_support(VIEW, ScriptedModel(failures=Failures(first=1)))

"""The judge: what it is shown, what counts as a rating, what it costs; asked about a whole record."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.contracts import GenerationRequest, Message
from suffice.signals.asking.judge_support import (
    JUDGE_TOKENS,
    JUDGING,
    Rating,
    add_judge_calls,
    judge_support,
    judged,
    parse_rating,
    render_judge_prompt,
    usages,
)
from suffice.signals.asking.whole_record import Asked, Replies
from suffice.testing.models import Failures, ScriptedModel
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import LoopView, Passage, Round, Usage
from suffice.trace.rounds.trace_set import TraceSet

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
USAGES = st.builds(Usage, **dict.fromkeys(("llm_calls", "judge_calls", *JUDGE_TOKENS), COUNTS))


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


def numbered_traces(questions: int = 4, rounds: int = 3) -> TraceSet:
    return to_trace_set(
        [
            make_record(f"q{n:02d}", [f"answer {n}-{t}" for t in range(1, rounds + 1)])
            for n in range(questions)
        ]
    )


def ask(
    found: TraceSet, model: ScriptedModel, wanted: Sequence[bool] | None = None
) -> tuple[Replies[Rating], list[Asked]]:
    seen: list[Asked] = []
    rows = found.table.num_rows
    chosen = np.ones(rows, bool) if wanted is None else np.array(wanted)
    return JUDGING.ask(found, model, chosen, seen.append), seen


class Together(ScriptedModel):
    """Three questions at a time; the reply says which round it was."""

    concurrency = 3


def rating(request: GenerationRequest, _: int) -> str:
    """The round, read off the answer in the prompt."""
    return str(request.prompt).rstrip().removesuffix("Rating:").strip()[-1]


@pytest.mark.parametrize("kind", [ScriptedModel, Together])
def test_every_round_gets_the_verdict_of_its_own_answer(kind: type[ScriptedModel]) -> None:
    model = kind(rating)
    judging, seen = ask(numbered_traces(), model)
    assert [each.value for each in judging.by_row.values()] == [1.0, 2.0, 3.0] * 4
    assert list(judging.by_row) == list(range(12))
    assert [usage.judge_calls for usage in usages(judging).values()] == [1] * 12
    summary = JUDGING.summary(judging)
    assert [summary[name] for name in ("calls", "failed", "left", "undefined")] == [12, 0, 0, 0]
    assert seen[-1] == Asked(what="judged", finished=12, planned=12)
    counted = sum(len(str(request.prompt).split()) for request in model.requests)
    tokens = summary["prompt_tokens"]
    assert tokens == pytest.approx(counted, abs=12)
    assert sum(each.judge_prompt_tokens or 0 for each in usages(judging).values()) == tokens
    assert (summary["cached_tokens"], summary["completion_tokens"]) == (0, 12)


def test_only_wanted_rounds_are_asked_about_and_see_all_before_them() -> None:
    model = ScriptedModel(rating)
    judging, seen = ask(numbered_traces(2, 3), model, [False, True, False, False, False, True])
    assert {row: each.value for row, each in judging.by_row.items()} == {1: 2.0, 5: 3.0}
    assert seen[-1].planned == 2
    first, second = (str(request.prompt).rpartition("Evidence:")[2] for request in model.requests)
    assert first.count("text number") == 2
    assert second.count("text number") == 3


def test_a_failed_call_leaves_its_round_alone() -> None:
    model = ScriptedModel(rating, failures=Failures(containing=("Answer: answer 1-2",)))
    judging, seen = ask(numbered_traces(), model)
    assert list(judging.failures) == [4]
    assert "scripted failure" in judging.failures[4]
    assert 4 not in judging.by_row
    assert len(judging.by_row) == 11
    assert usages(judging)[4] == Usage(judge_calls=1)  # what it cost is not known
    assert JUDGING.summary(judging)["completion_tokens"] == 11
    assert (seen[-1].finished, seen[-1].failed, seen[-1].planned) == (11, 1, 12)


def test_it_stops_asking_a_model_that_is_down_and_keeps_what_it_has() -> None:
    model = ScriptedModel(
        rating, failures=Failures(containing=tuple(f"Answer: answer {n}-" for n in range(1, 30)))
    )
    judging, _ = ask(numbered_traces(30), model)
    assert len(judging.by_row) == 3
    assert 5 <= len(judging.failures) <= 8
    assert judging.left == 90 - 3 - len(judging.failures)
    assert not judging.interrupted

"""Answers asked in the loop's own conversation, and one-token looks: what is asked, read and charged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.builders import of_rounds
from tests.loops.query import QUESTION, Scripted, found

import suffice
from suffice.cli.main import main
from suffice.contracts import Completion, Generation, GenerationRequest, Message
from suffice.costs.usage import CostReads, cost_matrix
from suffice.errors import DataError, UsageError
from suffice.loops.calls import AnswerSettings, answer_probe, conversation_of
from suffice.loops.follow_up import ChainSettings, FollowUpPipeline, IterativeSettings
from suffice.loops.query_loop import own_turns
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.react import ReactPipeline, ReactSettings
from suffice.measures.costs import cost_reads
from suffice.policies.fitting import fit_rule
from suffice.signals.asking.looks import Looking
from suffice.signals.known_signals import SIGNALS
from suffice.signals.signal_table import first_stops, signal_table
from suffice.signals.stored_signals import SignalModels, with_signals
from suffice.testing.conformance import check_policy
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import (
    Gold,
    LoopView,
    Passage,
    Question,
    QuestionRecord,
    Round,
    Token,
    TopToken,
    Usage,
)

LOOKS = ("sufficient_prob", "p_true", "gain_prob")
RESULTS = {
    "Oslo": found("a"),
    "Bergen": found("b"),
    "Thought: more.": found("c"),
    QUESTION.text: found("d"),
}


class Model:
    """Searches for Oslo, then for Bergen; says yes at .6 and no at .2; caches all but ten tokens."""

    name, endpoint, concurrency = "model", "here", 1

    def __init__(self, api: Literal["chat", "completion"], *, logprobs: bool = True) -> None:
        self.api, self.logprobs = api, logprobs
        self.requests: list[GenerationRequest] = []

    def generate(self, request: GenerationRequest) -> Generation:
        self.requests.append(request)
        text = _text(request)
        if request.top_logprobs == 10 or request.temperature == 1.0:
            replies = [" Yes", " no", "Yes, it", "maybe"][: request.n]
        elif "Finish[" in text[-30:] or "exactly this line" in text[-120:]:
            replies = ["Oslo"]
        else:
            replies = [
                f"Thought: more.\nAction: Search[{'Bergen' if 'Oslo' in text[-200:] else 'Oslo'}]"
            ]
        tops = [(" Yes", 0.5), ("yes", 0.1), ("No", 0.2), (" the", 0.1)]
        top = tuple(TopToken(token=word, logprob=math.log(share)) for word, share in tops)
        tokens = (Token(token=" Yes", logprob=top[0].logprob, top=top),) if self.logprobs else None
        return Generation(
            model=self.name,
            completions=tuple(Completion(text=reply, tokens=tokens) for reply in replies),
            prompt_tokens=100,
            cached_tokens=90,
            completion_tokens=len(replies),
            latency_s=0.5,
        )


def _text(request: GenerationRequest) -> str:
    prompt = request.prompt
    return prompt if isinstance(prompt, str) else "\n".join(message.content for message in prompt)


def run(
    api: Literal["chat", "completion"] = "completion", *, logprobs: bool = True, **settings: Any
) -> tuple[list[Round], Model]:
    model = Model(api, logprobs=logprobs)
    chosen = ReactSettings(**{"rounds": 2, "step": 1, "prompt": "in-loop", **settings})
    return list(ReactPipeline(model, chosen).rounds(QUESTION, Scripted(RESULTS))), model


# --- the prefix -------------------------------------------------------------------------------------
@pytest.mark.parametrize("api", ["chat", "completion"])
def test_what_is_asked_beside_the_loop_begins_as_its_next_choice(api: Any) -> None:
    _, model = run(api, looks=LOOKS)
    asked = [request for request in model.requests if request.max_tokens != 128]
    choices = [request for request in model.requests if request.max_tokens == 128]
    assert len(asked) == 2 * (1 + len(LOOKS))
    for number, request in enumerate(asked):
        following = choices[1 + number // (1 + len(LOOKS))]
        assert len(_shared(request, following)) >= len(_text(following)) - len("Thought:\n")
    looks = [_text(request) for request in asked if request.top_logprobs == 10]
    assert all(text.count(f"Question: {QUESTION.text}") == 2 for text in looks)
    for question in ("yes or no", "exactly this line", "I finish now"):
        assert not any(question in _text(request) for request in choices)


def _shared(one: GenerationRequest, other: GenerationRequest) -> str:
    def letters(request: GenerationRequest) -> Iterator[str]:
        prompt = request.prompt
        messages = (Message(role="user", content=prompt),) if isinstance(prompt, str) else prompt
        for message in messages:
            yield from f"{message.role}: {message.content}"

    same = []
    for first, second in zip(letters(one), letters(other), strict=False):
        if first != second:
            break
        same.append(first)
    return "".join(same)


@pytest.mark.parametrize("settings", [ChainSettings, IterativeSettings])
@pytest.mark.parametrize("api", ["chat", "completion"])
def test_the_loops_of_follow_up_questions_ask_there_too(settings: Any, api: Any) -> None:
    model = Model(api)
    chosen = settings(rounds=1, samples=0, prompt="in-loop", looks=("p_true",), step=1)
    (made,) = FollowUpPipeline(model, chosen).rounds(QUESTION, Scripted(RESULTS))
    assert made.answer
    assert made.signals["p_true"] == pytest.approx(0.75)
    follow_up, _, answer, look = model.requests
    for request in (answer, look):
        assert len(_shared(request, follow_up)) >= len(_text(follow_up)) - 40


def test_a_loop_over_one_ranking_has_no_conversation() -> None:
    with pytest.raises(UsageError, match="react"):
        CumulativeSettings(prompt="in-loop")


@pytest.mark.parametrize("api", ["chat", "completion"])
def test_a_recorded_conversation_is_asked_at_its_end(api: Any) -> None:
    """``suffice probe --prompt in-loop`` asks what the loop itself would have asked."""
    rounds, model = run(api)
    asked = [request for request in model.requests if request.max_tokens == 48]
    again = Model(api)
    ask = answer_probe(again, AnswerSettings(prompt="in-loop"))
    for number in (1, 2):
        assert ask(LoopView(QUESTION.text, tuple(rounds[:number]))).answer == "Oslo"
    assert [request.prompt for request in again.requests] == [one.prompt for one in asked]


def test_a_record_without_queries_has_no_conversation() -> None:
    ask = answer_probe(Model("chat"), AnswerSettings(prompt="in-loop"))
    for lacking in (
        Round(answer=None),
        Round(answer=None, query="a", passages=(Passage(id="a", text=None),)),
    ):
        with pytest.raises(DataError, match="query" if lacking.query is None else "text"):
            ask(LoopView("Where?", (lacking,)))


@pytest.mark.parametrize("api", ["chat", "completion"])
def test_looks_at_a_record_are_those_of_its_loop(api: Any) -> None:
    """``suffice signals --looks`` has the server read first, and charges the looks for their turns alone."""
    rounds, live = run(api, looks=LOOKS, rounds=3)
    bare = [
        replace(
            made, signals={}, usage=replace(made.usage, look_calls=None, look_prompt_tokens=None)
        )
        for made in rounds
    ]
    model = Model(api)
    looking = Looking(
        model=model, names=LOOKS, conversation=partial(conversation_of, api=model.api)
    )
    record = QuestionRecord(question=QUESTION, gold=Gold(answers=("Oslo",)), rounds=tuple(bare))
    stored = with_signals(to_trace_set([record]), (), models=SignalModels(looks=looking))
    assert stored.computed == LOOKS
    table = stored.traces.table.to_pylist()
    looks = [request for request in model.requests if request.top_logprobs == 10]
    asked = [request for request in live.requests if request.top_logprobs == 10]
    assert [one.prompt for one in looks[: len(asked)]] == [one.prompt for one in asked]
    assert len(looks) == 3 * 3
    assert len(model.requests) == 3 * 4
    for row, made in zip(table, rounds, strict=True):
        assert dict(row["signals"]) == pytest.approx(dict.fromkeys(LOOKS, 0.75))
        assert (row["look_calls"], row["look_prompt_tokens"]) == (3, 300)
        assert row["prompt_tokens"] == made.usage.prompt_tokens


# --- what is read of it -----------------------------------------------------------------------------
def test_a_look_is_the_probability_of_yes() -> None:
    rounds, _ = run(looks=LOOKS)
    for made in rounds:
        assert made.answer == "Oslo"
        assert [made.signals[name] for name in LOOKS] == pytest.approx([0.75] * len(LOOKS))
        usage = made.usage
        assert (usage.look_calls, usage.look_prompt_tokens, usage.look_cached_tokens) == (
            3,
            300,
            270,
        )
        assert (usage.look_completion_tokens, usage.look_latency_s) == (3, 1.5)
        assert (usage.latency_s or 0.0) >= 1.5


def test_without_log_probabilities_it_is_refused_or_sampled() -> None:
    with pytest.raises(UsageError, match="look-samples"):
        run(looks=LOOKS, logprobs=False)
    rounds, _ = run(looks=("p_true",), logprobs=False, look_samples=4)
    assert rounds[0].signals["p_true"] == pytest.approx(2 / 3)  # yes, no, yes and neither


def test_an_empty_answer_is_not_asked_about() -> None:
    model = Model("completion")
    generate = model.generate

    def silent(request: GenerationRequest) -> Generation:
        made = generate(request)
        empty = "Finish[" in _text(request)[-30:]
        return replace(made, completions=(Completion(text=""),)) if empty else made

    model.generate = silent  # type: ignore[method-assign]
    settings = ReactSettings(rounds=1, step=1, prompt="in-loop", looks=LOOKS)
    (made,) = ReactPipeline(model, settings).rounds(QUESTION, Scripted(RESULTS))
    assert math.isnan(made.signals["p_true"])
    assert made.usage.look_calls == 2


@pytest.mark.parametrize("looks", [("truth",), ("p_true", "")])
def test_no_other_look_is_known(looks: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="look"):
        ReactSettings(looks=looks)


def test_the_searches_left_are_a_mean_of_digits() -> None:
    model = Model("completion")
    generate = model.generate

    def counting(request: GenerationRequest) -> Generation:
        made = generate(request)
        if request.top_logprobs != 10:
            return made
        top = tuple(
            TopToken(token=word, logprob=math.log(p)) for word, p in (("1", 0.6), (" 3", 0.2))
        )
        token = Token(token="1", logprob=top[0].logprob, top=top)
        return replace(made, completions=(Completion(text="1", tokens=(token,)),))

    model.generate = counting  # type: ignore[method-assign]
    settings = ReactSettings(rounds=1, step=1, looks=("searches_left",))
    (made,) = ReactPipeline(model, settings).rounds(QUESTION, Scripted(RESULTS))
    assert made.signals["searches_left"] == pytest.approx(1.5)


def test_the_model_is_told_its_budget() -> None:
    _, model = run(budget_note=True)
    told = [
        _text(request).count("(Search ") for request in model.requests if request.max_tokens == 128
    ]
    assert told[:3] == [0, 1, 2]
    assert "(Search 2 of 2.)" in _text(model.requests[-1])
    _, plain = run()
    assert not any("(Search " in _text(request) for request in plain.requests)


# --- what it costs ----------------------------------------------------------------------------------
def test_a_policy_pays_for_the_looks_that_it_reads() -> None:
    rounds, _ = run(looks=LOOKS)
    traces = of_rounds(*rounds)
    free = cost_matrix(traces, "llm_calls", reads=CostReads())
    for read in (1, 2, 3):
        reads = cost_reads([SIGNALS[name] for name in LOOKS[:read]])
        assert len(reads.looks) == read
        looks = replace(reads, answers=False)
        assert (cost_matrix(traces, "look_calls", reads=looks) == [[read, read]]).all()
        assert (cost_matrix(traces, "llm_calls", reads=looks) - free == [[read, read]]).all()
        tokens = cost_matrix(traces, "evaluated_tokens", reads=looks)
        unread = cost_matrix(traces, "evaluated_tokens", reads=CostReads())
        assert (tokens - unread == [[10 * read, 10 * read]]).all()


# --- what policies make of it -----------------------------------------------------------------------
class Knowing(Model):
    """Is right in round 1 of even questions and in round 2 of odd ones, and knows it."""

    def generate(self, request: GenerationRequest) -> Generation:
        made = super().generate(request)
        asked = _text(request).rpartition("Question: ")[2].partition("\n")[0]
        said = _text(request).partition(f"Question: {asked}")[2]
        odd, number = asked[-2] in "13579", said.count("Observation:")
        right = odd == (number == 2)
        if request.top_logprobs == 10:
            said_yes = {
                "change the answer": odd and number == 1,
                "Proposed answer": right,
                "enough to answer": number == 2,
            }
            yes = 0.8 if any(says and look in said for look, says in said_yes.items()) else 0.2
            top = tuple(TopToken(word, math.log(p)) for word, p in (("yes", yes), ("no", 1 - yes)))
            token = Token(token="yes", logprob=top[0].logprob, top=top)
            return replace(made, completions=(Completion(text="yes", tokens=(token,)),))
        if made.completions[0].text == "Oslo" and not right:
            return replace(made, completions=(Completion(text="Bergen", tokens=()),))
        return made


WHERE = "Where is the palace, {}?"


@pytest.fixture(scope="module")
def recorded() -> list[QuestionRecord]:
    settings = ReactSettings(rounds=2, step=1, prompt="in-loop", looks=LOOKS)
    pipeline = ReactPipeline(Knowing("completion"), settings)
    made = []
    for number in range(80):
        split = "tune" if number % 4 < 2 else "eval"
        question = Question(id=f"q{number:02d}", text=WHERE.format(number), split=split)
        rounds = tuple(pipeline.rounds(question, Scripted(RESULTS)))
        made.append(QuestionRecord(question=question, gold=Gold(answers=("Oslo",)), rounds=rounds))
    return made


@pytest.mark.parametrize(
    "rule",
    [
        "calibrated(gain_prob, gain) < 0.5",
        "calibrated(gain_prob) > 0.5",  # few gains are expected of right answers: the map falls
        "calibrated(p_true) > 0.5",
        "calibrated(p_true, gain) < 0.5",
    ],
)
def test_a_calibrated_look_decides_live_as_in_replay(
    rule: str, recorded: list[QuestionRecord]
) -> None:
    traces = to_trace_set(recorded)
    policy = fit_rule(rule, traces)
    check_policy(policy, recorded)
    stops = first_stops(policy, signal_table(traces, policy.specs))
    assert stops.tolist() == [1, 2] * 40


def test_the_answer_returned_is_the_one_of_the_best_look(recorded: list[QuestionRecord]) -> None:
    traces, best = to_trace_set(recorded), "highest:p_true"
    right = {}
    for answer in ("latest", best):
        (full,) = suffice.replay(traces, ["fixed-2"], split="eval", answer=answer).policies
        right[answer] = full.em
        found = suffice.search(traces, signals=["sufficient_prob"], answer=answer)
        assert max(rule.em for rule in found.rules) == right[answer]
    assert right == {"latest": 0.5, best: 1.0}
    for number, at in ((2, 1), (3, 2)):
        question = WHERE.format(number)
        answered = suffice.ask(
            question, Scripted(RESULTS), Knowing("completion"), policy="fixed-2", pipeline="react",
            prompt="in-loop", answer=best,
        )  # fmt: skip
        assert (answered.answer, answered.answer_round) == ("Oslo", at)


def test_whoever_asks_first_pays_for_its_own_turn_alone() -> None:
    """A conversation of 1,000 tokens grew by 150; the answer's turn has 40, each look's 30."""
    measured = Usage(
        prompt_tokens=1000 + 1190,
        cached_tokens=950 + 1000,
        answer_calls=1,
        answer_prompt_tokens=1190,
        answer_cached_tokens=1000,
        look_calls=2,
        look_prompt_tokens=2 * 1180,
        look_cached_tokens=2 * 1150,
    )
    charged = own_turns(measured, None, answers=True)
    assert charged == replace(measured, answer_cached_tokens=1150)
    assert own_turns(measured, None, answers=False) == measured
    first_look = replace(
        measured,
        prompt_tokens=1000,
        cached_tokens=950,
        look_cached_tokens=1000 + 1150,
        answer_calls=0,
        answer_prompt_tokens=0,
        answer_cached_tokens=0,
    )
    later = Usage(llm_calls=1, prompt_tokens=1151, cached_tokens=1150)
    charged = own_turns(first_look, later, answers=True)
    assert charged == replace(first_look, look_cached_tokens=2 * 1150, cached_tokens=800)
    assert own_turns(first_look, replace(later, llm_calls=2), answers=True) == first_look


@pytest.mark.parametrize("silent", ["answer_cached_tokens", "look_cached_tokens"])
def test_what_nobody_told_of_a_cache_stays_unknown(silent: str) -> None:
    told = Usage(
        prompt_tokens=3200,
        cached_tokens=2900,
        answer_calls=1,
        answer_prompt_tokens=1190,
        answer_cached_tokens=1150,
        look_calls=1,
        look_prompt_tokens=1180,
        look_cached_tokens=1150,
    )
    partly = replace(told, **{silent: None})
    later = Usage(llm_calls=1, prompt_tokens=1151, cached_tokens=1150)
    assert getattr(own_turns(partly, later, answers=True), silent) is None


def test_a_loop_never_counts_more_cached_than_it_had() -> None:
    cold = Usage(
        prompt_tokens=1000 + 1190,
        cached_tokens=900,
        answer_calls=1,
        answer_prompt_tokens=1190,
        answer_cached_tokens=900,
    )
    later = Usage(llm_calls=1, prompt_tokens=1151, cached_tokens=1150)
    assert own_turns(cold, later, answers=True) == cold


@pytest.mark.parametrize("asked", [["signals", "--looks", "p_true"], ["probe"]])
def test_no_model_is_asked_about_a_record_without_its_texts(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *options = asked
    out = str(tmp_path / "out.parquet")
    words = [command, "example", *options, "--llm", "http://127.0.0.1:9/v1", "--model", "m"]
    assert main([*words, "--out", out]) == 2
    assert "names replace its texts" in capsys.readouterr().err

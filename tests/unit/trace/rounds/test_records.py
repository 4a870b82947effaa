"""Records are frozen, rounded to their columns, and refuse what no column holds."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import math
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest

from suffice.errors import DataError, UsageError
from suffice.trace.rounds.records import (
    Draft,
    LoopView,
    Passage,
    Round,
    Token,
    TopToken,
    Usage,
    sampled_ids,
    with_draft,
)


def test_numbers_are_rounded_when_built() -> None:
    rounded = float(np.float32(0.1))
    assert rounded != 0.1
    assert Passage(id="p", score=0.1, rerank_score=0.1) == Passage(
        id="p", score=rounded, rerank_score=rounded
    )
    assert Token("x", -0.1).logprob == -rounded
    assert TopToken("x", -0.1).logprob == -rounded
    made = Round(answer="x", verbalized_confidence=0.1, candidate_scores=[0.1])  # type: ignore[arg-type]
    assert made.verbalized_confidence == rounded
    assert made.candidate_scores == (rounded,)
    assert Usage(latency_s=0.1).latency_s == rounded


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.5, 0.001])
def test_impossible_logprobs(bad: float) -> None:
    with pytest.raises(DataError, match=r"column tokens\.logprob"):
        Token("x", bad)
    with pytest.raises(DataError, match=r"column tokens\.top\.logprob"):
        TopToken("x", bad)
    assert Token("x", -math.inf).logprob == -math.inf


def test_overflow_of_a_column() -> None:
    with pytest.raises(DataError, match=r"column passages\.score: .*float32"):
        Passage(id="p", score=1e300)
    assert Passage(id="p", score=math.inf).score == math.inf


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("llm_calls", -1),
        ("llm_calls", 32768),
        ("llm_calls", 1.5),
        ("retrievals", True),
        ("sample_calls", "1"),
        ("prompt_tokens", 2**31),
        ("judge_cached_tokens", 2**31),
    ],
)
def test_impossible_counts(name: str, value: Any) -> None:
    with pytest.raises(DataError, match=f"column {name}: must be a whole number from 0 to"):
        Usage(**{name: value})


def test_counts_become_plain_ints() -> None:
    usage = Usage(llm_calls=np.int64(32767), prompt_tokens=2**31 - 1)  # type: ignore[arg-type]
    assert type(usage.llm_calls) is int
    assert usage == Usage(llm_calls=32767, prompt_tokens=2**31 - 1)


def test_an_answer_is_text() -> None:
    with pytest.raises(DataError, match=r"column answer: .*write an empty string"):
        Round(answer=7)  # type: ignore[arg-type]
    assert Round(answer=None).answer_text == ""  # the loop was not asked for one


@pytest.mark.parametrize(
    ("name", "value"),
    [("passages", ("text",)), ("tokens", (("a", -0.1),)), ("samples", "abc"), ("samples", (1,))],
)
def test_items_of_another_kind_are_refused(name: str, value: Any) -> None:
    with pytest.raises(DataError, match=f"column {name}: must be a sequence of"):
        Round(answer="a", **{name: value})


def test_a_confidence_that_is_no_number_is_refused() -> None:
    with pytest.raises(DataError, match="column verbalized_confidence: must be a number"):
        Round(answer="a", verbalized_confidence="high")  # type: ignore[arg-type]


def test_sequences_are_frozen() -> None:
    made = Round(answer="x", samples=["a"], passages=[Passage(id="p")], tokens=[Token("x", -1)])  # type: ignore[arg-type]
    assert made.samples == ("a",)
    assert isinstance(made.passages, tuple)
    assert isinstance(made.tokens, tuple)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.answer = "y"  # type: ignore[misc]
    assert not hasattr(made, "__dict__")


def test_a_view_shows_rounds_and_no_gold() -> None:
    first, second = Round(answer="a"), Round(answer="b")
    assert LoopView("q?", (first,)).previous is None
    view = LoopView("q?", (first, second))
    assert (view.previous, view.current) == (first, second)
    reachable = {field.name for kind in (LoopView, Round) for field in dataclasses.fields(kind)}
    assert not any("gold" in name or "split" in name for name in reachable)


def test_an_undefined_signal_may_be_none_as_in_a_file() -> None:
    made = Round(answer="x", signals={"overlap": None, "mine": 1})  # type: ignore[dict-item]
    assert math.isnan(made.signals["overlap"])
    assert made.signals["mine"] == 1.0
    with pytest.raises(DataError, match="column signals: values must be numbers"):
        Round(answer="x", signals={"mine": "high"})  # type: ignore[dict-item]


def test_no_title_is_an_empty_one_as_in_a_file() -> None:
    assert Passage(id="1", title=None).title == ""  # type: ignore[arg-type]


def test_a_round_can_be_copied_sent_and_listed() -> None:
    made = Round(answer="x", passages=(Passage(id="p"),), signals={"mine": 0.5})
    for each in (made, Round(answer="x")):
        assert copy.deepcopy(each) == each
        assert pickle.loads(pickle.dumps(each)) == each
        assert dataclasses.asdict(each)["signals"] == each.signals


def test_a_sample_depends_on_ids_and_seed_alone() -> None:
    ids = [f"q{number}" for number in range(50)]
    drawn = sampled_ids(ids, 10, seed=42)
    assert sampled_ids(reversed(ids), 10, seed=42) == drawn
    assert sampled_ids(ids, 20, seed=42)[:10] == drawn  # a larger one begins with it
    assert sampled_ids(ids, 10, seed=43) != drawn
    assert len(set(drawn)) == 10
    assert sorted(sampled_ids(ids, 99, seed=1)) == sorted(ids)
    assert sampled_ids(ids, 1, seed=0)[0] == min(
        ids, key=lambda name: hashlib.sha256(f"0:{name}".encode()).hexdigest()
    )


def test_every_question_is_drawn_about_as_often() -> None:
    """10 of 20 in 400 seeds: 200 times each, with a standard deviation of 10."""
    ids = [f"q{number}" for number in range(20)]
    counts = Counter(name for seed in range(400) for name in sampled_ids(ids, 10, seed=seed))
    assert all(150 < counts[name] < 250 for name in ids)


def test_a_sample_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1 question, found 0"):
        sampled_ids(["a"], 0, seed=1)


def test_a_draft_is_the_answers_part_of_what_the_round_cost() -> None:
    asked = Round(
        answer=None, query="who?", usage=Usage(llm_calls=1, prompt_tokens=10, latency_s=2.0)
    )
    spent = Usage(
        llm_calls=3, sample_calls=2, prompt_tokens=5, sample_prompt_tokens=7, latency_s=1.0
    )
    answered = with_draft(
        asked, Draft("Oslo", samples=("Oslo", "Bergen"), usage=spent), probed=True
    )
    usage = answered.usage
    assert (answered.answer, answered.query, answered.probed) == ("Oslo", "who?", True)
    assert (usage.llm_calls, usage.answer_calls, usage.sample_calls) == (4, 1, 2)
    assert (usage.prompt_tokens, usage.answer_prompt_tokens, usage.sample_prompt_tokens) == (
        15,
        5,
        7,
    )
    assert (usage.latency_s, usage.answer_latency_s) == (3.0, 1.0)
    without_calls = with_draft(
        Round(answer=None, usage=Usage(llm_calls=0)), Draft("", usage=spent), probed=True
    )
    assert (without_calls.usage.llm_calls, without_calls.usage.prompt_tokens) == (3, 5)
    # what the loop itself cost was not said, so the whole is not known
    assert (
        with_draft(Round(answer=None), Draft("", usage=spent), probed=True).usage.llm_calls is None
    )


def test_a_draft_without_an_answer_is_refused() -> None:
    with pytest.raises(DataError, match="must be text, found None"):
        Draft(None)  # type: ignore[arg-type]

"""Records are frozen, rounded to their columns, and refuse what no column holds."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import math
import pickle
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
    passage_text,
    passage_tokens,
    sampled_ids,
    tokenize,
    with_draft,
)

NO_LOGPROBS = (math.nan, math.inf, 0.001)
COUNTS = [("llm_calls", -1), ("llm_calls", 32768), ("llm_calls", 1.5), ("retrievals", True),
          ("prompt_tokens", 2**31)]  # fmt: skip


def test_numbers_are_rounded_when_built() -> None:
    rounded = float(np.float32(0.1))
    assert rounded != 0.1
    assert Passage(id="p", score=0.1) == Passage(id="p", score=rounded)
    assert Token("x", -0.1).logprob == TopToken("x", -0.1).logprob == -rounded
    made = Round(answer="x", verbalized_confidence=0.1, candidate_scores=[0.1])  # type: ignore[arg-type]
    assert (made.verbalized_confidence, made.candidate_scores) == (rounded, (rounded,))
    usage = Usage(latency_s=0.1, llm_calls=np.int64(32767))  # type: ignore[arg-type]
    assert (usage.latency_s, type(usage.llm_calls)) == (rounded, int)


@pytest.mark.parametrize(
    ("make", "fields", "column"),
    [
        *((Usage, {name: value}, name) for name, value in COUNTS),
        *((Token, {"token": "x", "logprob": bad}, "tokens.logprob") for bad in NO_LOGPROBS),
        *((TopToken, {"token": "x", "logprob": bad}, "tokens.top.logprob") for bad in NO_LOGPROBS),
        (Passage, {"id": "p", "score": 1e300}, "passages.score"),
        (Round, {"answer": 7}, "answer"),
        (Draft, {"answer": None}, "answer"),
        (Round, {"answer": "a", "passages": ("text",)}, "passages"),
        (Round, {"answer": "a", "tokens": (("a", -0.1),)}, "tokens"),
        (Round, {"answer": "a", "samples": "abc"}, "samples"),
        (Round, {"answer": "a", "samples": (1,)}, "samples"),
        (Round, {"answer": "a", "verbalized_confidence": "high"}, "verbalized_confidence"),
        (Round, {"answer": "x", "signals": {"mine": "high"}}, "signals"),
    ],
)
def test_what_no_column_holds_is_refused(make: Any, fields: dict[str, Any], column: str) -> None:
    with pytest.raises(DataError) as caught:
        make(**fields)
    assert caught.value.column == column


def test_what_is_next_to_it_is_held() -> None:
    assert Token("x", -math.inf).logprob == -math.inf
    assert Token("x", 1e-7).logprob == pytest.approx(1e-7)  # what rounding leaves above 0
    assert Passage(id="p", score=math.inf).score == math.inf
    assert Passage(id="1", title=None).title == ""  # type: ignore[arg-type]
    assert Round(answer=None).answer_text == ""  # the loop was not asked for one
    undefined = Round(answer="x", signals={"overlap": None, "mine": 1})  # type: ignore[dict-item]
    assert math.isnan(undefined.signals["overlap"])
    assert Round(answer="half a \ud83d pair").answer == "half a \ufffd pair"


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
    with pytest.raises(UsageError):
        sampled_ids(ids, 0, seed=1)
    assert sampled_ids(ids, 1, seed=0)[0] == min(
        ids, key=lambda name: hashlib.sha256(f"0:{name}".encode()).hexdigest()
    )


def test_a_draft_is_the_answers_part_of_what_the_round_cost() -> None:
    spent = Usage(
        llm_calls=3, sample_calls=2, prompt_tokens=5, sample_prompt_tokens=7, latency_s=1.0
    )
    loop = Usage(llm_calls=1, prompt_tokens=10, latency_s=2.0)
    draft = Draft("Oslo", samples=("Oslo", "Bergen"), usage=spent)
    answered = with_draft(Round(answer=None, query="who?", usage=loop), draft, probed=True)
    assert (answered.answer, answered.query, answered.probed) == ("Oslo", "who?", True)
    assert answered.usage == Usage(
        llm_calls=4, answer_calls=1, sample_calls=2,
        prompt_tokens=15, answer_prompt_tokens=5, sample_prompt_tokens=7,
        latency_s=3.0, answer_latency_s=1.0,
    )  # fmt: skip
    alone = with_draft(Round(answer=None, usage=Usage(llm_calls=0)), draft, probed=True).usage
    assert (alone.llm_calls, alone.prompt_tokens) == (3, 5)
    # what the loop itself cost was not said, so the whole is not known
    assert with_draft(Round(answer=None), draft, probed=True).usage.llm_calls is None


def test_words_are_lower_case_and_all_else_separates() -> None:
    words = ["émile", "s", "x", "ray", "1", "200", "km_2"]
    assert tokenize("Émile's X-ray, 1,200 km_2! ...") == words
    passage = Passage(id="1", title="Mount Ardel", text="Ardel is a peak.")
    assert passage_text(passage) == "Mount Ardel Ardel is a peak."
    assert passage_tokens(Passage(id="1", title="Mount Ardel")) == ["mount", "ardel"]

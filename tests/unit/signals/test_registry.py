"""The fixed names, what holds for every signal, and which signals a record gives."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.builders import of_rounds
from tests.hostile_records import rounds as hostile_rounds
from tests.properties import examples

from suffice.errors import SufficeWarning, UsageError
from suffice.live.controller import Controller
from suffice.policies.rules.policy import Rule
from suffice.signals.asking.looks import ASKED
from suffice.signals.known_signals import (
    LOOKS,
    RERANKS,
    SAMPLES,
    SIGNALS,
    VERDICTS,
    resolve,
    undefined_in_words,
    why_undefined,
)
from suffice.signals.signal_table import given_signals, lack, refuse_lacking
from suffice.stats.maps import PerRoundCalibrator, fit_per_round
from suffice.testing.traces import answer_tokens
from suffice.trace.rounds.records import LoopView, Passage, Round, Token, Usage
from suffice.trace.rounds.schema import SCHEMA

texts = st.sampled_from(["", " ", "Answer:", "Answer: Oslo\n", "the", "no", "Oslo", "\x00"])
scores = st.none() | st.floats(-10, 10, width=32) | st.sampled_from([math.nan, math.inf, -math.inf])


@st.composite
def rounds(draw: st.DrawFn) -> Round:
    """Of every odd kind, with scores that are no numbers, and without stored values."""
    made = draw(hostile_rounds())
    passages = made.passages and tuple(
        dataclasses.replace(each, rerank_score=draw(scores)) for each in made.passages
    )
    rating = draw(scores)
    return dataclasses.replace(made, passages=passages, verbalized_confidence=rating, signals={})


def test_every_signal_is_declared_under_its_name_and_one_that_says_yes_or_no_from_0_to_1() -> None:
    assert all(spec.name == name for name, spec in SIGNALS.items())
    assert all((spec.low, spec.high) == (0.0, 1.0) for spec in SIGNALS.values() if spec.binary)


def test_needs_are_optional_columns_of_the_schema() -> None:
    required = {"question_id", "round", "question", "answer"}
    for spec in SIGNALS.values():
        assert {*spec.needs, *spec.reads} <= set(SCHEMA.names) - required, spec.name


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(rounds(), min_size=1, max_size=4))
@example([Round(answer="the")])
def test_no_signal_raises_and_every_value_is_in_range(some: list[Round]) -> None:
    view = LoopView("q", tuple(some))
    for spec in SIGNALS.values():
        value = spec(view)
        assert isinstance(value, float), spec.name
        assert math.isnan(value) or spec.low <= value <= spec.high, (spec.name, value)
        if spec.binary:
            assert math.isnan(value) or value in (0.0, 1.0), spec.name
        if math.isnan(value):
            assert why_undefined(spec, view) is not None, spec.name


@given(st.lists(rounds(), min_size=1, max_size=3))
def test_without_its_inputs_a_signal_is_undefined(some: list[Round]) -> None:
    bare = LoopView("q", tuple(Round(answer=each.answer) for each in some))
    for spec in SIGNALS.values():
        if spec.needs or spec.recorded_only:
            assert math.isnan(spec(bare)), spec.name


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(rounds(), min_size=1, max_size=3))
def test_declared_needs_are_enough(some: list[Round]) -> None:
    """A view that carries only the declared columns, and passages, gives the same value."""
    full = LoopView("q", tuple(some))
    for spec in SIGNALS.values():
        kept = {"answer", "passages", *spec.needs, *spec.reads}
        bare = LoopView(
            "q", tuple(Round(**{key: getattr(each, key) for key in kept}) for each in some)
        )
        assert repr(spec(full)) == repr(spec(bare)), spec.name


def test_what_each_signal_charges_and_which_read_no_answer() -> None:
    charged = {name: spec.charges for name, spec in SIGNALS.items() if spec.charges}
    sampled = [name for name, spec in SIGNALS.items() if "samples" in spec.needs]
    assert charged == {
        **dict.fromkeys(sampled, (SAMPLES,)),
        **dict.fromkeys(("judge_support", "llm_stop"), (VERDICTS,)),
        **dict.fromkeys(ASKED, (LOOKS,)),
        **dict.fromkeys((name for name in SIGNALS if name.startswith("rerank_")), (RERANKS,)),
    }
    usage = {field.name for field in dataclasses.fields(Usage)}
    for charge in (SAMPLES, VERDICTS, LOOKS, RERANKS):
        assert {charge.calls, *charge.tokens} <= usage
    assert {name for name, spec in SIGNALS.items() if not spec.answers} == {
        *sampled,
        *(name for name in ASKED if name != "p_true"),
        *(name for name in SIGNALS if name.startswith(("rerank_", "retrieval_", "overlap"))),
        *("llm_stop", "malformed_actions", "remaining_share", "new_passages", "query_repeats"),
    }


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(rounds(), min_size=1, max_size=3), texts)
def test_signals_that_read_no_answer_do_not_move_with_it(some: list[Round], other: str) -> None:
    first = LoopView("q", tuple(some))
    last = dataclasses.replace(some[-1], answer=other, tokens=None, verbalized_confidence=None)
    second = LoopView("q", (*some[:-1], last))
    for spec in SIGNALS.values():
        if not spec.answers:
            assert repr(spec(first)) == repr(spec(second)), spec.name


BARE = Round(answer="Oslo")
READ = Round(answer="Oslo", passages=(Passage(id="a", text="Oslo is a city."),))


def test_what_can_be_computed_or_is_stored_is_given_and_own_signals_come_last() -> None:
    bare = given_signals(of_rounds(BARE))
    assert "answer_stable" in bare
    assert not {"overlap", "self_consistency", "judge_support"} & set(bare)
    assert [*bare] == [name for name in SIGNALS if name in bare]
    assert set(given_signals(of_rounds(READ))) - set(bare) == {
        name
        for name, spec in SIGNALS.items()
        if spec.needs == ("passages",) and not spec.recorded_only
    }
    stored = given_signals(
        of_rounds(dataclasses.replace(BARE, signals={"mine": 1.0, "judge_support": 3.0}))
    )
    assert set(stored) - set(bare) == {"judge_support", "mine"}
    assert stored[-1] == "mine"


def test_a_policys_own_form_is_never_given_by_a_stored_value() -> None:
    stored = of_rounds(dataclasses.replace(BARE, signals={"overlap": 0.5}))
    assert lack(SIGNALS["overlap"], stored) is None
    own = dataclasses.replace(SIGNALS["overlap"], own_settings=True)
    missing = lack(own, stored)
    assert missing is not None
    assert missing.columns == ("passages",)


def test_a_signal_that_is_not_given_is_refused_with_what_to_do() -> None:
    refuse_lacking([SIGNALS["answer_stable"]], of_rounds(BARE))
    with pytest.raises(
        UsageError, match=r"signal 'self_consistency' needs column samples.*; use answer_tok"
    ):
        refuse_lacking([SIGNALS["answer_stable"], SIGNALS["self_consistency"]], of_rounds(BARE))
    with pytest.raises(UsageError, match=r"needs a recorded value.*suffice signals --llm"):
        refuse_lacking([SIGNALS["judge_support"]], of_rounds(BARE))


A, B, UNREAD = Passage(id="a", text="x y"), Passage(id="b", text="y z"), Passage(id="c")


def said(name: str, *rounds: Round) -> str:
    return undefined_in_words(resolve(name, also=["mine"]), LoopView("q", rounds))


def has(*passages: Passage, answer: str = "Oslo") -> Round:
    return Round(answer=answer, passages=passages)


@pytest.mark.parametrize(
    ("name", "rounds", "cause"),
    [
        ("answer_stable", [has(A)], "no earlier answer"),
        ("answer_stable", [has(A), has(A)], "the round added no new passage"),
        ("overlap", [has(A)], "no earlier passage"),
        ("overlap_idf", [has(A), has(UNREAD)], "without its text"),
        ("answer_in_evidence", [has(A, answer="No.")], "yes, no or empty"),
        ("answer_token_margin", [Round(answer="Oslo")], "its tokens were not recorded"),
        ("margin_min", [Round(answer="Oslo", tokens=(Token("Bergen", -1.0),))], "no 'Answer:'"),
        (
            "margin_min",
            [Round(answer="A", tokens=(Token("A", -1.0),), answer_starts=2)],
            "nothing follows",
        ),
        ("normalized_entropy", [Round(answer="", samples=("Oslo",))], "only one sample"),
        ("verbalized_confidence", [Round(answer="")], "no rating from 1 to 5"),
        ("retrieval_gap", [Round(answer="", candidate_scores=(1.0,))], "only one candidate"),
        ("judge_support", [Round(answer="", signals={"judge_support": None})], "answer is empty"),  # type: ignore[dict-item]
        ("mine", [Round(answer="")], "no value was recorded"),
        ("mine", [Round(answer="", signals={"mine": float("nan")})], "recorded as undefined"),
        ("rerank_mean", [has(A)], "no passage has a reranker's score"),
    ],
)
def test_the_cause_of_that_round_is_named(name: str, rounds: list[Round], cause: str) -> None:
    assert cause in said(name, *rounds)


def test_the_reason_of_a_rule_names_the_cause() -> None:
    controller = Controller(Rule(rule="answer_stable and overlap > 0.2"))
    controller.observe(has(A))
    reason = controller.observe(has(A)).reason
    assert (
        "answer_stable = undefined (the round added no new passage, so its answer repeats trivially), "
        "overlap = undefined (the round added no new passage)" in reason
    )
    assert "undefined" not in controller.observe(has(B)).reason


def test_a_calibrated_signal_names_the_cause_of_the_signal(tuned: Rule) -> None:
    controller = Controller(tuned)
    with pytest.warns(SufficeWarning, match="needs column tokens"):
        reason = controller.observe(Round(answer="Oslo")).reason
    assert reason.endswith("= undefined (its tokens were not recorded)")
    sure = Round(answer="Oslo", tokens=answer_tokens("Oslo", 2.0))
    beyond = [controller.observe(sure).reason for _ in range(2)]
    assert beyond[-1].endswith("= undefined (nothing was fitted for round 3)")


@pytest.fixture
def tuned() -> Rule:
    values = np.arange(20.0).reshape(10, 2)
    maps = fit_per_round(values, (values > 9).astype(float), undefined=None)
    return Rule(
        rule="calibrated(answer_token_margin) > 0.5",
        calibrators={"answer_token_margin": PerRoundCalibrator(maps=maps)},
    )


def test_the_list_of_signals_says_it_for_every_signal() -> None:
    page = (Path(__file__).parents[3] / "docs" / "signals.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    for name, spec in SIGNALS.items():
        assert all(absence.why in rows[name] for absence in spec.absences), name
        assert spec.absences or name == "abstained", name

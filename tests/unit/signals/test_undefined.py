"""Why a signal is undefined: said by the first case of its spec that holds, in reasons and in the docs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suffice.errors import SufficeWarning
from suffice.live.controller import Controller
from suffice.policies.rules.policy import Rule
from suffice.signals.known_signals import SIGNALS, resolve, undefined_in_words
from suffice.stats.maps import PerRoundCalibrator, fit_per_round
from suffice.testing.traces import answer_tokens
from suffice.trace.rounds.records import LoopView, Passage, Round, Token

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

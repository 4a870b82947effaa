"""Replay of records with cut questions: estimates, ranges, and what is said of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import SIX_LOGGED, logged, with_rounds
from tests.properties import examples

from suffice.evaluation.replay.compare import Comparison, compare
from suffice.evaluation.replay.results import PolicyResult
from suffice.evaluation.settings import ComparisonSettings
from suffice.measures.contents import exploration
from suffice.measures.measures import Measures
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord

SIX = [replace(one, propensity=one.propensity and 0.5) for one in SIX_LOGGED]
EXPLORED = [record for record in SIX if record.stopped_by != "gold"]


def compared(records: list[QuestionRecord], **wanted: object) -> Comparison:
    """The usual fixed budgets and oracles on these questions."""
    given: dict[str, Any] = {"resamples": 50, "baseline": "fixed-1", **wanted}
    return compare(to_trace_set(records), ComparisonSettings(**given))


def of(comparison: Comparison, name: str) -> PolicyResult:
    return next(policy for policy in comparison.result.policies if policy.name == name)


def test_explored_questions_stand_for_those_cut() -> None:
    comparison = compared(EXPLORED, policies=("fixed-1", "fixed-2", "fixed-4"))
    full = of(comparison, "fixed-4")
    # a and b are expected to be right as c is, c counts 0 + 2 x 1, d 1, and f, which ended by itself, 0
    assert full.f1 == pytest.approx((1 + 1 + 2 + 1 + 0) / 5)
    # of a, b and c, (4 + 4 + 2 + 2 x 2) / 3 = 4.7, more than four rounds can be
    assert full.costs["rounds"] is None
    assert full.stop_counts == {2: 1, 4: 3}
    assert full.delta is not None
    past = full.at_stops.past
    assert past is not None
    assert (past.unseen, past.weighing.largest, past.weighing.past) == (0, 2.0, 1)
    assert past.few
    assert any("1, too few" in table.text() for table in comparison.tables())
    # a, cut in round 2, may have ended there or gone on to round 4, b in any
    assert past.ranges["rounds"].low == pytest.approx((2 + 1 + 4 + 4 + 2) / 5)
    assert past.ranges["rounds"].high == pytest.approx((4 + 4 + 4 + 4 + 2) / 5)
    # b was cut in round 1, and c, which alone was explored, stopped in round 2: nobody stands for b
    two = of(comparison, "fixed-2")
    assert two.f1 is None
    assert two.at_stops.past is not None
    score, rounds = (two.at_stops.past.ranges[name] for name in ("f1", "rounds"))
    assert [score.low, score.high] == pytest.approx([1 / 5, 2 / 5])
    assert [rounds.low, rounds.high] == pytest.approx([9 / 5, 10 / 5])
    one = of(comparison, "fixed-1")
    assert (one.at_stops.past, one.beyond_record) == (None, 0)


def test_an_oracle_is_left_out_where_questions_were_cut() -> None:
    result = compared(EXPLORED, policies=("fixed-1", "oracle-f1")).result
    assert "stopped early" in result.left_out["oracle-f1"]


def test_what_was_not_seen_is_a_range_and_never_a_number() -> None:
    comparison = compared(list(SIX), policies=("fixed-2", "fixed-3"))
    full = of(comparison, "fixed-3")
    assert (full.f1, full.interval, full.delta, full.retained) == (None, None, None, None)
    past = full.at_stops.past
    assert past is not None
    assert past.unseen == 1
    score, rounds = past.ranges["f1"], past.ranges["rounds"]
    assert [score.low, score.high] == pytest.approx([4 / 6, 5 / 6])
    # e has at least its 2 rounds and at most 3; c counts 2 + 2 x 1
    assert [rounds.low, rounds.high] == pytest.approx([17 / 6, 18 / 6])
    assert past.ranges["llm_calls"].high is None
    assert all(policy.frontier_gain is None for policy in comparison.result.policies)
    text = comparison.tables()[-1].text()
    assert "66.7-83.3" in text
    document = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    entry = document["policies"][1]
    assert entry["f1"] is None
    assert entry["mean_rounds"] is None
    told = entry["range"]["f1"]
    assert [told["low"], told["high"]] == pytest.approx([4 / 6, 5 / 6])
    assert told["interval"][0] < told["low"] < told["high"] < told["interval"][1]
    assert document["cut_records"]["cut"] == {"policy": 2, "gold": 1}
    assert any("not estimated" in note for note in comparison.result.notes)


def test_questions_without_labels_count_in_costs_alone() -> None:
    blank = [replace(one, gold=replace(one.gold, answers=())) for one in EXPLORED[:1]]
    found = of(compared([*blank, *EXPLORED[1:]], policies=("fixed-4",)), "fixed-4")
    # c counts for itself, b for a too
    assert found.f1 == pytest.approx((2 + 2 * 1 + 1 + 0) / 5)
    assert found.costs["rounds"] is None


def told(record: QuestionRecord, *sure: float) -> QuestionRecord:
    given = iter(sure)
    return with_rounds(record, signals=lambda one: {**one.signals, "sure": next(given)})


def test_the_answer_chosen_is_weighted_as_its_stop() -> None:
    log = [told(record, 0.5, 0.5, 0.5, 0.5) for record in EXPLORED]
    log[2] = told(EXPLORED[2], 1.0, 0.9, 0.8, 0.7)
    found = of(compared(log, policies=("fixed-4",), answer="highest:sure"), "fixed-4")
    assert found.f1 == pytest.approx(1 / 5)  # c returns round 1, which is wrong
    assert found.answers.tolist() == [2, 1, 1, 4, 2]


def test_agreement_is_known_of_questions_that_ran_to_the_full_budget() -> None:
    found = of(compared(EXPLORED, policies=("fixed-1",), metric="agreement"), "fixed-1")
    past = found.at_stops.past
    assert past is not None
    assert past.weights.tolist() == [0, 0, 2, 1, 1]


def test_cuts_by_the_label_are_bounded_only(data_folder: Path) -> None:
    traces = read_traces(data_folder / "traces" / "intercode_sql_gpt4.parquet")
    asked = ComparisonSettings(policies=("fixed-1", "fixed-10"), resamples=20)
    comparison = compare(traces, asked)
    assert of(comparison, "fixed-1").score == pytest.approx(0.103, abs=1e-3)
    full = of(comparison, "fixed-10")
    past = full.at_stops.past
    assert full.score is None
    assert past is not None
    assert past.unseen == 226
    assert past.ranges["f1"].shown(share=True) == "2.1-75.3"
    assert comparison.result.banners[0].startswith("CUT RECORDS: 230 of 309")


def test_exploration_is_held_against_its_promise() -> None:
    def drawn(explored: int) -> list[QuestionRecord]:
        return [
            logged(f"{number:02d}", [0, 1, 1], 1)
            if number < explored
            else logged(f"{number:02d}", [0], 1, end="policy")
            for number in range(80)
        ]

    def checked(records: list[QuestionRecord]) -> list[str]:
        traces = to_trace_set(records)
        seen = Measures(traces).seen
        assert seen is not None
        return exploration(seen, np.ones(traces.n_questions, bool)).notes()

    (said,) = checked(drawn(20))
    assert said.startswith("exploration as promised: 20 of 80 questions")
    (wrong,) = checked(drawn(40))
    assert wrong.startswith("exploration NOT AS PROMISED: 40 of 80")


def test_of_what_few_explored_questions_did_not_show_an_interval_is_open() -> None:
    """Ten of weight 20 were wrong throughout; of the 200 some may still have been right later."""
    cut = [logged(f"a{n:03d}", [0], 1, end="policy", propensity=0.05) for n in range(190)]
    explored = [logged(f"b{n:03d}", [0, 0, 0], 1, propensity=0.05) for n in range(10)]
    comparison = compared([*cut, *explored], policies=("fixed-1", "fixed-3"), resamples=2000)
    one, full = of(comparison, "fixed-1"), of(comparison, "fixed-3")
    assert one.interval is not None
    assert full.interval is not None
    assert full.delta is not None
    # none of 200, and none of the 10 questions that say as much as the explored ones
    exact = [1.0 - 0.025 ** (1.0 / count) for count in (200, 10)]
    assert (one.interval.low, one.interval.high) == pytest.approx((0.0, exact[0]))
    assert full.interval.estimate == 0.0
    assert (full.interval.high, full.delta.high) == pytest.approx((exact[1], exact[1]))


# --- partly labelled, and what no estimate may be ----------------------------------------------------
def live(
    scores: np.ndarray,
    *,
    share: float = 0.1,
    labelled: tuple[float, float] = (1.0, 1.0),
    seed: int = 0,
) -> list[QuestionRecord]:
    """What a policy that stops in round 1 leaves of questions (n, 2), labelled at rates: explored, cut."""
    draw = np.random.default_rng([seed, 1])
    made = []
    for number, row in enumerate(scores.tolist()):
        ran, known = draw.random() < share, draw.random()
        one = logged(
            f"{number:04d}",
            row if ran else row[:1],
            1,
            end=None if ran else "policy",
            propensity=share,
        )
        if known >= labelled[0 if ran else 1]:
            one = replace(one, gold=replace(one.gold, answers=()))
        made.append(one)
    return made


def right_later(count: int, first: float, second: float, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return (draw.random((count, 2)) < (first, second)).astype(int)


def test_label_rates_are_compared_and_told() -> None:
    scores = right_later(400, 0.4, 0.7)
    apart, alike = (
        compared(live(scores, labelled=rates, share=0.2), policies=("fixed-2",), resamples=2)
        for rates in ((0.9, 0.3), (0.5, 0.5))
    )
    assert apart.result.cut is not None
    labels = apart.result.cut.exploration.labels
    assert labels is not None
    assert labels["p_value"] < 1e-6
    assert labels["explored"][0] / labels["explored"][1] == pytest.approx(0.9, abs=0.1)
    assert labels["cut"][0] / labels["cut"][1] == pytest.approx(0.3, abs=0.1)
    assert any("NOT ALIKE" in note for note in apart.result.notes)
    assert any("labels alike" in note for note in alike.result.notes)
    whole = compared(live(scores), policies=("fixed-2",), resamples=2)
    assert not any("labels " in note for note in whole.result.notes)


def test_labels_that_hang_on_what_was_recorded_are_warned_of() -> None:
    """Of questions that the loop was sure of few are labelled."""
    draw = np.random.default_rng(0)

    def unlike(chance_if_sure: float) -> tuple[str, ...]:
        records = []
        for record in live(right_later(400, 0.4, 0.7), share=0.2):
            sure = draw.random()
            known = draw.random() < (chance_if_sure if sure > 0.5 else 0.6)
            gold = record.gold if known else replace(record.gold, answers=())
            records.append(replace(told(record, sure, sure, sure), gold=gold))
        cut = compared(records, policies=("fixed-2",), resamples=2).result.cut
        assert cut is not None
        assert bool(cut.exploration.unlike) == any(
            "DIFFER" in note for note in cut.exploration.notes()
        )
        return tuple(one["name"] for one in cut.exploration.unlike)

    assert unlike(0.2) == ("sure",)
    assert unlike(0.6) == ()


def test_a_fixed_budget_costs_what_it_costs() -> None:
    """Five rounds are five, and their one answer one call, whoever was explored."""
    draw = np.random.default_rng(3)
    records = []
    for number in range(100):
        stop, ran = int(draw.integers(1, 4)), number % 20 == 7
        records.append(
            logged(
                f"{number:03d}",
                [0, 1, 0, 1, 1][: 5 if ran else stop],
                stop,
                end=None if ran else "policy",
                propensity=0.1,
            )
        )
    found = of(compared(records, policies=("fixed-5",)), "fixed-5")
    # five of weight 10 alone are half of a hundred: 2.5 rounds and 0.5 calls
    assert found.mean_rounds == pytest.approx(5.0)
    assert found.costs["llm_calls"] == pytest.approx(1.0)


@settings(max_examples=examples(60))
@given(st.integers(0, 10_000), st.floats(0.05, 1.0), st.floats(0.0, 1.0), st.integers(3, 40))
def test_no_figure_lies_beyond_what_it_can_be(
    seed: int, first: float, second: float, count: int
) -> None:
    records = live(
        right_later(count, 0.5, 0.9, seed), share=0.15, labelled=(first, second), seed=seed
    )
    records[0] = logged("0000", [0, 1], None, propensity=0.15)
    result = compared(records, policies=("fixed-1", "fixed-2"), resamples=20).result
    for policy in result.policies:
        for score in (policy.em, policy.f1, policy.acc):
            assert score is None or -1e-9 <= score <= 1.0 + 1e-9
        assert np.isnan(policy.mean_rounds) or 1.0 - 1e-9 <= policy.mean_rounds <= 2.0 + 1e-9
        for interval in (policy.interval, policy.delta, policy.delta_full):
            if interval is not None:
                assert -1.0 <= interval.low <= interval.high <= 1.0
        past = policy.at_stops.past
        for name, one in ({} if past is None else past.ranges).items():
            assert one.high is None or one.low <= one.high + 1e-9, name
            assert one.low >= 0.0
            assert name not in ("em", "f1", "acc") or (one.high or 0.0) <= 1.0
    for score in result.frontier.scores if result.frontier else ():
        assert score is None or -1e-9 <= score <= 1.0 + 1e-9

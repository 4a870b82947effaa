"""Replay of records with cut questions: estimates, ranges, and what is said of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.builders import SIX_LOGGED as SIX
from tests.builders import logged

from suffice.measures.exploration import exploration
from suffice.measures.measures import Measures
from suffice.policies.file import policy_hash
from suffice.policies.rules.policy import RulePolicy
from suffice.replay.run.compare import Comparison, compare
from suffice.replay.run.results import PolicyResult
from suffice.replay.settings import ComparisonSettings
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord

EXPLORED = [record for record in SIX if record.stopped_by != "gold"]


def compared(records: list[QuestionRecord], **settings: object) -> Comparison:
    """The usual fixed budgets and oracles on these questions."""
    asked = ComparisonSettings(**{"resamples": 50, "baseline": "fixed-1", **settings})  # type: ignore[arg-type]
    return compare(to_trace_set(records), asked)


def of(comparison: Comparison, name: str) -> PolicyResult:
    """The result of a policy."""
    return next(policy for policy in comparison.result.policies if policy.name == name)


def test_explored_questions_stand_for_those_cut() -> None:
    comparison = compared(EXPLORED, policies=("fixed-1", "fixed-2", "fixed-4", "oracle-em"))
    full = of(comparison, "fixed-4")
    # a and b count 0, c 4, d 1, and f, which ended by itself, stays wrong
    assert full.f1 == pytest.approx(5 / 5)
    assert full.costs["rounds"] == pytest.approx((4 * 4 + 4 + 2) / 5)
    assert full.stop_counts == {2: 1, 4: 5}
    assert full.delta is not None
    past = full.at_stops.past
    assert past is not None
    assert (past.unseen, past.weighing.largest, past.weighing.past) == (0, 4.0, 1)
    assert past.ranges == {}
    # b (cut in round 1) counts nothing there; c is not past its policy's stop
    two = of(comparison, "fixed-2")
    assert [two.f1, two.mean_rounds] == pytest.approx([1 / 5, 8 / 5])
    one = of(comparison, "fixed-1")
    assert (one.at_stops.past, one.beyond_record) == (None, 0)
    # right in round 2 of a, in 3 of c (an explored one), 4 of d and 1 of f
    oracle = of(comparison, "oracle-em")
    assert oracle.f1 == pytest.approx((1 + 0 + 4 + 1 + 1) / 5)


def test_an_oracle_that_looks_ahead_knows_only_what_cannot_be_bettered() -> None:
    """Of b, wrong in its only round, the best round is not known; in a round 2 is right already."""
    oracle = of(compared(EXPLORED, policies=("oracle-f1",)), "oracle-f1")
    past = oracle.at_stops.past
    assert past is not None
    assert past.weights.tolist() == [1, 0, 4, 1, 1]


def test_what_was_not_seen_is_a_range_and_never_a_number() -> None:
    comparison = compared(list(SIX), policies=("fixed-2", "fixed-3", "oracle-em"))
    full = of(comparison, "fixed-3")
    assert (full.f1, full.interval, full.delta, full.retained) == (None, None, None, None)
    past = full.at_stops.past
    assert past is not None
    assert past.unseen == 1
    score, rounds = past.ranges["f1"], past.ranges["rounds"]
    assert [score.low, score.high] == pytest.approx([4 / 6, 5 / 6])
    # e has at least its 2 rounds and at most 3; c counts 4 times 3
    assert [rounds.low, rounds.high] == pytest.approx([19 / 6, 20 / 6])
    assert past.ranges["llm_calls"].high is None
    # e was right where it was cut, and the oracle stops there
    assert of(comparison, "oracle-em").f1 is not None
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
    assert any("never estimated" in note for note in comparison.result.notes)


def test_self_normalised_weights_give_the_mean_of_the_explored() -> None:
    found = of(compared(EXPLORED, policies=("fixed-4",), weights="self-normalised"), "fixed-4")
    # c stands for a, b and itself; d and f are as recorded
    assert found.f1 == pytest.approx((3 * 1 + 1 + 0) / 5)
    assert found.interval is not None


def test_questions_without_labels_count_in_costs_alone() -> None:
    blank = [replace(one, gold=replace(one.gold, answers=())) for one in EXPLORED[:1]]
    found = of(compared([*blank, *EXPLORED[1:]], policies=("fixed-4",)), "fixed-4")
    assert found.f1 == pytest.approx(5 / 4)
    assert found.costs["rounds"] == pytest.approx(22 / 5)


def test_the_answer_chosen_is_weighted_as_its_stop() -> None:
    rounds = [
        replace(one, signals={**one.signals, "sure": 1.0 - number / 9})
        for number, one in enumerate(EXPLORED[2].rounds)
    ]
    others = [
        replace(
            record,
            rounds=tuple(
                replace(one, signals={**one.signals, "sure": 0.5}) for one in record.rounds
            ),
        )
        for record in EXPLORED
    ]
    others[2] = replace(EXPLORED[2], rounds=tuple(rounds))
    found = of(compared(others, policies=("fixed-4",), answer="highest:sure"), "fixed-4")
    assert found.f1 == pytest.approx(1 / 5)  # c returns round 1, which is wrong
    assert found.answers.tolist() == [2, 1, 1, 4, 2]


def test_agreement_is_known_of_questions_that_ran_to_the_full_budget() -> None:
    found = of(compared(EXPLORED, policies=("fixed-1",), metric="agreement"), "fixed-1")
    past = found.at_stops.past
    assert past is not None
    assert past.weights.tolist() == [0, 0, 4, 1, 1]


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
    def drawn(explored: int, kinds: tuple[str, str]) -> list[QuestionRecord]:
        made = []
        for number in range(80):
            ran = number < explored
            record = (
                logged(f"{number:02d}", [0, 1, 1], 1)
                if ran
                else logged(f"{number:02d}", [0], 1, end="policy")
            )
            kind = kinds[0] if ran else kinds[number % 2]
            made.append(replace(record, question=replace(record.question, type=kind)))
        return made

    def checked(records: list[QuestionRecord]) -> list[str]:
        traces = to_trace_set(records)
        seen = Measures(traces).seen
        assert seen is not None
        return exploration(seen, [one.type for one in traces.questions]).notes()

    (said,) = checked(drawn(20, ("bridge", "bridge")))
    assert said.startswith("exploration as promised: 20 of 80 questions")
    wrong, types = checked(drawn(40, ("bridge", "other")))
    assert wrong.startswith("exploration NOT AS PROMISED: 40 of 80")
    assert types.startswith("EXPLORED QUESTIONS ARE OF OTHER TYPES")


def test_the_bootstrap_sees_how_few_were_explored() -> None:
    """Twenty-five explored questions say less than a hundred recorded ones."""
    rng = np.random.default_rng(0)
    wholes, log = [], []
    for number in range(100):
        scores = [0, int(rng.random() < 0.5)]
        name = f"{number:03d}"
        wholes.append(logged(name, scores, propensity=None))
        ran = rng.random() < 0.25
        log.append(logged(name, scores, 1) if ran else logged(name, scores[:1], 1, end="policy"))
    whole, weighted = (
        of(compared(records, policies=("fixed-2",), resamples=200), "fixed-2").interval
        for records in (wholes, log)
    )
    assert whole is not None
    assert weighted is not None
    assert weighted.high - weighted.low > 1.5 * (whole.high - whole.low)


@pytest.mark.parametrize("weights", ["ht", "self-normalised"])
def test_of_what_few_explored_questions_did_not_show_an_interval_is_open(weights: str) -> None:
    """Ten of weight 20 were wrong throughout; of the 200 some may still have been right later."""
    cut = [logged(f"a{n:03d}", [0], 1, end="policy", propensity=0.05) for n in range(190)]
    explored = [logged(f"b{n:03d}", [0, 0, 0], 1, propensity=0.05) for n in range(10)]
    comparison = compared([*cut, *explored], policies=("fixed-1", "fixed-3"), weights=weights)
    one, full = of(comparison, "fixed-1"), of(comparison, "fixed-3")
    assert one.interval is not None
    assert full.interval is not None
    assert full.delta is not None
    assert (one.interval.low, one.interval.high) == (0.0, 0.0)
    assert full.interval.estimate == 0.0
    most = 2.5 * 20 / 200  # events of weight 20, by Jeffreys
    assert full.interval.high == pytest.approx(most if weights == "ht" else most / 2, rel=0.5)
    assert full.delta.high == full.interval.high


def test_the_policy_that_ran_says_where_it_stopped_if_the_record_does_not() -> None:
    ran = RulePolicy(rule="sure > 0.5", own_signals=("sure",))
    sure = {"a": (0, 1), "b": (1,), "c": (0, 1, 0, 0), "d": (0, 0, 0, 0), "f": (0, 0)}
    log = [
        replace(
            record,
            policy_hash=policy_hash(ran),
            rounds=tuple(
                replace(one, signals={"sure": float(value)})
                for one, value in zip(record.rounds, sure[record.question.id], strict=True)
            ),
        )
        for record in EXPLORED
    ]
    alone = of(compared(log, policies=("fixed-4",)), "fixed-4")
    assert alone.f1 is None
    beside = of(compared(log, policies=("fixed-4", ran)), "fixed-4")
    assert beside.f1 == pytest.approx(5 / 5)
    # not one that stops elsewhere than where questions were cut
    other = replace(log[0], rounds=log[0].rounds[:1])
    assert of(compared([other, *log[1:]], policies=("fixed-4", ran)), "fixed-4").f1 is None

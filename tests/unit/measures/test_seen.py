"""Values of records with cut questions: worked by hand, against a twin, and unbiased over every draw."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import SIX_LOGGED as SIX
from tests.builders import logged
from tests.cut_estimates import horvitz_thompson

from suffice.measures.measures import Measures
from suffice.measures.seen import Seen, record_banners
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord, StoppedBy


def measured(records: Sequence[QuestionRecord]) -> tuple[Measures, Seen]:
    """The measures, of which some questions are cut."""
    measures = Measures(to_trace_set(records))
    assert measures.seen is not None
    return measures, measures.seen


def plain(seen: Seen, values: np.ndarray) -> np.ndarray:
    """Inverse-propensity weights alone, for stops after every round."""
    rounds = range(1, values.shape[1] + 1)
    stops = (np.full(len(values), number, np.int16) for number in rounds)
    return np.column_stack([horvitz_thompson(seen, values, each) for each in stops])


def test_six_questions_worked_by_hand() -> None:
    measures, seen = measured(SIX)
    em, nan = measures.scores().em, np.nan
    scores = plain(seen, em)
    expected = [
        [0, 1, 0, 0],
        [0, 0, 0, 0],
        [0, 0, 4, 4],
        [0, 0, 0, 1],
        [0, 1, nan, nan],
        [1, 0, 0, 0],
    ]
    np.testing.assert_array_equal(scores, expected)
    low, high = (seen.matrix(em, unseen=end) for end in (0.0, 1.0))
    np.testing.assert_array_equal(low[4], [0, 1, 0, 0])
    np.testing.assert_array_equal(high[4], [0, 1, 1, 1])
    assert seen.causes == {"policy": 2, "gold": 1}
    full = np.full(6, 4, np.int16)
    weighing = seen.weighing(full)
    assert (weighing.total, weighing.largest, weighing.past) == (7.0, 4.0, 1)
    assert weighing.share == pytest.approx(4 / 7)
    assert weighing.effective == pytest.approx(49 / 19)
    assert seen.lacking(full).tolist() == [False, False, False, False, True, False]
    # a and b are expected to be like c, the only one explored; of c nothing is expected but its round 2
    augmented = seen.at(em, full)
    np.testing.assert_array_equal(augmented, [1, 1, 4, 1, nan, 0])


def test_without_the_policys_stops_explored_questions_are_not_told_apart() -> None:
    records = [logged("a", [0, 1], end="policy", told=False), logged("b", [0, 0, 1], told=False)]
    measures, seen = measured(records)
    assert seen.untold == 2
    np.testing.assert_array_equal(seen.outcomes(measures.scores()).em, [[0, 1, np.nan], [0, 0, 1]])


def test_a_complete_record_is_not_weighted() -> None:
    whole = [logged("a", [0, 0, 1], 2), logged("b", [0, 1], end="end"), logged("c", [0, 0, 1])]
    assert Measures(to_trace_set(whole)).seen is None
    budget = logged("d", [0, 1, 1], end="budget", propensity=None)  # the full one
    assert Measures(to_trace_set([*whole, budget])).seen is None


@pytest.mark.parametrize("stops", [(1, 1, 1, 1), (3, 3, 3, 3), (2, 3, 1, 2), (3, 2, 3, 1)])
def test_the_mean_over_every_draw_is_what_nothing_cut_would_give(stops: tuple[int, ...]) -> None:
    share = 0.25
    truth = ([0, 1, 1], [1, 0, 1], [0, 0, 1], [0, 1])
    ends: tuple[StoppedBy | None, ...] = (None, None, None, "end")
    says = (1, 2, None, 2)
    wanted = np.array([*stops, 3], np.int16)
    mean = 0.0
    for drawn in product([False, True], repeat=4):
        chance = float(np.prod([share if one else 1 - share for one in drawn]))
        log = [
            logged(str(number), scores, stop, end=end, propensity=share)
            if run_on or stop is None
            else logged(str(number), scores[:stop], stop, end="policy", propensity=share)
            for number, (scores, stop, end, run_on) in enumerate(
                zip(truth, says, ends, drawn, strict=True)
            )
        ]
        # one is always cut, so that something is
        measures, seen = measured([*log, logged("4", [1], 1, end="policy", propensity=share)])
        mean += chance * seen.at(measures.scores().em, wanted)[:4].sum()
    expected = sum(row[min(stop, len(row)) - 1] for row, stop in zip(truth, stops, strict=True))
    assert mean == pytest.approx(expected, abs=1e-12)


def obvious(
    record: QuestionRecord, stop: int, budget: int, weighted: Collection[float | None]
) -> float:
    """What a question adds to an estimate at a stop, case by case; NaN: not known."""
    scores = [float(round_.answer == "Ada") for round_ in record.rounds]
    complete = record.stopped_by in (None, "end") or len(scores) == budget
    says = [r.signals.get("policy_stop") == 1.0 for r in record.rounds]
    value = scores[min(stop, len(scores)) - 1] if complete or stop <= len(scores) else np.nan
    if record.propensity is None or record.propensity not in weighted:
        return value
    if record.stopped_by == "policy" and not complete:
        return scores[stop - 1] if stop <= len(scores) else 0.0
    if record.stopped_by == "policy" or not any(says) or stop <= says.index(True) + 1:
        return value
    return value / record.propensity


@st.composite
def logs(draw: st.DrawFn) -> list[QuestionRecord]:
    records = []
    for number in range(draw(st.integers(1, 6))):
        scores = draw(st.lists(st.integers(0, 1), min_size=1, max_size=4))
        end: StoppedBy | None = draw(
            st.sampled_from([None, "end", "policy", "gold", "budget", "user", "error"])
        )
        stop = draw(st.none() | st.integers(1, len(scores)))
        if end == "policy":
            stop = len(scores)
        share = draw(st.sampled_from([None, 0.25, 0.5]))
        records.append(logged(str(number), scores, stop, end=end, propensity=share))
    return records


@given(logs())
def test_every_cell_is_what_the_cases_say(records: list[QuestionRecord]) -> None:
    measures = Measures(to_trace_set(records))
    budget = measures.traces.n_rounds
    seen = measures.seen
    if seen is None:
        return
    scores = plain(seen, measures.scores().em)
    weighted = {
        record.propensity
        for record in records
        if record.stopped_by == "policy" and len(record.rounds) < budget
    }
    every = range(1, budget + 1)
    twin = [[obvious(record, stop, budget, weighted) for stop in every] for record in records]
    np.testing.assert_array_equal(scores, twin)


def test_blank_answers_in_most_rounds_are_scored_as_wrong() -> None:
    half = to_trace_set([make_record("a", ["", "Oslo"]), make_record("b", ["", "Rome"])])
    assert record_banners(half) == ()
    most = to_trace_set([make_record("a", ["", " "]), make_record("b", ["", "Rome"])])
    (said,) = record_banners(most)
    assert re.search("BLANK ANSWERS in 3 of 4 rounds.*scored as wrong", said)


def test_questions_that_were_stopped_early_are_said() -> None:
    """Also those that ran as long as any: the last round recorded may be no full budget."""
    causes: list[StoppedBy | None] = ["policy", "policy", "gold", "budget", "end", None]
    made = [
        replace(make_record(f"q{n}", ["x", "y"]), stopped_by=cause)
        for n, cause in enumerate(causes)
    ]
    (said,) = record_banners(to_trace_set(made))
    assert said.startswith("CUT RECORDS: 3 of 6 questions stopped early (2 by policy, 1 by gold)")
    assert record_banners(to_trace_set(made[3:])) == ()

"""How far the best candidate stands out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from suffice.signals.retrieval_scores import RETRIEVAL_GAP, RETRIEVAL_Z, RETRIEVAL_Z_ROBUST
from suffice.signals.spec import SignalSpec
from suffice.trace.rounds.records import LoopView, Round

ALL = (RETRIEVAL_Z, RETRIEVAL_Z_ROBUST, RETRIEVAL_GAP)


def view(*lists: Sequence[float] | None) -> LoopView:
    rounds = (
        Round(answer="", candidate_scores=None if each is None else tuple(each)) for each in lists
    )
    return LoopView("q", tuple(rounds))


def test_values_by_hand() -> None:
    scores = view([9.0, 4.0, 2.0, 1.0])
    # Mean 4, population variance (25 + 0 + 4 + 9) / 4 = 9.5.
    assert RETRIEVAL_Z(scores) == pytest.approx(5 / math.sqrt(9.5), abs=1e-12)
    # Median 3; quartiles at positions 0.75 and 2.25 of 1, 2, 4, 9: 1.75 and 5.25.
    assert RETRIEVAL_Z_ROBUST(scores) == pytest.approx(6 / 3.5, abs=1e-12)
    assert RETRIEVAL_GAP(scores) == 5.0


def test_order_does_not_matter_and_negative_scores_are_fine() -> None:
    mixed = view([-3.0, -1.0, -2.0])
    ranked = view([-1.0, -2.0, -3.0])
    assert [spec(mixed) for spec in ALL] == [spec(ranked) for spec in ALL]
    assert RETRIEVAL_GAP(mixed) == 1.0


def test_equal_scores() -> None:
    # float32(0.1) three times: the mean rounds away from it, which must not make a huge z.
    assert [spec(view([0.1] * 3)) for spec in ALL] == [0.0, 0.0, 0.0]
    assert [spec(view([2.0])) for spec in (RETRIEVAL_Z, RETRIEVAL_Z_ROBUST)] == [0.0, 0.0]
    assert math.isnan(RETRIEVAL_GAP(view([2.0])))


def test_a_middle_half_without_spread_leaves_the_robust_form_undefined() -> None:
    scores = view([5.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert math.isnan(RETRIEVAL_Z_ROBUST(scores))
    assert RETRIEVAL_Z(scores) == pytest.approx(math.sqrt(5), abs=1e-12)


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.name)
def test_the_newest_list_counts(spec: SignalSpec) -> None:
    first, second = [5.0, 2.0, 1.0], [9.0, 8.0, 1.0]
    alone = spec(view(first))
    assert spec(view(first, None, None)) == alone
    assert spec(view(first, second)) == spec(view(second)) != alone
    assert math.isnan(spec(view(None, None)))
    assert math.isnan(spec(view(first, [])))


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.name)
def test_scores_that_are_no_numbers_are_left_out(spec: SignalSpec) -> None:
    assert spec(view([3.0, math.nan, 1.0, -math.inf, math.inf])) == spec(view([3.0, 1.0]))
    assert math.isnan(spec(view([math.nan])))

"""Oracles by hand."""

from __future__ import annotations

import math

import numpy as np

from suffice.measures.scores import Outcomes
from suffice.replay.run.references import oracle_em, oracle_f1

NAN = math.nan
F1 = np.array(
    [
        [0.0, 1.0, 1.0],  # right from round 2 on
        [1.0, 0.0, 0.5],  # right at once, then lost
        [0.2, 0.6, 0.6],  # never right, best at 2
        [0.0, 0.0, 0.0],  # hopeless
        [0.0, 0.4, NAN],  # ends after round 2, best there
        [NAN, NAN, NAN],  # unlabelled
    ]
)
EM = np.where(np.isnan(F1), NAN, F1 == 1.0)
SCORED = Outcomes(em=EM, f1=F1, acc=EM, labelled=np.array([True] * 5 + [False]))
LAST = np.array([3, 3, 3, 3, 2, 3], np.int16)


def test_oracle_em_takes_the_earliest_match_else_the_last_round() -> None:
    assert oracle_em(SCORED, LAST).tolist() == [2, 1, 3, 3, 2, 3]


def test_oracle_f1_takes_the_first_best_round() -> None:
    assert oracle_f1(SCORED, LAST).tolist() == [2, 1, 2, 1, 2, 3]


def test_they_differ_in_type_of_stop_only_where_nothing_is_right() -> None:
    assert oracle_em(SCORED, LAST).dtype == oracle_f1(SCORED, LAST).dtype == np.int16

"""Splits: exact shares in every prefix, stable when more questions follow."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suffice.errors import UsageError
from suffice.pipelines.record.dataset_run import assign_splits, parse_splits

SHARES = [
    {"tune": 0.4, "eval": 0.6},
    {"tune": 0.25, "eval": 0.75},
    {"a": 0.1, "b": 0.9},
    {"optimize": 0.2, "calibrate": 0.3, "eval": 0.5},
    {"all": 1.0},
]


@pytest.mark.parametrize("shares", SHARES, ids=str)
@pytest.mark.parametrize("seed", [0, 42])
def test_every_prefix_holds_its_shares(shares: dict[str, float], seed: int) -> None:
    assigned = assign_splits(600, shares, seed=seed)
    taken: Counter[str] = Counter()
    for number, name in enumerate(assigned, start=1):
        taken[name] += 1
        for each, share in shares.items():
            assert abs(taken[each] - share * number) <= 1.5, (number, each)


@settings(max_examples=40)
@given(
    weights=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    count=st.integers(0, 80),
    more=st.integers(0, 40),
    seed=st.integers(0, 1000),
)
def test_prefixes_do_not_depend_on_what_follows(
    weights: list[int], count: int, more: int, seed: int
) -> None:
    shares = {f"s{n}": weight / sum(weights) for n, weight in enumerate(weights)}
    assert (
        assign_splits(count, shares, seed=seed)
        == assign_splits(count + more, shares, seed=seed)[:count]
    )


def test_the_pattern_does_not_repeat_with_the_data() -> None:
    """Alternating kinds of question get their shares of each split."""
    assigned = np.array(assign_splits(2000, {"tune": 0.5, "eval": 0.5}, seed=42))
    for period in (2, 3, 4):
        for phase in range(period):
            share = (assigned[phase::period] == "tune").mean()
            assert share == pytest.approx(0.5, abs=0.06)
    assert assign_splits(50, {"tune": 0.5, "eval": 0.5}, seed=1) != assigned[:50].tolist()


def test_a_share_of_nothing_gets_nothing() -> None:
    assert set(assign_splits(100, {"tune": 0.0, "eval": 1.0}, seed=42)) == {"eval"}


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("tune=0.4,eval=0.6", {"tune": 0.4, "eval": 0.6}),
        (" tune = 0.4 , eval = 0.6 ", {"tune": 0.4, "eval": 0.6}),
        ("eval=1", {"eval": 1.0}),
        ("a=0,b=1", {"a": 0.0, "b": 1.0}),
        ("a=.1,b=.2,c=.7", {"a": 0.1, "b": 0.2, "c": 0.7}),
    ],
)
def test_texts(text: str, shares: dict[str, float]) -> None:
    assert parse_splits(text) == shares


@pytest.mark.parametrize(
    "text",
    [
        *("", "tune", "tune=", "=1", "tune=x", "tune=0.4,,eval=0.6", "tune=0.5,tune=0.5"),
        *("tune=-0.5,eval=1.5", "tune=nan", "tune=inf", "tune=40%,eval=60%"),
    ],
)
def test_texts_that_are_no_shares(text: str) -> None:
    with pytest.raises(UsageError, match=r"as in tune=0\.4,eval=0\.6"):
        parse_splits(text)


@pytest.mark.parametrize(("text", "total"), [("tune=0.4,eval=0.5", "0.9"), ("a=1,b=1", "2")])
def test_shares_that_do_not_sum_to_one(text: str, total: str) -> None:
    with pytest.raises(UsageError, match=f"sum to {total}, not to 1"):
        parse_splits(text)

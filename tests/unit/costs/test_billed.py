"""Dollars as billed, in the columns ``usd`` and ``answer_usd``, stand before prices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import suffice
from suffice.costs.prices import Prices
from suffice.errors import DataError, UsageError

DEAR = suffice.CostModel(prices=Prices(input=1e6, cached=1e6, output=1e6))  # a dollar a token
BILLS = ((0.25, 0.125), (0.5, 0.125), (1.0, 0.25))


def record(folder: Path, *bills: tuple[float | None, float | None]) -> Path:
    rounds = tuple(
        suffice.Round(
            answer="Oslo",
            usage=suffice.Usage(
                llm_calls=2,
                answer_calls=1,
                prompt_tokens=7,
                cached_tokens=0,
                completion_tokens=0,
                answer_prompt_tokens=0,
                answer_cached_tokens=0,
                answer_completion_tokens=0,
                usd=usd,
                answer_usd=of_answer,
            ),
        )
        for usd, of_answer in bills
    )
    questions = [
        suffice.QuestionRecord(
            question=suffice.Question(id=name, text=name),
            gold=suffice.Gold(answers=("Oslo",)),
            rounds=rounds,
        )
        for name in "abcd"
    ]
    suffice.write(questions, folder / "t.parquet")
    return folder / "t.parquet"


def usd(file: Path, policy: str, **options: Any) -> float | None:
    (found, *_) = suffice.replay(file, policy, metric="em", **options).policies
    value: float | None = found.costs["usd"]
    return value


def test_what_was_billed_is_the_axis_and_the_answer_at_the_stop_is_paid_once(
    tmp_path: Path,
) -> None:
    file = record(tmp_path, *BILLS)
    assert suffice.replay(file, "fixed-3", metric="em").cost.name == "usd"
    assert [usd(file, f"fixed-{k}") for k in (1, 2, 3)] == [0.25, 0.625, 1.5]
    # a policy that reads answers pays for all of them
    (reader, *_) = suffice.replay(file, rules="not answer_stable", metric="em").policies
    assert reader.costs["usd"] == 0.25
    assert usd(file, "fixed-3", cost_model=DEAR) == 1.5


def test_prices_stand_in_where_a_round_has_no_bill(tmp_path: Path) -> None:
    file = record(tmp_path, BILLS[0], (None, None), BILLS[2])
    assert usd(file, "fixed-3") is None
    assert usd(file, "fixed-3", cost_model=DEAR) == 0.125 + 7.0 + 1.0
    with pytest.raises(UsageError, match="usd"):
        suffice.replay(file, "fixed-3", metric="em", cost="usd")


def test_bills_are_kept_to_the_last_digit(tmp_path: Path) -> None:
    file = record(tmp_path, (0.1, 0.00000123456789), (0.2, 0.1))
    first = next(suffice.read(file).records()).rounds[0].usage
    assert (first.usd, first.answer_usd) == (0.1, 0.00000123456789)


@pytest.mark.parametrize("bill", [(-0.1, None), (0.1, 0.2), (float("inf"), None)])
def test_bills_that_cannot_be_are_refused(tmp_path: Path, bill: tuple[float, float | None]) -> None:
    with pytest.raises((DataError, UsageError), match="usd"):
        usd(record(tmp_path, bill), "fixed-1", cost="usd")

"""What ``choose`` promises, end to end on populations with known truth."""

from __future__ import annotations

import pytest
from tests.choice_population import NARROW, Known, just_above, mixed, nothing_helps

from suffice.replay.choose import candidates
from suffice.replay.choose.procedure import choose
from suffice.replay.settings import ChoiceSettings

CASES = {"mixed": (mixed, 0.03), "nothing": (nothing_helps, 0.1), "narrow": (just_above, NARROW)}


@pytest.fixture(autouse=True)
def few_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules and budgets carry the promise; fits of methods would be most of the time."""
    monkeypatch.setattr(candidates, "nameable_methods", tuple)


def counts(case: str, draws: int) -> tuple[int, int]:
    """Of so many draws those with a broken promise, and those that chose an early stop."""
    made, most = CASES[case]
    known, broken, early = Known.of(made()), 0, 0
    asked = ChoiceSettings(
        metric="score", max_loss=most, resamples=2, signals=("sure",), max_signals=1
    )
    for draw in range(draws):
        choice = choose(known.draw(500, draw), asked)
        assert choice.outcome is not None
        early += not choice.outcome.fell_back
        broken += known.loss(choice.policy) > most
    return broken, early


def most_allowed(draws: int) -> float:
    return 0.05 * draws + 3 * float((0.05 * 0.95 * draws) ** 0.5)


def test_a_fast_sample_of_the_promise() -> None:
    broken, _ = counts("mixed", 4)
    assert broken <= most_allowed(4)


@pytest.mark.slow
@pytest.mark.parametrize("case", list(CASES))
def test_the_promise_is_kept(case: str) -> None:
    broken, early = counts(case, 2000)
    assert broken <= most_allowed(2000), (broken, early)
    assert case != "mixed" or early > 200

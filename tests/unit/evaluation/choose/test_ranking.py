"""Which candidate estimates speak for where nothing is proven."""

from __future__ import annotations

import pytest

from suffice.errors import UsageError
from suffice.evaluation.choose.candidates import Candidate
from suffice.evaluation.choose.choice import Ranked
from suffice.evaluation.choose.procedure import in_order
from suffice.evaluation.replay.named_policies import NamedPolicy
from suffice.evaluation.settings import ChoiceSettings
from suffice.policies.unfitted import FixedPolicy


def order(settings: ChoiceSettings, *, proven: bool | None) -> list[int]:
    """Of four candidates, each dearer and better than the one before."""
    found = [(0.4, 1.0, False), (0.2, 2.0, False), (0.01, 2.5, True), (0.0, 3.0, True)]
    ranked = [
        Ranked(
            candidate=Candidate(
                policy=NamedPolicy.of(FixedPolicy(rounds=number), str(number)), group="fixed"
            ),
            loss=loss,
            cost=cost,
            kept=kept,
        )
        for number, (loss, cost, kept) in enumerate(found, start=1)
    ]
    ordered, _ = in_order(ranked, ranked[-1], settings, "rounds", proven=proven)
    return [int(one.candidate.policy.name) for one in ordered]


def test_candidates_are_ordered_by_what_they_kept() -> None:
    assert order(ChoiceSettings(max_loss=0.1), proven=True) == [3, 4, 2, 1]
    assert order(ChoiceSettings(max_loss=0.1), proven=False) == [4, 3, 2, 1]


def test_aims_without_a_promise() -> None:
    for asked, first in (
        (ChoiceSettings(cost_per_error=100.0), 4),
        (ChoiceSettings(cost_per_error=1e-6), 1),
        (ChoiceSettings(max_cost=2.2), 2),
    ):
        assert order(asked, proven=None)[0] == first
    with pytest.raises(UsageError):
        order(ChoiceSettings(max_cost=0.5), proven=None)

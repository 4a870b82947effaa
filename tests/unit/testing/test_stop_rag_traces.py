"""The made traces are what they say: repeatable, sampled, and right from the round that suffices."""

from __future__ import annotations

import pytest
from tests.stop_rag_traces import WORLDS, World, stop_rag_records

from suffice.errors import UsageError
from suffice.policies.stop_rag.states import read_rewards
from suffice.testing.traces import to_trace_set


@pytest.mark.parametrize("world", WORLDS)
def test_the_same_seed_gives_the_same_records(world: World) -> None:
    assert stop_rag_records(world, 5, seed=4) == stop_rag_records(world, 5, seed=4)
    assert stop_rag_records(world, 5, seed=4) != stop_rag_records(world, 5, seed=5)


@pytest.mark.parametrize("world", WORLDS)
def test_rewards_are_low_then_right_then_half(world: World) -> None:
    rewards = read_rewards(to_trace_set(stop_rag_records(world, 40, rounds=6, seed=1)), "f1")
    assert rewards.usable.all()
    for row in rewards.values.tolist():
        if row == [0.125] * 6:
            assert world == "unanswerable"
            continue
        first = row.index(1.0)
        assert row == [0.0] * first + [1.0] * min(2, 6 - first) + [0.5] * max(0, 4 - first)


def test_the_marker_stands_where_answers_turn_right() -> None:
    for record in stop_rag_records("marker", 20, seed=2):
        marked = ["Confirmed" in (p.text or "") for r in record.rounds for p in r.passages or ()]
        right = [(r.samples or ()).count("yes indeed") for r in record.rounds]
        assert marked.index(True) == right.index(8)
        assert sum(marked) == 1


def test_what_cannot_be_made() -> None:
    with pytest.raises(UsageError, match="no world 'moon'"):
        stop_rag_records("moon", 1)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at least 3, found 2"):
        stop_rag_records("single", 1, rounds=2)

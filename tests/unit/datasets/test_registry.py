from __future__ import annotations

from pathlib import Path

import pytest

from suffice.datasets.registry import DATASETS, WITH_PASSAGES, load
from suffice.errors import UsageError


def test_an_unknown_name_lists_the_allowed_ones() -> None:
    with pytest.raises(UsageError, match="wikimultihopqa"):
        load("squad")
    assert WITH_PASSAGES == ("generated", "hotpotqa", "2wikimultihopqa", "musique", "triviaqa")
    assert {*WITH_PASSAGES, "nq-open"} == {*DATASETS}


def test_paths_are_needed_or_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--data PATH"):
        load("hotpotqa")
    with pytest.raises(UsageError, match="drop the path"):
        load("generated", tmp_path)


@pytest.mark.parametrize("limit", [0, -3])
def test_limit_must_be_positive(limit: int) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        load("generated", limit=limit)


def test_the_seed_chooses_the_world() -> None:
    assert load("generated", limit=4, seed=1) == load("generated", limit=4, seed=1)
    assert load("generated", limit=4, seed=1) != load("generated", limit=4, seed=2)
    assert len(load("generated")) == 200

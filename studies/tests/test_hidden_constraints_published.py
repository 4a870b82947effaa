"""The arrangement of the paper."""

from __future__ import annotations

from typing import Any

import pytest
from studies.hidden_constraints.results import arrangement
from studies.hidden_constraints.runs import HiddenConstraintsSettings, as_published

from suffice.errors import UsageError
from suffice.loops.planning.agent import PlanningSettings


def test_all_that_the_paper_states_is_set_and_the_rest_stays() -> None:
    asked = HiddenConstraintsSettings(limit=3, encoder="other", failure_loss=20.0)
    found = as_published(asked)
    assert (found.subset, found.seed, found.seeds) == ("hard-small", 42, 3)
    assert found.retrievers == ("tfidf", "dense", "dense-30", "oracle")
    assert (found.limit, found.encoder, found.failure_loss) == (3, "other", 20.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seeds", 4),
        ("retrievers", ("oracle",)),
        ("detector", "learned"),
        ("planning", PlanningSettings(candidates=3)),
        ("planning", PlanningSettings(temperature=0.7)),
    ],
)
def test_what_says_otherwise_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError):
        as_published(HiddenConstraintsSettings(**{name: value}))


def test_the_table_shows_what_is_run_and_names_what_is_open() -> None:
    settings = as_published(HiddenConstraintsSettings(limit=2, retrieval_cost=3.0))
    table = arrangement(settings, 2, "judge")
    rows = {str(name): (str(value), str(where)) for name, value, where in table.rows}
    assert rows["tasks"][0] == "2"
    assert rows["seeds"][0] == "42, 43, 44"
    assert rows["c_r, L_f"][0] == "3.0, 2.0"
    assert {rows[name][1] for name in ("budget B", "cool-down", "kappa")} == {"open; ours"}
    assert rows["judge"][0] == "judge"
    assert len(arrangement(settings, 20, "checker").rows) == len(rows) - 1  # it reads no tokens

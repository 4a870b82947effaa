"""Table 7 from the gate's definition."""

from __future__ import annotations

import json
import warnings
from collections import Counter

import numpy as np
import pytest
from studies.hidden_constraints.__main__ import main
from studies.hidden_constraints.runs import TAUS
from studies.hidden_constraints.table7 import documents, expected

from suffice.errors import SufficeWarning
from suffice.policies.gate.gate import Gate
from suffice.policies.gate.settings import RiskModel, retrieval_depth


def by_definition(
    low: float, agreement: float, conflicts: list[bool], budget: int, cool: int
) -> int:
    """Algorithm 1, lines 3 to 13, in documents."""
    model, left, following, asked = RiskModel(), budget, 0, 0
    for step, conflict in enumerate(conflicts):
        risk = model.risk(
            agreement=agreement,
            contradiction=float(conflict),
            remaining=(len(conflicts) - step) / len(conflicts),
        )
        confidence = model.confidence(risk)
        if confidence <= low and left > 0 and step >= following:
            asked += retrieval_depth(confidence, low, 6)
            left, following = left - 1, step + cool
    return asked


@pytest.mark.parametrize("cool", [1, 2])
def test_documents_are_those_of_the_algorithm(cool: int) -> None:
    generator = np.random.default_rng(1)
    for _ in range(100):
        low, high = TAUS[generator.integers(len(TAUS))]
        shared, budget = int(generator.integers(21)), int(generator.integers(1, 5))
        conflicts = [False, *(bool(hit) for hit in generator.random(4) < 0.3)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SufficeWarning)
            gate = Gate.published(tau_low=low, tau_high=high, budget=budget, cooldown=cool)
        wanted = by_definition(low, shared / 20, conflicts, budget, cool)
        assert documents(gate, shared, conflicts) == wanted


def test_means_are_weighted_by_depth_and_by_chance() -> None:
    depths = Counter({2: 1, 3: 3})
    means = expected(3, 1, depths)
    at = TAUS.index((0.3, 0.5))
    calm = [by_definition(0.3, 0.25, [False] * depth, 3, 1) for depth in (2, 3)]
    assert means[at, 5, 0] == pytest.approx((calm[0] + 3 * calm[1]) / 4)
    certain = [by_definition(0.3, 0.25, [False] + [True] * (depth - 1), 3, 1) for depth in (2, 3)]
    assert means[at, 5, 20] == pytest.approx((certain[0] + 3 * certain[1]) / 4)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["table7", "--budgets", "1", "--cool-downs", "1", "--agreement", "0,0.1"]
    assert main([*asked, "--json"]) == 0
    errors = json.loads(capsys.readouterr().out)["Errors"]
    assert errors["budget"] == [1]
    assert errors["least"][0] <= errors["sc_0.1"][0] <= errors["greatest"][0]
    for wrong in (["--budgets", "2,2"], ["--budgets", "0"], ["--agreement", "0.5,0.1"]):
        assert main(["table7", *wrong]) == 2

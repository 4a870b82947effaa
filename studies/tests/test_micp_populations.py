"""MiCP on fresh populations: its figures against a loop over questions, and what must hold of them."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from studies.command import mean_intervals
from studies.micp.__main__ import main
from studies.micp.populations import (
    KINDS,
    PRESETS,
    WAYS,
    Kind,
    PopulationSettings,
    Values,
    population,
    population_values,
)

from suffice.policies.micp.stage2 import calibrate, evaluate

SMALL = PopulationSettings(
    alphas=(0.2,), populations=6, optimize=100, calibrate=200, fresh=500, seed=7
)


@pytest.fixture(scope="module")
def small() -> Values:
    return population_values(SMALL)


@pytest.mark.parametrize("kind", KINDS)
def test_set_sizes_are_those_of_a_loop_over_questions(kind: Kind) -> None:
    people = population(kind, 3, seed=1, people=200)
    found = calibrate(people.sampled, Fraction("0.2"), [Fraction("0.1")] * 2, "corrected")
    seen = evaluate(people.sampled, found)
    wanted = []
    for number, (stop, early) in enumerate(zip(seen.stop, seen.early, strict=True)):
        held = {
            answer
            for answer, confidence in enumerate(people.confidence[number, stop - 1])
            if np.isfinite(confidence) and confidence >= found.final
        }
        wanted.append(len(held) + (not early))
        said = 0 in held or not (early or people.sampled.answerable[number].any())
        assert seen.covered[number] == said
    assert people.set_sizes(seen, found.final).tolist() == wanted
    assert 0 < seen.early.sum() < 200


def test_every_cell_holds_what_it_must(small: Values) -> None:
    assert set(small) == {
        (kind, 0.2, preset, way) for kind in KINDS for preset in PRESETS for way in WAYS
    }
    for (_, alpha, preset, way), values in small.items():
        saved, coverage, size = mean_intervals(values)
        assert values.shape == (6, 3)
        assert coverage.low <= coverage.estimate <= coverage.high
        assert 1.0 <= size.estimate <= 7.0
        if way == "no early stop":
            assert (saved.low, saved.high) == (0.0, 0.0)
        elif preset == "corrected":
            assert saved.low > 0.0
            assert coverage.high > 1.0 - alpha


def test_the_box_saves_no_more_than_shares_in_the_corrected_preset(small: Values) -> None:
    for kind in KINDS:
        box, shares = (small[kind, 0.2, "corrected", way] for way in ("box", "shares"))
        saved, coverage, _ = mean_intervals(box - shares)
        assert saved.high < 0.0 < coverage.low


def test_the_command_prints_every_cell(capsys: Any) -> None:
    few = ["--populations", "2", "--optimize", "30", "--calibrate", "40", "--fresh", "50"]
    assert main(["populations", *few, "--alphas", "0.2,0.3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert document["settings"]["fresh"] == 50
    assert len(document["cells"]) == len(KINDS) * 2 * len(PRESETS) * len(WAYS)
    assert main(["populations", "--alphas", "0.1,2"]) == 2

"""Energy constants: what they are derived from, and how they are given."""

from __future__ import annotations

import pytest

from suffice.costs.prices import EnergyModel, parse_energy
from suffice.errors import UsageError
from suffice.results.as_json import as_json


def test_the_defaults_follow_from_what_is_stated() -> None:
    """8e9 parameters on one H100 SXM: 989 TFLOP/s, 3.35 TB/s, 700 W, by its data sheet."""
    watts, parameters = 700.0, 8e9
    prompt_s = 2 * parameters / (0.40 * 989e12)
    completion_s = (
        2 * parameters / (0.60 * 3.35e12) / 16
    )  # two bytes each, read once for 16 sequences
    model = EnergyModel()
    assert model.joules_per_prompt_token == pytest.approx(watts * prompt_s, rel=0.1)
    assert model.joules_per_completion_token == pytest.approx(watts * completion_s, rel=0.3)


def test_by_hand_the_rest_keeps_the_defaults() -> None:
    model = parse_energy("prompt=0.1, retrieval=2")
    assert (model.joules_per_prompt_token, model.joules_per_retrieval) == (0.1, 2.0)
    assert model.joules_per_completion_token == EnergyModel().joules_per_completion_token
    every = parse_energy("prompt=1,cached=2,completion=3,retrieval=4,rerank=5")
    assert list(as_json(every).values()) == [1.0, 2.0, 3.0, 4.0, 5.0]
    tariff = every.tariff
    assert (tariff.prompt, tariff.cached, tariff.completion) == (1.0, 2.0, 3.0)
    assert (tariff.call, tariff.retrieval, tariff.rerank) == (0.0, 4.0, 5.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prompt", "found 'prompt'"),
        ("prompt=1,prompt=2", "found 'prompt=2'"),
        ("prompt=much", "'much'"),
        ("prompt=nan", "found 'nan'"),
    ],
)
def test_what_is_not_of_the_form_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_energy(text)


def test_negative_constants_are_refused_when_built() -> None:
    with pytest.raises(UsageError, match="found -1"):
        EnergyModel(joules_per_completion_token=-1.0)


def test_the_summary_says_whether_the_constants_are_the_defaults() -> None:
    assert "defaults" in EnergyModel().summary
    stated = parse_energy("prompt=0.5,retrieval=2,rerank=3").summary
    assert "defaults" not in stated
    assert all(f"{number} J" in stated for number in (0.5, 0, 0.35, 2, 3))

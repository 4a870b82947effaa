"""Presets are the documented numbers; schedules are what the paper says; nonsense is refused."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from suffice.policies.stop_rag.stop_rag_settings import (
    SETTINGS,
    SIGNAL_SETTINGS,
    StopRAGSettings,
    TrainSettings,
)


def test_the_published_numbers() -> None:
    found = SETTINGS["published"]
    assert (found.head_width, found.learning_rate, found.head_rate) == (4096, 5e-5, 5e-5)
    assert (found.warm_up, found.weight_decay, found.batch_states) == (0.1, 0.01, 128)
    assert (found.epochs, found.lambda_start, found.lambda_end) == (3.0, 1.0, 0.1)
    assert (found.mode, found.trained_layers, found.window) == ("joined", None, None)
    assert (found.clip_norm, found.dropout, found.target) == (30.0, 0.1, "q-lambda")
    assert not found.ends


@pytest.mark.parametrize(
    ("dataset", "epochs"),
    [
        ("hotpotqa", 1.0),
        ("2wikimultihopqa", 1.0),
        ("musique", 3.0),
        (None, 3.0),
        ("mine.jsonl", 3.0),
        (["hotpotqa"], 3.0),
    ],
)
def test_the_published_epochs_go_by_the_data_set(dataset: object, epochs: float) -> None:
    assert StopRAGSettings().schedule("published", dataset).epochs == epochs
    assert StopRAGSettings(epochs=2.5).schedule("published", dataset).epochs == 2.5
    assert StopRAGSettings().schedule("corrected", dataset).epochs == TrainSettings().epochs
    signals = StopRAGSettings(features="signals").schedule("published", dataset)
    assert signals == SIGNAL_SETTINGS["published"]


def test_lambda_falls_along_half_a_cosine() -> None:
    found = TrainSettings()
    steps = 101
    values = [found.lam(step, steps) for step in range(steps)]
    assert values[0] == 1.0
    assert values[-1] == pytest.approx(0.1)
    assert values[50] == pytest.approx(0.55)
    assert values == sorted(values, reverse=True)
    assert values[25] == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi / 4)))


@pytest.mark.parametrize(("target", "lam"), [("mc", 1.0), ("q0", 0.0)])
def test_lambda_is_fixed_for_the_ablations(target: Any, lam: float) -> None:
    found = TrainSettings(target=target)
    assert {found.lam(step, 9) for step in range(9)} == {lam}


def test_rates_rise_over_a_tenth_and_fall_to_zero() -> None:
    found = TrainSettings()
    shares = [found.rate_share(step, 100) for step in range(100)]
    assert shares[0] == pytest.approx(0.1)
    assert shares[10] == 1.0 == max(shares)
    assert shares[:10] == sorted(shares[:10])
    assert shares[10:] == sorted(shares[10:], reverse=True)
    assert shares[55] == pytest.approx(0.5)
    assert 0.0 < shares[-1] < 0.001
    assert dataclasses.replace(found, warm_up=0.0).rate_share(0, 100) == 1.0
    assert found.rate_share(0, 1) == 1.0

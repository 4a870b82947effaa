"""Sweeps: templates, out-of-fold values against a plain loop, the choice of a threshold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from suffice.errors import UsageError
from suffice.policies.fitting import base_rates_out_of_fold, fit_data, folds, out_of_fold
from suffice.policies.thresholds import (
    ThresholdScore,
    cheapest_within_one_error,
    fill,
    sweep_rule,
)
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.table import TraceSet

MARGIN = "answer_token_margin"


def uneven_traces(count: int = 23) -> TraceSet:
    generator = np.random.default_rng(5)
    return to_trace_set(
        [
            make_record(
                f"q{number:03d}",
                generator.choice(
                    ["right", "wrong", "other"], int(generator.integers(2, 5))
                ).tolist(),
                gold=["right"],
                margins=generator.uniform(0, 3, 4).tolist(),
                split="tune",
            )
            for number in range(count)
        ]
    )


def test_a_template_has_one_open_number() -> None:
    assert fill("overlap > ?", 0.25) == "overlap > 0.25"
    assert fill("overlap > ?", 3.0) == "overlap > 3"
    for template in ("overlap > 0.2", "overlap > ? or margin_min > ?"):
        with pytest.raises(UsageError, match="exactly one"):
            fill(template, 1.0)
    with pytest.raises(UsageError, match="finite"):
        fill("overlap > ?", math.nan)


def test_every_threshold_scores_what_a_loop_over_questions_scores() -> None:
    recorded = uneven_traces()
    data = fit_data(recorded, ["answer_stable", MARGIN])
    held_out = out_of_fold(data, MARGIN)
    rates = base_rates_out_of_fold(data)
    stable, exists = data.table.signal("answer_stable"), data.table.exists
    template = f"(answer_stable and calibrated({MARGIN}) > ?) or base_rate() > 0.4 and round >= 3"
    for score in sweep_rule(template, data, (0.1, 0.3, 0.6)):
        stops = []
        for question in range(recorded.n_questions):
            last = int(exists[question].sum())
            stop = last
            for t in range(last):
                sure = stable[question, t] == 1.0 and held_out[question, t] > score.threshold
                if sure or (rates[question, t] > 0.4 and t >= 2):
                    stop = t + 1
                    break
            stops.append(stop)
        assert score.stops.tolist() == stops
        f1 = [data.outcomes.f1[q, stop - 1] for q, stop in enumerate(stops)]
        assert score.f1 == pytest.approx(np.mean(f1))
        assert score.mean_rounds == pytest.approx(np.mean(stops))
        assert score.standard_error == pytest.approx(np.std(f1, ddof=1) / math.sqrt(len(f1)))


def test_base_rates_come_from_the_other_folds() -> None:
    data = fit_data(uneven_traces(), [MARGIN])
    fold = folds(23)
    rates = base_rates_out_of_fold(data)
    for question in range(23):
        others = data.outcomes.em[fold != fold[question]]
        np.testing.assert_allclose(rates[question], np.nanmean(others, axis=0))


def test_a_threshold_out_of_range_is_refused() -> None:
    data = fit_data(uneven_traces(), [MARGIN])
    with pytest.raises(UsageError, match=r"can never hold.*\[0, 1\]"):
        sweep_rule(f"calibrated({MARGIN}) > ?", data, (0.5, 1.0))


def scored(*rows: tuple[float, float, float]) -> tuple[ThresholdScore, ...]:
    return tuple(
        ThresholdScore(
            threshold=(20 + n) / 100,
            f1=f1,
            em=f1,
            standard_error=error,
            mean_rounds=rounds,
            stops=np.ones(1, np.int16),
        )
        for n, (f1, error, rounds) in enumerate(rows)
    )


def test_the_cheapest_threshold_within_one_standard_error_of_the_best() -> None:
    """The best is the third, 0.62; its error allows 0.60 and above; of those the second is cheapest."""
    rows = [(0.59, 0.5, 2.0), (0.60, 0.5, 2.5), (0.62, 0.02, 3.0), (0.61, 0.5, 2.6)]
    assert cheapest_within_one_error(scored(*rows)).threshold == 0.21


def test_ties_go_to_the_better_then_to_the_lower_threshold() -> None:
    close = scored((0.60, 0.1, 2.5), (0.62, 0.1, 2.5), (0.61, 0.1, 2.5))
    assert cheapest_within_one_error(close).threshold == 0.21
    assert cheapest_within_one_error(scored((0.6, 0.0, 2.5), (0.6, 0.0, 2.5))).threshold == 0.2

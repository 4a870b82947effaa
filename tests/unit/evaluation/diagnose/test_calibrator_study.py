"""The study of calibrators: its numbers against the parts they are made of, its refusals."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from suffice.errors import DataError, UsageError
from suffice.evaluation.diagnose.reliability import calibrator_study
from suffice.measures.measures import Measures
from suffice.policies.defaults import MARGIN, CalibratorKind
from suffice.policies.fitting import fit_calibrator, fit_data, out_of_fold
from suffice.stats.intervals import Interval
from suffice.stats.quality import brier, expected_calibration_error, log_loss
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.trace_set import TraceSet

SIGNALS = (MARGIN,)
KINDS: tuple[CalibratorKind, ...] = get_args(CalibratorKind)


def uneven_traces(count: int = 80, seed: int = 4) -> TraceSet:
    """Answers that are right the more often the higher their margin; records of uneven length."""
    rng = np.random.default_rng(seed)
    made = []
    for n in range(count):
        rounds = int(rng.integers(2, 5))
        margins = rng.gamma(1.0, 1.5, rounds)
        right = rng.random(rounds) < 1 / (1 + np.exp(1.5 - margins))
        made.append(
            make_record(
                f"q{n:03d}",
                ["x" if each else "y" for each in right],
                gold=["x"] if n % 9 else [],
                margins=margins.tolist(),
                split="tune" if n % 2 else "eval",
            )
        )
    return to_trace_set(made)


def test_every_number_is_that_of_its_parts() -> None:
    whole = uneven_traces()
    study = calibrator_study(whole)
    assert tuple(each["kind"] for each in study.results) == KINDS
    tune = fit_data(whole, SIGNALS)
    held_out = whole.only_split("eval")
    values, scored = (
        fit_data(held_out, SIGNALS, split="eval").table.signal(MARGIN),
        Measures(held_out).scores(),
    )
    for found in study.results:
        oof = out_of_fold(tune, MARGIN, kind=found["kind"])
        assert found["tune_out_of_fold"]["brier"].estimate == pytest.approx(
            brier(oof, tune.outcomes.em)
        )
        assert found["tune_out_of_fold"]["log_loss"] == pytest.approx(
            log_loss(oof, tune.outcomes.em)
        )
        calibrator = fit_calibrator(tune, MARGIN, kind=found["kind"])
        p = np.stack(
            [calibrator.predict(t + 1, column) for t, column in enumerate(values.T)], axis=1
        )
        assert found["eval"]["brier"].estimate == pytest.approx(brier(p, scored.em))
        assert found["eval"]["ece"] == pytest.approx(expected_calibration_error(p, scored.em))
        assert found["eval"]["rows"] == int((np.isfinite(p) & np.isfinite(scored.em)).sum())
    assert study.eval_questions == int(scored.labelled.sum()) < held_out.n_questions


def test_intervals_resample_questions_with_all_their_rounds() -> None:
    whole = uneven_traces(40)
    study = calibrator_study(whole, kinds=["isotonic", "platt"])
    tune, held_out = fit_data(whole, SIGNALS), fit_data(whole, SIGNALS, split="eval")
    errors = []
    for kind in ("isotonic", "platt"):
        calibrator = fit_calibrator(tune, MARGIN, kind=kind)
        columns = enumerate(held_out.table.signal(MARGIN).T, start=1)
        p = np.stack([calibrator.predict(t, column) for t, column in columns], axis=1)
        errors.append((p - held_out.outcomes.em) ** 2)
    kept = [np.isfinite(each).any(axis=1) for each in errors]
    a, b = (each[keep] for each, keep in zip(errors, kept, strict=True))
    rng = np.random.default_rng(42)
    drawn = rng.integers(0, len(a), size=(1000, len(a)))
    deltas = [np.nanmean(b[rows]) - np.nanmean(a[rows]) for rows in drawn]
    found = study.results[1]["eval"]["delta_brier"]
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(deltas, [2.5, 97.5])))
    assert study.results[0]["eval"]["delta_brier"] == Interval(estimate=0.0, low=0.0, high=0.0)


def test_a_missing_split_and_missing_values_are_named() -> None:
    with pytest.raises(DataError, match="dev"):
        calibrator_study(uneven_traces(20), eval_split="dev")
    nothing = [
        make_record(f"q{n:02d}", ["x", "x"], gold=["x"], margins=None, split="eval")
        for n in range(6)
    ]
    defined = list(uneven_traces(20).only_split("tune").records())
    unlabelled = make_record("z", ["x", "x"], margins=[1.0, 2.0], split="eval")
    whole = to_trace_set([*defined, *nothing, unlabelled])
    with pytest.raises(UsageError, match="'eval'"):
        calibrator_study(whole)


def test_recorded_traces(qwen_traces: Path) -> None:
    study = calibrator_study(read_traces(qwen_traces))
    found = {each["kind"]: each for each in study.results}
    assert (study.tune_questions, study.eval_questions) == (49, 75)
    for kind in ("isotonic-global", "platt", "shrunken", "venn-abers"):
        assert found[kind]["eval"]["delta_brier"].high < 0

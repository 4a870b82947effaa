"""The evaluation of MiCP: every figure is what fitting and replaying the same parts gives."""

from __future__ import annotations

import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from studies.micp.populations import calibrate_without_stopping
from studies.micp.results import BASELINE, MiCPStudySettings
from studies.micp.study import divide, micp_study
from studies.tests.micp import sampled_records, sampled_traces

from suffice.errors import SufficeWarning
from suffice.evaluation.replay.answers import AnswerSetResult, Resampling, answer_sets
from suffice.measures.measures import Measures
from suffice.policies.micp.fit import FitParts, fit_on
from suffice.policies.micp.micp_settings import MiCPSettings, Objective
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.micp.relevance_filter import fit_filter, retention
from suffice.policies.micp.sampled_answers import read_samples
from suffice.signals.signal_table import first_stops, signal_table
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import Gold
from suffice.trace.rounds.trace_set import TraceSet, TraceSetOrigin


def replayed(policy: MiCPPolicy, test: TraceSet) -> tuple[AnswerSetResult, float]:
    """The answer sets and mean rounds of a replay."""
    table = signal_table(test, policy.specs)
    stops = np.minimum(first_stops(policy, table), test.last_rounds)
    found = answer_sets(policy, Measures(test), stops, Resampling(resamples=5))
    assert found is not None
    return found, float(stops.mean())


@pytest.mark.parametrize(
    "fit",
    [
        MiCPSettings(steps=4),
        pytest.param(
            MiCPSettings(steps=4, stop_on="top-confidence", penalty=0.1, weight=0.5),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            MiCPSettings(steps=3, clusters="embedding", match_f1=0.5, rounds=2),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_cell_is_what_fitting_and_replaying_its_parts_gives(fit: MiCPSettings) -> None:
    traces = sampled_traces(120, clusters=fit.clusters == "embedding")
    traces = replace(traces, origin=TraceSetOrigin(run={"sample_clusters": {"cosine": 0.1}}))
    settings = MiCPStudySettings(
        alphas=(0.25,), divisions=2, seed=7, shares=(0.3, 0.4, 0.3), fit=fit
    )
    found = micp_study([traces], settings).document["trace_sets"][0]
    stopped = 0
    for number in range(2):
        division = divide(120, settings.shares, 7 + number)
        parts = FitParts(
            optimize=Measures(traces.take(division.optimize)),
            calibrate=Measures(traces.take(division.calibrate)),
        )
        test = traces.take(division.test)
        for cell in found["cells"]:
            alpha, preset, way = cell["alpha"], cell["preset"], cell["budget_for"]
            objective: Objective = "composite" if way == BASELINE else way
            wanted = replace(fit, alpha=alpha, seed=7 + number, objective=objective)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SufficeWarning)
                policy = fit_on(parts, preset, wanted)
            if way == BASELINE:
                held = read_samples(parts.calibrate, policy)
                alone = calibrate_without_stopping(held, Fraction(str(alpha)), preset)
                policy = replace(policy, stops=alone.stops, final=alone.final)
            sets, rounds = replayed(policy, test)
            scored = cell["divisions"][number]
            assert sets.coverage is not None
            assert scored["coverage"] == pytest.approx(sets.coverage.estimate)
            assert scored["set_size"] == pytest.approx(sets.set_size.estimate)
            assert scored["answer_rate"] == pytest.approx(sets.answer_rate)
            assert scored["objective"] == pytest.approx(sets.objective)
            assert scored["mean_rounds"] == pytest.approx(rounds)
            stopped += scored["answer_rate"] > 0
    assert stopped > 1, "cells that never stop would agree whatever they compute"


def test_retention_is_that_of_the_fitted_filter() -> None:
    traces = sampled_traces(90)
    settings = MiCPStudySettings(divisions=2, alphas=(0.1, 0.3), fit=MiCPSettings(steps=2))
    cells = micp_study([traces], settings).document["trace_sets"][0]["retention"]
    assert len(cells) == 4
    for cell in cells:
        for number, scored in enumerate(cell["divisions"]):
            division = divide(90, settings.shares, 42 + number)
            chosen = fit_filter(
                traces.take(division.calibrate),
                Fraction(str(cell["alpha"])),
                cell["preset"],
                "score",
            )
            expected = retention(traces.take(division.test), chosen)
            assert scored.passages == pytest.approx(expected.passages)
            assert scored.all == pytest.approx(expected.all)
            assert scored.shown == pytest.approx(expected.shown)
            assert scored.shown is not None
            assert scored.shown < 1.0


def test_a_division_is_disjoint_and_of_the_size_asked_for() -> None:
    found = divide(1000, (0.2, 0.5, 0.25), 3)
    assert found.sizes == (200, 500, 250)
    assert not (found.optimize & found.calibrate).any()
    assert not ((found.optimize | found.calibrate) & found.test).any()
    other = divide(1000, (0.2, 0.5, 0.25), 4)
    assert (found.test != other.test).any()
    assert sum(divide(10, (1 / 3, 1 / 3, 1 / 3), 0).sizes) == 10


def test_unlabelled_questions_and_short_records_are_told() -> None:
    records = sampled_records(60)
    records[0] = replace(records[0], gold=Gold())
    records[1] = replace(records[1], rounds=records[1].rounds[:1])
    found = micp_study([to_trace_set(records)], MiCPStudySettings(fit=MiCPSettings(steps=2)))
    (told,) = found.document["trace_sets"]
    assert told["unlabelled"] == 1
    assert any("fewer than 3 rounds" in note for note in found.notes)
    assert told["optimize"] + told["calibrate"] + told["test"] == 59

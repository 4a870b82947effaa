from __future__ import annotations

from dataclasses import replace

import pytest
from studies.ab_rag.study import ABRagStudySettings, ab_rag_study
from studies.tests.ab_rag import study_traces

from suffice.errors import UsageError
from suffice.replay.settings import ComparisonSettings
from suffice.testing.traces import make_record, to_trace_set

SETTINGS = ABRagStudySettings(comparison=ComparisonSettings(resamples=50), taus=(0.3, 0.6, 0.7))


def test_each_policy_is_split_at_its_own_threshold() -> None:
    (study,) = ab_rag_study([study_traces()], SETTINGS)
    published, corrected = study.document["selective"]
    assert published["threshold"] == 0.6
    assert corrected["threshold"] == study.comparison.result.policies[1].policy.threshold  # type: ignore[union-attr]
    assert published["above"]["em"].estimate == 1.0
    assert published["below"]["em"].estimate == 0.0


def test_the_sweep_agrees_with_the_comparison() -> None:
    (study,) = ab_rag_study([study_traces()], SETTINGS)
    published, at_06 = study.comparison.result.policies[0], study.swept[0.6]
    assert at_06.stops.tolist() == published.stops.tolist()
    assert (at_06.em, at_06.f1, at_06.auroc) == (published.em, published.f1, published.auroc)
    assert study.swept[0.3].mean_rounds < at_06.mean_rounds


def test_a_penalty_is_the_reward_turned_round() -> None:
    base = study_traces()
    records = [
        replace(
            record,
            rounds=tuple(
                replace(round_, signals={**round_.signals, "rerank_variance_raw": float(index % 7)})
                for round_ in record.rounds
            ),
        )
        for index, record in enumerate(base.records())
    ]
    (study,) = ab_rag_study([to_trace_set(records)], SETTINGS)
    reward, penalty = (
        next(one["auroc"].estimate for one in study.document["signals"] if one["form"] == name)
        for name in ("raw variance", "minus raw variance")
    )
    assert reward is not None
    assert penalty == pytest.approx(1 - reward)


def test_a_record_without_the_signals_says_which() -> None:
    with pytest.raises(UsageError):
        ab_rag_study([to_trace_set([make_record("a", ["Oslo"], gold=["Oslo"])])], SETTINGS)

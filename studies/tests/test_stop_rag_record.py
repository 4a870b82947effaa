"""The evaluation of Stop-RAG: every figure is what fitting and replaying the same questions gives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers", reason="the extra 'learn' is missing")

from studies.stop_rag import fits as stop_rag_fits
from studies.stop_rag.results import (
    DEFAULT,
    LLM_STOPS,
    ORACLE,
    SIGNALS,
    VARIANTS,
    RecordStudy,
    StopRAGStudySettings,
)
from studies.stop_rag.study import best_fixed, record_study
from studies.tests.stop_rag import ALONE, ROUNDS, study_traces

from suffice.evaluation.replay.compare import compare
from suffice.evaluation.settings import ComparisonSettings
from suffice.policies.stop_rag.policy import StopRAGPolicy
from suffice.policies.stop_rag.stop_rag_settings import StopRAGSettings
from suffice.stats.intervals import percentile_interval, resampled_means
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord


@dataclass(frozen=True)
class Kept:
    """Settings of a study, and the study in whose folder its policies lie."""

    settings: StopRAGStudySettings
    study: RecordStudy

    @property
    def variants(self) -> tuple[str, ...]:
        return self.settings.variants


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((DEFAULT, SIGNALS), id="two variants"),
        pytest.param(VARIANTS, id="every variant", marks=pytest.mark.slow),
    ],
)
def kept(
    request: pytest.FixtureRequest, tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> Kept:
    """Two seeds of each variant, networks over texts by a tiny encoder."""
    settings = replace(
        ALONE,
        variants=request.param,
        text=StopRAGSettings(encoder=str(tiny), min_steps=6, epochs=0.1, layers=1),
        folder=tmp_path_factory.mktemp("kept"),
        f1_kind="squad",
    )
    return Kept(settings, record_study(study_traces(), settings))


@pytest.fixture
def study(kept: Kept) -> RecordStudy:
    return kept.study


# --- figures ---------------------------------------------------------------------------------
def test_every_figure_is_what_a_replay_gives(kept: Kept) -> None:
    study, folder = kept.study, kept.settings.folder
    assert folder is not None
    files = [str(folder / f"{variant}-{seed}") for variant in kept.variants for seed in (42, 43)]
    fixed = [f"fixed-{number}" for number in range(1, ROUNDS + 1)]
    found = compare(
        study_traces(),
        ComparisonSettings(
            policies=(*files, *fixed, ORACLE), rules=("llm_stop",), f1_kind="squad", resamples=5
        ),
    ).result.policies
    ours = [
        *((study.contender(variant), number) for variant in kept.variants for number in (0, 1)),
        *((study.contender(each), 0) for each in (*fixed, ORACLE, LLM_STOPS)),
    ]
    assert len(found) == len(ours)
    assert len({policy.mean_rounds for policy in found}) > 5, (
        "figures that cannot tell policies apart"
    )
    for policy, (contender, number) in zip(found, ours, strict=True):
        assert contender is not None
        run = contender.runs[number]
        scores = [run.mean(name) for name in ("em", "f1", "acc")]
        assert scores == pytest.approx([policy.em, policy.f1, policy.acc])
        assert run.mean("mean_rounds") == pytest.approx(policy.mean_rounds)
        assert run.llm_calls == pytest.approx(policy.costs["llm_calls"])
        np.testing.assert_array_equal(run.stops, policy.stops)


def test_asking_the_model_is_paid_for(study: RecordStudy) -> None:
    asked, full = study.contender(LLM_STOPS), study.contender("fixed-4")
    assert asked is not None
    assert full is not None
    verdicts = np.minimum(asked.runs[0].stops, ROUNDS - 1)  # the last round decides nothing
    assert asked.runs[0].llm_calls == pytest.approx(1 + verdicts.mean())
    assert full.runs[0].llm_calls == 1.0  # one answer; samples are not read, and not paid


def test_precision_and_recall_at_the_stop(study: RecordStudy) -> None:
    """The gold passage comes in round 2; another is never found."""
    recalls = [study.contender(f"fixed-{k}") for k in range(1, ROUNDS + 1)]
    found = [(recall.mean("precision"), recall.mean("recall")) for recall in recalls if recall]
    assert found == [(0.0, 0.0), (1 / 2, 1 / 2), (pytest.approx(1 / 3), 1 / 2), (1 / 4, 1 / 2)]
    assert study.document["with_gold_passages"] == 24


# --- differences -----------------------------------------------------------------------------
def test_differences_average_seeds_before_they_are_resampled(study: RecordStudy) -> None:
    f1 = {contender.name: contender.of_questions("f1") for contender in study.contenders}
    for contrast in study.document["contrasts"]:
        difference = (f1[contrast["of"]] - f1[contrast["against"]])[:, None]
        draws = resampled_means(difference, resamples=50, seed=42)[:, 0]
        expected = percentile_interval(float(difference.mean()), draws)
        assert contrast["difference"].estimate == pytest.approx(expected.estimate)
        assert (contrast["difference"].low, contrast["difference"].high) == pytest.approx(
            (expected.low, expected.high)
        )
        middle = (contrast["at_once"].low + contrast["at_once"].high) / 2
        assert middle == pytest.approx(contrast["difference"].estimate)
        assert contrast["at_once"].high - contrast["at_once"].low == pytest.approx(
            2 * study.document["critical"] * draws.std(ddof=1), abs=1e-9
        )


# --- resuming --------------------------------------------------------------------------------
def no_training(*_: Any, **__: Any) -> StopRAGPolicy:
    raise AssertionError("a policy that is there is not trained again")


def test_what_is_fitted_is_found_again(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_rag_fits, "fit_stop_rag", no_training)
    again = record_study(study_traces(), kept.settings)
    count = 2 * len(kept.variants)
    for before, now in zip(kept.study.contenders, again.contenders, strict=True):
        for one, other in zip(before.runs, now.runs, strict=True):
            assert one.to_json() == other.to_json()
        for fit, found in zip(before.fits, now.fits, strict=True):
            changed = {"loaded": False, "state_seconds": fit["state_seconds"]}
            assert {**found, **changed} == fit
    assert any(f"{count} of {count} trainings" in note for note in again.document["notes"])


def test_without_llm_stop_and_gold_passages() -> None:
    found = record_study(study_traces(asked=False), ALONE)
    assert found.contender(LLM_STOPS) is None
    assert found.document["unread"] is None
    assert found.document["with_gold_passages"] == 0
    assert any("no LLM-Stop" in note for note in found.document["notes"])
    assert found.contender("fixed-1") is not None
    full = found.contender("fixed-4")
    assert full is not None
    assert (full.mean("precision"), full.mean("recall")) == (None, None)


def answered(name: str, answers: list[str], split: str, gold: str = "Oslo") -> QuestionRecord:
    return make_record(name, answers, gold=[gold] if gold else [], split=split)


def test_the_best_fixed_budget_is_chosen_where_policies_are_fitted() -> None:
    tune = to_trace_set([answered("a", ["Rome", "Oslo", "Rome"], "tune")])
    other = to_trace_set([answered("b", ["Rome", "Rome", "Oslo"], "validation")] * 1)
    assert best_fixed([tune], "squad", 3) == 2
    assert best_fixed([tune, other], "squad", 3) == 2  # of equal ones the fewest
    assert best_fixed([tune, other, other], "squad", 3) == 3
    assert best_fixed([other], "squad", 2) == 1  # nothing right within two rounds

"""The evaluation of Stop-RAG: every figure is what fitting and replaying the same questions gives."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers", reason="the extra 'learn' is missing")

from tests.stop_rag_traces import stop_rag_records
from tests.studies.stop_rag import (
    ALONE,
    QUICK,
    ROUNDS,
    asked_to_stop,
    study_records,
    study_traces,
)

from studies.stop_rag import fits as stop_rag_fits
from studies.stop_rag.fits import FitProgress
from studies.stop_rag.results import (
    DEFAULT,
    LLM_STOPS,
    ORACLE,
    SIGNALS,
    VARIANTS,
    StopRAGStudy,
    StopRAGStudySettings,
)
from studies.stop_rag.run import stop_rag_study
from studies.stop_rag.show import stop_rag_page
from suffice.errors import DataError, UsageError
from suffice.numbers.intervals.bootstrap import percentile_interval, resampled_means
from suffice.policies.stop_rag.policy import StopRAGPolicy
from suffice.policies.stop_rag.settings import StopRAGSettings
from suffice.replay.run.compare import compare
from suffice.replay.settings import ComparisonSettings
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import Gold
from suffice.trace.rounds.table import TraceSetOrigin


@dataclass(frozen=True)
class Kept:
    """Settings of a study, and the study in whose folder its policies lie."""

    settings: StopRAGStudySettings
    study: StopRAGStudy

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
    return Kept(settings, stop_rag_study(study_traces(), settings))


@pytest.fixture
def study(kept: Kept) -> StopRAGStudy:
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
        assert (run.em, run.f1, run.acc) == pytest.approx((policy.em, policy.f1, policy.acc))
        assert run.mean_rounds == pytest.approx(policy.mean_rounds)
        assert run.llm_calls == pytest.approx(policy.costs["llm_calls"])
        np.testing.assert_array_equal(run.stops, policy.stops)


def test_who_takes_part(kept: Kept) -> None:
    study = kept.study
    names = [contender.name for contender in study.contenders]
    fixed = [f"fixed-{number}" for number in range(1, ROUNDS + 1)]
    assert names == [*kept.variants, LLM_STOPS, *fixed, ORACLE]
    assert study.fitting == {"tune": 30}
    assert (study.questions, study.rounds, study.full) == (24, ROUNDS, "fixed-4")
    for each in study.of_kind("learned"):
        assert [run.seed for run in each.runs] == [fit.seed for fit in each.fits] == [42, 43]
    assert all(not each.fits for each in study.of_kind("fixed", "llm-stop", "oracle"))


def test_asking_the_model_is_paid_for(study: StopRAGStudy) -> None:
    asked, full = study.contender(LLM_STOPS), study.contender("fixed-4")
    assert asked is not None
    assert full is not None
    verdicts = np.minimum(asked.runs[0].stops, ROUNDS - 1)  # the last round decides nothing
    assert asked.runs[0].llm_calls == pytest.approx(1 + verdicts.mean())
    assert full.runs[0].llm_calls == 1.0  # one answer; samples are not read, and not paid


def test_precision_and_recall_at_the_stop(study: StopRAGStudy) -> None:
    """The gold passage comes in round 2; another is never found."""
    recalls = [study.contender(f"fixed-{k}") for k in range(1, ROUNDS + 1)]
    found = [(recall.runs[0].precision, recall.runs[0].recall) for recall in recalls if recall]
    assert found == [(0.0, 0.0), (1 / 2, 1 / 2), (pytest.approx(1 / 3), 1 / 2), (1 / 4, 1 / 2)]
    assert study.with_gold_passages == 24


def test_bands_are_over_seeds(study: StopRAGStudy) -> None:
    for contender in study.contenders:
        values = [run.f1 for run in contender.runs]
        shown = contender.band("f1")
        assert shown is not None
        assert (shown.low, shown.high) == (min(values), max(values))
        assert shown.mean == pytest.approx(np.mean(values))
        assert contender.point == pytest.approx(
            (np.mean([run.mean_rounds for run in contender.runs]), shown.mean)
        )


def test_how_networks_were_trained_is_told(study: StopRAGStudy) -> None:
    for each in study.of_kind("learned"):
        for fit in each.fits:
            assert (fit.trajectories, fit.validated, fit.decisions) == (24, 6, 24 * 3)
            assert 0 < fit.informative <= fit.decisions
            assert fit.state_seconds > 0
            assert not fit.loaded
            assert fit.truncated is None if each.name == SIGNALS else fit.truncated == 0.0


# --- differences -----------------------------------------------------------------------------
def test_differences_average_seeds_before_they_are_resampled(study: StopRAGStudy) -> None:
    f1 = {contender.name: contender.f1_of for contender in study.contenders}
    for contrast in study.contrasts:
        difference = (f1[contrast.of] - f1[contrast.against])[:, None]
        draws = resampled_means(difference, resamples=50, seed=42)[:, 0]
        expected = percentile_interval(float(difference.mean()), draws)
        assert contrast.interval.estimate == pytest.approx(expected.estimate)
        assert (contrast.interval.low, contrast.interval.high) == pytest.approx(
            (expected.low, expected.high)
        )
        middle = (contrast.low + contrast.high) / 2
        assert middle == pytest.approx(contrast.interval.estimate)
        assert contrast.high - contrast.low == pytest.approx(
            2 * study.critical * draws.std(ddof=1), abs=1e-9
        )
    signals = study.contender(SIGNALS)
    assert signals is not None
    assert signals.f1_of == pytest.approx((signals.runs[0].f1_of + signals.runs[1].f1_of) / 2)


def test_what_is_compared_with_what(kept: Kept) -> None:
    study = kept.study
    pairs = [(contrast.of, contrast.against) for contrast in study.contrasts]
    assert len(set(pairs)) == len(pairs)
    rivals = {study.full, study.best, LLM_STOPS}
    expected = {
        (of, rival) for of in (*kept.variants, LLM_STOPS) for rival in rivals if of != rival
    }
    expected |= {(DEFAULT, variant) for variant in kept.variants if variant != DEFAULT}
    assert set(pairs) == expected
    assert study.contrast(DEFAULT, SIGNALS) is not None
    assert study.contrast(SIGNALS, DEFAULT) is None


# --- the best fixed budget -------------------------------------------------------------------
def test_the_scored_split_does_not_choose_it() -> None:
    made = study_records()
    right_late = [
        replace(
            each,
            rounds=tuple(
                replace(one, answer="yes indeed" if number == 4 else "something else")
                for number, one in enumerate(each.rounds, start=1)
            ),
        )
        if each.question.split == "eval"
        else replace(
            each,
            rounds=tuple(
                replace(one, answer="yes indeed" if number == 2 else "something else")
                for number, one in enumerate(each.rounds, start=1)
            ),
        )
        for each in made
    ]
    found = stop_rag_study(to_trace_set(right_late), ALONE)
    assert (found.best, found.full) == ("fixed-2", "fixed-4")
    worst, best = found.contender("fixed-2"), found.contender("fixed-4")
    assert worst is not None
    assert best is not None
    assert (worst.runs[0].f1, best.runs[0].f1) == (0.0, 1.0)
    assert "fixed-2 had the best F1 on the questions fitted on" in " ".join(found.text().split())


# --- resuming --------------------------------------------------------------------------------
def no_training(*_: Any, **__: Any) -> StopRAGPolicy:
    raise AssertionError("a policy that is there is not trained again")


def test_what_is_fitted_is_found_again(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_rag_fits, "fit_stop_rag", no_training)
    told: list[FitProgress] = []
    again = stop_rag_study(study_traces(), kept.settings, told.append)
    count = 2 * len(kept.variants)
    assert [each.stage for each in told] == ["found"] * count + ["scored"] * count
    assert [each.fit.number for each in told] == [*range(1, count + 1)] * 2
    for before, now in zip(kept.study.contenders, again.contenders, strict=True):
        for one, other in zip(before.runs, now.runs, strict=True):
            assert one.to_json() == other.to_json()
        for fit, found in zip(before.fits, now.fits, strict=True):
            assert replace(found, loaded=False, state_seconds=fit.state_seconds) == fit
    assert any(f"{count} of {count} trainings found in" in note for note in again.notes)


# --- what is told ----------------------------------------------------------------------------
def test_small_samples_are_told(study: StopRAGStudy) -> None:
    said = " ".join(study.notes)
    assert "only 24 questions to score" in said
    assert "only 30 labelled questions to learn on" in said
    widths = [
        contrast.interval.high - contrast.interval.low
        for contrast in study.contrasts
        if contrast.against == "fixed-4"
    ]
    assert f"up to {100 * max(widths):.1f} points of F1 wide" in said


def test_actions_that_could_not_be_read_are_counted(study: StopRAGStudy) -> None:
    assert study.unread is not None
    assert (study.unread.actions, study.unread.questions, study.unread.rounds) == (8, 8, 96)
    assert any("8 actions of the model" in note for note in study.notes)


def test_without_llm_stop_and_gold_passages() -> None:
    found = stop_rag_study(study_traces(asked=False), ALONE)
    assert found.contender(LLM_STOPS) is None
    assert found.unread is None
    assert found.with_gold_passages == 0
    said = " ".join(found.notes)
    assert "no LLM-Stop" in said
    assert "precision and recall are known for no question" in said
    assert "recall" not in found.text().partition("Note")[0]
    full = found.contender("fixed-4")
    assert full is not None
    assert (full.runs[0].precision, full.runs[0].recall) == (None, None)


def test_short_unlabelled_and_silent_questions_are_told() -> None:
    records = study_records()
    last = len(records) - 1
    records[last] = replace(records[last], gold=Gold())
    records[last - 1] = replace(records[last - 1], rounds=records[last - 1].rounds[:2])
    silent = records[last - 2].rounds
    records[last - 2] = replace(
        records[last - 2], rounds=(replace(silent[0], signals={}), *silent[1:])
    )
    found = stop_rag_study(to_trace_set(records), ALONE)
    said = " ".join(found.notes)
    assert (found.questions, found.unlabelled) == (23, 1)
    assert "1 question without gold answers left out" in said
    assert "1 question recorded for fewer than 4 rounds" in said
    assert "1 round without a verdict" in said
    full = found.contender("fixed-4")
    assert full is not None
    assert full.runs[0].beyond_record == 1
    assert full.runs[0].mean_rounds == pytest.approx((22 * 4 + 2) / 23)


def test_a_learned_policy_that_decides_nothing_is_told() -> None:
    """With nothing to see the network's best is the same for every question."""
    found = stop_rag_study(
        study_traces(world="null"),
        replace(ALONE, signals=replace(QUICK, inputs=("overlap",), min_steps=3)),
    )
    signals = found.contender(SIGNALS)
    assert signals is not None
    constant = [run for run in signals.runs if len(set(run.stops.tolist())) == 1]
    told = [note for note in found.notes if "It decides nothing there" in note]
    assert bool(constant) == bool(told)
    for run in constant:
        assert f"seed {run.seed} in round {run.stops[0]}" in told[0]


def test_a_split_that_validates_is_read() -> None:
    records = study_records()
    more = stop_rag_records("single", 12, rounds=ROUNDS, split="validation", seed=5)
    records += [asked_to_stop(each, wants_from=2) for each in more]
    found = stop_rag_study(to_trace_set(records), ALONE)
    assert found.fitting == {"tune": 30, "validation": 12}
    (signals,) = found.of_kind("learned")
    assert [(fit.trajectories, fit.validated) for fit in signals.fits] == [(30, 12)] * 2
    assert not any("no split validation" in note for note in found.notes)


def test_a_pooled_corpus_is_told() -> None:
    pooled = replace(study_traces(), origin=TraceSetOrigin(run={"corpus": "pooled"}))
    assert any("come out too low" in note for note in stop_rag_study(pooled, ALONE).notes)


# --- forms -----------------------------------------------------------------------------------
def test_json_is_strict_and_holds_every_seed(study: StopRAGStudy) -> None:
    document = json.loads(json.dumps(study.to_json(), allow_nan=False))
    assert document["seeds"] == [42, 43]
    assert document["f1_kind"] == "squad"
    assert len(document["policies"]) == len(study.contenders)
    first = document["policies"][0]
    assert [each["seed"] for each in first["runs"]] == [42, 43]
    assert sum(first["runs"][0]["stop_rounds"].values()) == 24
    assert set(first["f1"]) == {"mean", "low", "high"}
    assert {"informative", "truncated", "state_seconds", "steps"} <= set(first["fits"][0])
    assert len(document["contrasts"]) == len(study.contrasts)
    assert set(document["contrasts"][0]["simultaneous"]) == {"low", "high"}


def test_the_tables_keep_within_their_width_and_show_the_figures(study: StopRAGStudy) -> None:
    text = study.text()
    assert max(map(len, text.splitlines())) <= 100
    each = study.contender(DEFAULT)
    assert each is not None
    shown = each.band("f1")
    assert shown is not None
    assert f"{100 * shown.mean:.1f} [{100 * shown.low:.1f}, {100 * shown.high:.1f}]" in text
    found = study.contrast(DEFAULT, SIGNALS)
    assert found is not None
    assert f"{100 * found.interval.estimate:+.1f} [" in text
    flat = " ".join(text.split())
    assert "Does text earn its cost? q-lambda minus signals" in flat
    assert "all at once" in flat
    assert f"cover all of them ({len(study.contrasts)})" in flat


def test_one_seed_shows_no_spread() -> None:
    text = stop_rag_study(study_traces(), replace(ALONE, seeds=1)).text()
    row = next(line for line in text.splitlines() if line.startswith("signals"))
    assert "[" not in row
    assert "1 variant in seed 42" in " ".join(text.split())
    assert "Does text earn its cost" not in text


def test_the_page_escapes_what_it_shows(study: StopRAGStudy) -> None:
    bad = replace(study, source="<script>x</script>.parquet", notes=("<b>note</b>",))
    html = stop_rag_page(bad)
    assert "<script" not in html
    assert "<b>note" not in html
    assert html.count('role="img"') == 2
    assert "F1 against mean rounds" in html
    assert "http" not in html.replace("http-equiv", "")
    assert stop_rag_page(replace(study, notes=())).count("<li>") == 0


# --- refusals --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"variants": ("other",)}, "variants must be of q-lambda, mc, q0, binary, signals"),
        ({"variants": ()}, "found none"),
        ({"variants": ("mc", "mc")}, "each once"),
        ({"seeds": 0}, "must be at least 1"),
        ({"seed": -1}, "first seed at least 0"),
        ({"resamples": 0}, "must be at least 1"),
        ({"split": "tune"}, "split 'tune' is fitted on"),
        ({"split": "validation"}, "split 'validation' is fitted on"),
        ({"signals": StopRAGSettings()}, "signals on signals"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        StopRAGStudySettings(**settings)


def test_records_that_cannot_be_evaluated_are_refused() -> None:
    records = study_records()
    with pytest.raises(DataError, match="no question lies in split 'eval'"):
        stop_rag_study(to_trace_set(records[:30]), ALONE)
    with pytest.raises(DataError, match="no question lies in split 'tune'"):
        stop_rag_study(to_trace_set(records[30:]), ALONE)
    blank = [replace(record, gold=Gold()) for record in records[30:]]
    with pytest.raises(UsageError, match="that was asked for has gold answers"):
        stop_rag_study(to_trace_set([*records[:30], *blank]), ALONE)
    bare = [
        replace(record, rounds=tuple(replace(one, samples=None) for one in record.rounds))
        for record in records
    ]
    with pytest.raises(UsageError, match="holds no column samples"):
        stop_rag_study(to_trace_set(bare), ALONE)

"""Sweeps: folds that stay out, the knee, the gaps, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from tests.builders import logged

from suffice.costs.usage import Charging, CostModel
from suffice.errors import UsageError
from suffice.measures.scores import Outcomes
from suffice.policies.fitting import fit_data, fitted_rule, folds
from suffice.policies.thresholds import (
    ThresholdScore,
    cheapest_within_one_error,
    fill,
    score_stops,
    sweep_rule,
)
from suffice.replay.choose.sweep import SweepResult, find_knee, sweep
from suffice.replay.run.compare import compare
from suffice.replay.run.replay import stop_rounds
from suffice.replay.settings import ComparisonSettings, SweepSettings
from suffice.stats import intervals as sums
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord, Usage
from suffice.trace.rounds.table import TraceSet

MARGIN = "answer_token_margin"
RULE = f"answer_stable and calibrated({MARGIN}) > ?"
GRID = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


def telling_records(count: int = 60, seed: int = 3) -> list[QuestionRecord]:
    generator = np.random.default_rng(seed)
    made = []
    for number in range(count):
        answers = generator.choice(["right", "wrong", "other"], 4, p=[0.5, 0.3, 0.2]).tolist()
        margins = [
            float(generator.normal(2.0 if each == "right" else 1.0, 0.8)) for each in answers
        ]
        split = "eval" if number % 3 == 0 else "tune"
        made.append(
            make_record(f"q{number:03d}", answers, gold=["right"], margins=margins, split=split)
        )
    return made


def telling_traces(count: int = 60, seed: int = 3) -> TraceSet:
    return to_trace_set(telling_records(count, seed))


def run(given: TraceSet, **settings: Any) -> SweepResult:
    return sweep(
        given, SweepSettings(**{"rule": RULE, "thresholds": GRID, "resamples": 50, **settings})
    )


def test_points_are_what_sweeping_and_replaying_give() -> None:
    given = telling_traces()
    result = run(given)
    data = fit_data(given, ["answer_stable", MARGIN])
    tune = sweep_rule(RULE, data, GRID)
    held = given.only_split("eval")
    for point, expected in zip(result.points, tune, strict=True):
        assert (point["tune_f1"], point["tune_rounds"]) == (expected.score, expected.mean_rounds)
        stops = stop_rounds(fitted_rule(fill(RULE, point["threshold"]), data), held)
        assert point["eval_rounds"] == stops.mean()
    assert result.chosen == cheapest_within_one_error(tune).threshold
    assert result.chosen_rule == fill(RULE, result.chosen)
    assert result.questions == (40, 20)


def test_cross_validation_is_a_loop_over_folds() -> None:
    """Every question is scored by what was fitted and chosen without its fold."""
    given = telling_traces()
    result = run(given)
    tune = list(given.only_split("tune").records())
    fold = folds(len(tune), 42)
    scores, choices = {}, []
    for number in sorted(set(fold.tolist())):
        others = to_trace_set([r for r, f in zip(tune, fold, strict=True) if f != number])
        inside = to_trace_set([r for r, f in zip(tune, fold, strict=True) if f == number])
        data = fit_data(others, ["answer_stable", MARGIN])
        choices.append(cheapest_within_one_error(sweep_rule(RULE, data, GRID)).threshold)
        stops = stop_rounds(fitted_rule(fill(RULE, choices[-1]), data), inside)
        for record, stop in zip(inside.records(), stops, strict=True):
            scores[record.question.id] = float(record.rounds[stop - 1].answer == "right")
    assert list(result.fold_choices) == choices
    assert result.held_out_score == pytest.approx(np.mean(list(scores.values())))
    chosen_f1 = next(
        each["tune_f1"] for each in result.points if each["threshold"] == result.chosen
    )
    assert result.selection_gap.estimate == pytest.approx(chosen_f1 - result.held_out_score)
    eval_f1 = next(each["eval_f1"] for each in result.points if each["threshold"] == result.chosen)
    assert result.split_gap.estimate == pytest.approx(eval_f1 - result.held_out_score)


def relabelled(made: list[QuestionRecord], ids: set[str]) -> TraceSet:
    return to_trace_set(
        [
            dataclasses.replace(each, gold=dataclasses.replace(each.gold, answers=("wrong",)))
            if each.question.id in ids
            else each
            for each in made
        ]
    )


def test_a_folds_labels_do_not_reach_its_own_choice() -> None:
    """With a fold's labels changed its own choice stays; of the others, some change."""
    moved = 0
    for seed in range(2):
        made = telling_records(count=45, seed=seed)
        before = run(to_trace_set(made))
        tune = [each for each in made if each.question.split == "tune"]
        fold = folds(len(tune), 42)
        for number in range(5):
            ids = {each.question.id for each, f in zip(tune, fold, strict=True) if f == number}
            after = run(relabelled(made, ids))
            assert after.fold_choices[number] == before.fold_choices[number]
            moved += after.fold_choices != before.fold_choices
    assert moved > 1  # the labels do matter to the choices that may see them


def test_default_grids() -> None:
    assert run(telling_traces(), thresholds=None).points[0]["threshold"] == 0.2
    assert len(run(telling_traces(), thresholds=None).points) == 16
    given = telling_traces()
    plain = run(given, rule=f"(answer_stable) and ({MARGIN} > ?)", thresholds=None)
    values = fit_data(given, [MARGIN]).table.signal(MARGIN)
    quantiles = np.unique(np.quantile(values, np.linspace(0, 1, 41)))[1:-1]
    for point, quantile in zip(plain.points, quantiles, strict=True):
        np.testing.assert_array_equal(values > point["threshold"], values > quantile)
        assert len(str(point["threshold"])) < len(str(quantile))


# --- the knee ------------------------------------------------------------------------------------
def curve(f1_by_round: list[float], questions: int = 200) -> tuple[list[ThresholdScore], Outcomes]:
    """Fixed budgets over questions whose F1 at round t is a share of right answers."""
    rounds = len(f1_by_round)
    f1 = np.stack(
        [(np.arange(questions) < share * questions).astype(float) for share in f1_by_round], axis=1
    )
    scored = Outcomes(em=f1, f1=f1, acc=f1, labelled=np.ones(questions, bool))
    return [
        score_stops(float(k), np.full(questions, k, np.int16), scored) for k in range(1, rounds + 1)
    ], scored


def test_the_knee_of_a_bent_curve() -> None:
    """0.2, 0.6, 0.65, 0.7, 0.75: the second is farthest above the line from first to last."""
    scores, scored = curve([0.2, 0.6, 0.65, 0.7, 0.75])
    knee = find_knee(scores, scored, SweepSettings(rule=RULE, resamples=200))
    assert knee.threshold == 2.0
    assert knee.share > 0.95
    assert knee.warning is None


def test_curves_of_nothing_but_noise_seldom_have_a_knee() -> None:
    """Sixteen budgets of the same quality, 40 times."""
    clear = 0
    for seed in range(40):
        f1 = (np.random.default_rng(seed).random((80, 16)) < 0.5).astype(float)
        scored = Outcomes(em=f1, f1=f1, acc=f1, labelled=np.ones(80, bool))
        scores = [score_stops(float(k), np.full(80, k, np.int16), scored) for k in range(1, 17)]
        knee = find_knee(scores, scored, SweepSettings(rule=RULE, resamples=100))
        clear += knee.warning is None
        if knee.warning is not None:
            assert knee.share < 0.8
            assert "knee" in knee.warning
    assert clear <= 4


# --- refusals and notes --------------------------------------------------------------------------


def test_one_labelled_question_is_too_few() -> None:
    made = telling_records()
    first = next(each.question.id for each in made if each.question.split == "tune")
    few = [
        each
        if each.question.split == "eval" or each.question.id == first
        else dataclasses.replace(each, gold=dataclasses.replace(each.gold, answers=()))
        for each in made
    ]
    with pytest.raises(UsageError, match="at least 2 labelled"):
        run(to_trace_set(few))


def with_tokens(made: list[QuestionRecord], tokens: tuple[int, ...]) -> TraceSet:
    """Rounds whose prompts have these tokens, nothing of them cached."""
    return to_trace_set(
        [
            dataclasses.replace(
                record,
                rounds=tuple(
                    dataclasses.replace(
                        recorded, usage=Usage(llm_calls=1, prompt_tokens=count, cached_tokens=0)
                    )
                    for recorded, count in zip(record.rounds, tokens, strict=True)
                ),
            )
            for record in made
        ]
    )


@pytest.mark.parametrize("charge", ["as-run", "published"])
@pytest.mark.parametrize("rule", [RULE, "answer_similarity_f1 > ?"])
def test_costs_are_those_of_what_the_rule_reads(rule: str, charge: Charging) -> None:
    tokens = (100, 150, 210, 300)
    given = with_tokens(telling_records(), tokens)
    result = run(given, rule=rule, cost="prompt_tokens", cost_model=CostModel(charge=charge))
    assert (result.to_json()["cost"], result.to_json()["charge"]) == ("prompt_tokens", charge)
    data = fit_data(given, ["answer_stable", MARGIN, "answer_similarity_f1"])
    swept = sweep_rule(rule, data, [point["threshold"] for point in result.points])
    for point, score in zip(result.points, swept, strict=True):
        paid = [sum(tokens[:stop]) for stop in score.stops]  # both read answers
        assert point["tune_cost"] == pytest.approx(np.mean(paid))
        assert point["tune_rounds"] == score.mean_rounds


def test_a_rule_that_reads_no_answers_pays_for_one() -> None:
    tokens = (100, 150, 210, 300)
    given = with_tokens(telling_records(), tokens)
    charges: dict[Charging, int] = {"as-run": 210, "published": 100 + 150 + 210}
    for charge, paid in charges.items():
        model = CostModel(charge=charge)
        result = run(
            given, rule="round > ?", thresholds=(2.0,), cost="prompt_tokens", cost_model=model
        )
        assert (result.points[0]["tune_cost"], result.points[0]["eval_cost"]) == (paid, paid)


def live_log(count: int = 120) -> list[QuestionRecord]:
    """Questions of a live loop whose policy says stop after round 1 or 2, a quarter of them explored."""
    generator = np.random.default_rng(5)
    made = []
    for number in range(count):
        scores, stop = generator.integers(0, 2, 3).tolist(), int(generator.integers(1, 3))
        ran = generator.random() < 0.25
        name = f"q{number:03d}"
        record = (
            logged(name, scores, stop) if ran else logged(name, scores[:stop], stop, end="policy")
        )
        question = dataclasses.replace(record.question, split="tune" if number % 2 else "eval")
        made.append(dataclasses.replace(record, question=question))
    return made


def test_a_live_log_is_scored_as_replay_does() -> None:
    log = live_log()
    found = sweep(to_trace_set(log), SweepSettings(rule="round >= ?", thresholds=(2.0, 3.0)))
    asked = ComparisonSettings(policies=("fixed-2", "fixed-3"), resamples=10)
    replayed = compare(to_trace_set(log), asked).result.policies
    assert [(one["eval_f1"], one["eval_rounds"]) for one in found.points] == [
        (policy.f1, policy.mean_rounds) for policy in replayed
    ]
    assert any(note.startswith("CUT RECORDS") for note in found.notes)
    explored = sum(one.stopped_by is None for one in log if one.question.split == "tune")
    assert found.questions[0] == explored  # the others were cut, none was never stopped


def test_another_answer_is_scored_as_replay_does() -> None:
    given, answer = telling_traces(), f"highest:{MARGIN}"
    found = run(given, rule=f"{MARGIN} > ?", thresholds=(0.5, 1.5), answer=answer)
    rules = tuple(f"{MARGIN} > {point['threshold']}" for point in found.points)
    asked = ComparisonSettings(rules=rules, answer=answer, split="eval", resamples=2)
    replayed = compare(given, asked).result.policies[: len(rules)]
    assert [point["eval_f1"] for point in found.points] == [policy.f1 for policy in replayed]
    assert [point["eval_rounds"] for point in found.points] == [one.mean_rounds for one in replayed]
    plain = run(given, rule=f"{MARGIN} > ?", thresholds=(0.5, 1.5))
    assert plain.points[1]["tune_f1"] != found.points[1]["tune_f1"]
    assert plain.held_out_score != found.held_out_score
    assert found.to_json()["answer"] == answer


def test_what_nothing_stands_for_cannot_be_swept() -> None:
    log = [
        dataclasses.replace(record, stopped_by=record.stopped_by and "gold")
        for record in live_log()
    ]
    with pytest.raises(UsageError, match="explore"):
        sweep(to_trace_set(log), SweepSettings(rule="round >= ?", thresholds=(2.0, 3.0)))


def test_the_knee_of_a_large_record_is_drawn_from_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    given = telling_traces(count=240)
    whole = run(given, resamples=400).to_json()
    monkeypatch.setattr(sums, "SUMS_ABOVE", 50)
    summed = run(given, resamples=400).to_json()
    knees = [one.pop("knee") for one in (summed, whole)]
    gaps = [one.pop("cross_validation") for one in (summed, whole)]
    assert summed == whole
    assert knees[0]["threshold"] == knees[1]["threshold"]
    assert knees[0]["share_of_resamples"] == pytest.approx(knees[1]["share_of_resamples"], abs=0.1)
    for gap in ("selection_gap", "split_gap"):
        one, other = (found[gap] for found in gaps)
        assert one["estimate"] == other["estimate"]
        ends, near = (other["low"], other["high"]), 0.15 * (other["high"] - other["low"])
        assert (one["low"], one["high"]) == pytest.approx(ends, abs=near)

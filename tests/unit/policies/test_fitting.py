"""Fitting: fallbacks, base rates, out-of-fold values, refusals."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any, get_args

import numpy as np
import pytest
from tests.builders import drawn_records
from tests.cut_population import run_live
from tests.maps import at

from suffice.errors import SufficeWarning, UsageError
from suffice.evaluation.replay.runner import stop_rounds
from suffice.policies.defaults import CalibratorKind
from suffice.policies.fitting import (
    fit_calibrator,
    fit_data,
    fit_notes,
    fit_rule,
    fitted_rule,
    folds,
    out_of_fold,
)
from suffice.policies.policy_file import policy_document
from suffice.policies.registry import fit_method
from suffice.stats.maps import fit_isotonic, fit_per_round, fit_platt, fit_shrunken, fit_venn_abers
from suffice.testing.traces import answer_tokens, make_record, sampled_records, to_trace_set
from suffice.trace.rounds.records import QuestionRecord

MARGIN = "answer_token_margin"


def tune_records(count: int, *, seed: int = 1) -> list[QuestionRecord]:
    return drawn_records(count, ["right", "wrong"], seed=seed, widest=3.0, split=lambda _: "tune")


def test_an_unlabelled_split_is_refused() -> None:
    unlabelled = [make_record("a", ["x"], margins=[1.0], split="tune")]
    labelled = make_record("b", ["x"], gold=["x"], margins=[1.0], split="eval")
    with pytest.raises(UsageError, match=r"no question of split 'tune' .* has gold answers"):
        fit_data(to_trace_set([*unlabelled, labelled]), [MARGIN])
    with pytest.raises(UsageError, match="gold answers"):
        fit_method("tasr", to_trace_set(unlabelled), "corrected", "tune")


def test_base_rates_average_labelled_answers_of_each_round() -> None:
    made = [
        make_record("a", ["x", "x", "x"], gold=["x"], split="tune"),
        make_record("b", ["y", "x"], gold=["x"], split="tune"),
        make_record("c", ["x", "x", "x"], split="tune"),
    ]
    assert fit_data(to_trace_set(made), []).base_rates == (0.5, 1.0, 1.0)
    longer_unlabelled = [made[1], made[2]]
    rates = fit_data(to_trace_set(longer_unlabelled), []).base_rates
    assert rates[:2] == (0.0, 1.0)
    assert math.isnan(rates[2])


def test_a_rule_is_fitted_with_what_it_needs_and_no_more() -> None:
    data = fit_data(to_trace_set(tune_records(9)), [MARGIN])
    plain = fitted_rule("answer_stable", data)
    assert not plain.calibrators
    assert not plain.base_rates
    assert not plain.fitted_on
    calibrated = fitted_rule(f"calibrated({MARGIN}) > 0.5", data)
    assert set(calibrated.calibrators) == {MARGIN}
    assert not calibrated.base_rates
    both = fitted_rule(f"calibrated({MARGIN}) > base_rate()", data)
    assert both.base_rates == data.base_rates
    assert both.fitted_on["split"] == "tune"
    with pytest.raises(UsageError, match="not fitted"):
        fitted_rule("base_rate() > 0.1", None)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 23])
def test_folds_are_even_and_seeded(count: int) -> None:
    numbers = folds(count)
    assert len(numbers) == count
    sizes = np.bincount(numbers)
    assert len(sizes) == min(5, count)
    assert sizes.max() - sizes.min() <= 1
    np.testing.assert_array_equal(numbers, folds(count))
    assert count < 3 or not np.array_equal(numbers, np.arange(count) % 5)


def test_a_question_never_sees_its_own_fold() -> None:
    """Changing a question's outcome changes no value in its fold."""
    made = tune_records(20)
    before = out_of_fold(fit_data(to_trace_set(made), [MARGIN]), MARGIN)
    numbers = folds(20)
    for question in range(0, 20, 3):
        flipped = dataclasses.replace(
            made[question], gold=dataclasses.replace(made[question].gold, answers=("wrong",))
        )
        changed = [*made[:question], flipped, *made[question + 1 :]]
        after = out_of_fold(fit_data(to_trace_set(changed), [MARGIN]), MARGIN)
        own_fold = numbers == numbers[question]
        np.testing.assert_array_equal(after[own_fold], before[own_fold])
        assert not np.array_equal(after[~own_fold], before[~own_fold])


# --- kinds of calibrator ------------------------------------------------------------------------
KINDS: tuple[CalibratorKind, ...] = get_args(CalibratorKind)


def test_each_kind_fits_what_its_name_says() -> None:
    data = fit_data(to_trace_set(tune_records(60)), [MARGIN])
    values, em = data.table.signal(MARGIN), data.outcomes.em
    found = {kind: fit_calibrator(data, MARGIN, kind=kind, undefined=0.5) for kind in KINDS}
    assert found["isotonic"] == fit_calibrator(data, MARGIN, undefined=0.5)
    assert found["isotonic"].maps == fit_per_round(values, em, undefined=0.5)
    assert found["isotonic-global"].beyond == fit_isotonic(
        values.ravel(), em.ravel(), undefined=0.5
    )
    assert found["isotonic-global"].maps == ()
    assert found["shrunken"] == fit_shrunken(values, em, undefined=0.5)
    for kind, fit in (("platt", fit_platt), ("venn-abers", fit_venn_abers)):
        expected = tuple(fit(values[:, t], em[:, t], undefined=0.5) for t in range(3))
        assert found[kind].maps == expected  # type: ignore[index]
    # past the last fitted round
    beyond = {kind: at(calibrator, 4, 1.0) for kind, calibrator in found.items()}
    assert beyond["isotonic"] == beyond["platt"] == beyond["venn-abers"] == 0.5
    assert beyond["isotonic-global"] == beyond["shrunken"]
    assert beyond["shrunken"] == at(found["isotonic-global"], 1, 1.0)


def test_a_rule_is_fitted_with_the_kind_asked_for_and_says_so() -> None:
    data = fit_data(to_trace_set(tune_records(30)), [MARGIN])
    rule = f"calibrated({MARGIN}) > 0.5"
    platt = fitted_rule(rule, data, calibrator="platt")
    assert platt.calibrators[MARGIN] == fit_calibrator(data, MARGIN, kind="platt")
    assert platt.fitted_on["calibrator"] == "platt"
    assert "calibrator" not in fitted_rule(rule, data).fitted_on
    assert "calibrator" not in fitted_rule("base_rate() > 0.1", data, calibrator="platt").fitted_on


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 4])
def test_fewer_questions_than_folds_warn_and_work(kind: CalibratorKind, count: int) -> None:
    data = fit_data(to_trace_set(tune_records(count)), [MARGIN])
    with pytest.warns(SufficeWarning, match=f"calibrated.{MARGIN}. "):
        fit_calibrator(data, MARGIN, kind=kind)
    with pytest.warns(SufficeWarning, match=rf"only {count} .* fewer than the 5 folds"):
        assert np.isfinite(out_of_fold(data, MARGIN, kind=kind)).all()


# --- records that were cut -----------------------------------------------------------------------
EVERY_SECOND = [
    2 if number % 2 else 3 for number in range(200)
]  # rounds their policy stops at, of 3


def test_questions_that_the_policy_cut_are_not_fitted_on() -> None:
    records = tune_records(200)
    log = to_trace_set(run_live(records, EVERY_SECOND, 0.25))
    data = fit_data(log, [MARGIN])
    cut = data.provenance["cut"]
    assert (cut["questions"], cut["cut"], cut["explored"]) == (200, 75, 25)
    never = 100 - cut["not_drawn"]  # about a quarter of those never stopped, as of the others
    assert 10 < never < 45
    assert cut["read"] == 25 + never == data.provenance["labelled"] == data.outcomes.labelled.sum()
    read = {
        name for name, known in zip(log.question_ids, data.outcomes.labelled, strict=True) if known
    }
    alone = fit_data(
        to_trace_set([record for record in records if record.question.id in read]), [MARGIN]
    )
    assert fit_calibrator(data, MARGIN) == fit_calibrator(alone, MARGIN)
    assert data.base_rates == alone.base_rates


@pytest.mark.parametrize(
    "method", ["micp", "gate", "ab-rag", "tasr", pytest.param("stop-rag", marks=pytest.mark.slow)]
)
def test_every_method_says_what_was_cut(method: str) -> None:
    whole = sampled_records(240, splits=("tune",))
    stops = [2 if number % 4 else 3 for number in range(240)]
    made = [
        dataclasses.replace(
            record,
            rounds=tuple(
                dataclasses.replace(
                    one,
                    tokens=answer_tokens(one.answer or "", 1.0 + number),
                    signals={"rerank_variance": number % 2},
                )
                for number, one in enumerate(record.rounds)
            ),
        )
        for record in whole
    ]
    options: dict[str, Any] = {
        "stop-rag": {"epochs": 1, "features": "signals", "min_steps": 1}
    }.get(method, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SufficeWarning)
        policy = fit_method(method, to_trace_set(run_live(made, stops, 0.5)), **options)
    (note,) = fit_notes(policy.facts.fitted_on)
    read = policy.facts.fitted_on["cut"]["read"]
    assert note.startswith(f"fitted on {read} of 240 questions: the 90 that the policy")
    assert policy_document(policy)["fitted_on"]["cut"]["cut"] == 90


def test_a_rule_over_what_is_made_of_a_signal_of_ones_own() -> None:
    record = make_record("a", list("wxyz"), signals=[{"error": e} for e in (3.0, 1.0, 1.0, 0.0)])
    policy = fit_rule("since_lowest(error) >= 1 or gain(2 - overlap) > 9", to_trace_set([record]))
    assert policy.own_signals == ("error",)
    assert stop_rounds(policy, to_trace_set([record])).tolist() == [3]

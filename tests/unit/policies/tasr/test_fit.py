"""TASR: its two presets, the choice of the floor, tiny fitting splits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from suffice.errors import SufficeWarning
from suffice.measures.measures import Measures
from suffice.policies.defaults import FLOORS, MARGIN, TEMPLATE
from suffice.policies.fitting import FitData, fit_calibrator, fit_data, right_abstentions
from suffice.policies.registry import fit_method
from suffice.policies.rules.policy import RulePolicy
from suffice.policies.tasr import SIGNALS_READ
from suffice.policies.thresholds import ThresholdScore, cheapest_within_one_error, sweep_rule
from suffice.replay.run.replay import stop_rounds
from suffice.signals.abstained import ABSTENTION_PHRASES
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord, Token
from suffice.trace.rounds.table import TraceSet


def tune_records(count: int, *, seed: int = 0, gold: str = "right") -> list[QuestionRecord]:
    """Answers whose margin tells how likely they are right."""
    generator = np.random.default_rng(seed)
    records = []
    for number in range(count):
        margins = generator.uniform(0, 4, 4)
        answers = [
            gold if generator.random() < margin / 4 else f"wrong {generator.integers(2)}"
            for margin in margins
        ]
        records.append(
            make_record(
                f"q{number:03d}", answers, gold=[gold], margins=margins.tolist(), split="tune"
            )
        )
    return records


def traces_of(*records: QuestionRecord, count: int = 40) -> TraceSet:
    return to_trace_set([*tune_records(count), *records])


def fitted(preset: str, traces: TraceSet) -> RulePolicy:
    policy = fit_method("tasr", traces, preset, "tune")  # type: ignore[arg-type]
    assert isinstance(policy, RulePolicy)
    assert (policy.kind, policy.preset) == ("tasr", preset)
    return policy


def stops_at(policy: RulePolicy, record: QuestionRecord) -> int:
    return int(stop_rounds(policy, to_trace_set([record]))[0])


def test_published_is_the_rule_of_the_paper() -> None:
    policy = fitted("published", traces_of())
    assert policy.rule == "answer_stable_published and calibrated(answer_token_margin) > 0.25"
    calibrator = policy.calibrators["answer_token_margin"]
    assert len(calibrator.maps) == 4
    assert calibrator.absent == 0.5
    assert all(getattr(each, "undefined", None) == 0.5 for each in calibrator.maps)
    assert policy.abstention is None


def test_published_takes_an_undefined_margin_for_a_half_so_it_passes() -> None:
    record = make_record("x", ["Oslo", "Oslo", "Oslo", "Oslo"])
    half_known = dataclasses.replace(
        record, rounds=(*record.rounds[:3], make_record("y", ["Oslo"], margins=[1.0]).rounds[0])
    )
    assert stops_at(fitted("published", traces_of()), half_known) == 2


def test_corrected_never_fires_on_an_undefined_margin() -> None:
    record = make_record("x", ["Oslo", "Oslo", "Oslo", "Oslo"])
    known_last = dataclasses.replace(
        record,
        rounds=(*record.rounds[:2], *make_record("y", ["Oslo"] * 2, margins=[4.0, 4.0]).rounds),
    )
    policy = fitted("corrected", traces_of())
    assert stops_at(policy, known_last) == 3


def test_corrected_never_fires_on_a_stable_abstention() -> None:
    for abstention in ("unknown", "Not mentioned.", ""):
        record = make_record("x", [abstention] * 2 + ["Oslo"] * 2, margins=[4.0] * 4)
        traces = traces_of()
        assert stops_at(fitted("corrected", traces), record) == 4
        assert stops_at(fitted("published", traces), record) == 2


def test_published_stability_is_the_published_normaliser() -> None:
    """Articles before punctuation: "A-ha" and "ha" are the same answer there only."""
    record = make_record("x", ["A-ha", "ha", "ha", "ha"], margins=[4.0] * 4)
    traces = traces_of()
    assert stops_at(fitted("published", traces), record) == 2
    assert stops_at(fitted("corrected", traces), record) == 3


def test_none_is_an_answer_where_the_tune_gold_says_so() -> None:
    usual = fitted("corrected", traces_of())
    assert usual.abstention is None
    gold_none = make_record("z", ["none"] * 4, gold=["None."], margins=[1.0] * 4, split="tune")
    policy = fitted("corrected", traces_of(gold_none))
    assert policy.abstention is not None
    assert set(policy.abstention) == set(ABSTENTION_PHRASES) - {"none"}
    record = make_record("x", ["none", "none", "x", "y"], margins=[4.0] * 4)
    assert stops_at(usual, record) == 4
    assert stops_at(policy, record) == 2
    elsewhere = make_record("z", ["none"], gold=["none"], margins=[1.0], split="eval")
    assert fitted("corrected", traces_of(elsewhere)).abstention is None


def sweep(data: FitData) -> tuple[ThresholdScore, ...]:
    return sweep_rule(TEMPLATE, data, FLOORS)


def test_the_floor_is_swept_with_the_abstentions_of_the_policy() -> None:
    """The same questions with gold answer "none" instead of "right" score the same."""
    named, usual = (to_trace_set(tune_records(40, gold=gold)) for gold in ("none", "right"))
    phrases = right_abstentions(Measures.of(named))
    swept = sweep(fit_data(named, SIGNALS_READ["corrected"], abstention=phrases))
    assert swept == sweep(fit_data(usual, SIGNALS_READ["corrected"]))
    assert swept != sweep(fit_data(named, SIGNALS_READ["corrected"]))


def test_corrected_takes_its_floor_from_the_sweep() -> None:
    traces = traces_of()
    policy = fitted("corrected", traces)
    scores = sweep(fit_data(traces, SIGNALS_READ["corrected"]))
    assert tuple(each.threshold for each in scores) == FLOORS
    assert tuple(n / 100 for n in range(20, 36)) == FLOORS
    floor = cheapest_within_one_error(scores).threshold
    assert policy.rule.endswith(f"> {floor}")
    assert policy.fitted_on["floor"] == floor
    assert policy.fitted_on["questions"] == 40


@pytest.mark.filterwarnings("ignore::suffice.errors.SufficeWarning")
@pytest.mark.filterwarnings("ignore:only .* labelled:suffice.errors.SufficeWarning")
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("preset", ["published", "corrected"])
def test_few_tune_questions_are_enough(count: int, preset: str) -> None:
    traces = to_trace_set(tune_records(count))
    policy = fitted(preset, traces)
    assert policy.fitted_on["labelled"] == count
    stops = stop_rounds(policy, traces)
    assert ((stops >= 2) & (stops <= 4)).all()


def test_unlabelled_tune_questions_are_left_out_of_every_mean() -> None:
    labelled = tune_records(12)
    unlabelled = [
        dataclasses.replace(
            each,
            question=dataclasses.replace(each.question, id=f"u{number}"),
            gold=type(each.gold)(),
        )
        for number, each in enumerate(tune_records(5, seed=9))
    ]
    mixed = fit_data(to_trace_set([*labelled, *unlabelled]), SIGNALS_READ["published"])
    alone = fit_data(to_trace_set(labelled), SIGNALS_READ["published"])
    assert mixed.provenance["questions"] == 17
    assert mixed.provenance["labelled"] == 12
    assert fit_calibrator(mixed, MARGIN) == fit_calibrator(alone, MARGIN)
    assert mixed.base_rates == alone.base_rates
    assert all(
        np.isfinite(each.score)
        for each in sweep(
            fit_data(to_trace_set([*labelled, *unlabelled]), SIGNALS_READ["corrected"])
        )
    )


# --- a record that does not give what the rule reads ------------------------------------------------
def without_marker(record: QuestionRecord) -> QuestionRecord:
    """As a free reply leaves it: the answer in a sentence."""
    rounds = tuple(
        dataclasses.replace(made, tokens=made.tokens and (Token("It is", 0.0), *made.tokens[2:]))
        for made in record.rounds
    )
    return dataclasses.replace(record, rounds=rounds)


def test_a_rule_that_can_hold_in_next_to_no_round_is_warned_of() -> None:
    halves = [
        [without_marker(record) for record in tune_records(24)],
        [
            dataclasses.replace(
                record,
                rounds=tuple(
                    dataclasses.replace(made, passages=record.rounds[0].passages)
                    for made in record.rounds
                ),
            )
            for record in tune_records(49)[24:]
        ],
    ]
    some = to_trace_set([*halves[0], *halves[1], *tune_records(50)[49:]])
    with pytest.warns(SufficeWarning, match="can hold in 2.0% of them only") as told:
        fitted("corrected", some)
    assert "reads 'answer_stable', which is undefined in 50.0%" in str(told[0].message)


@pytest.mark.filterwarnings("error::suffice.errors.SufficeWarning")
@pytest.mark.parametrize("preset", ["published", "corrected"])
def test_round_1_and_a_few_gaps_are_not_warned_of(preset: str) -> None:
    fitted(preset, traces_of(*(without_marker(record) for record in tune_records(60)[40:])))
    two = [dataclasses.replace(record, rounds=record.rounds[:2]) for record in tune_records(20)]
    fitted(preset, to_trace_set(two))

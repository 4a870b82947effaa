"""TASR: its presets, the choice of the floor, tiny splits; its controls against a loop over thresholds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.builders import with_rounds

from suffice.errors import SufficeWarning, UsageError
from suffice.evaluation.replay.runner import stop_rounds
from suffice.policies.defaults import MARGIN
from suffice.policies.fitting import FitData, fit_data, out_of_fold
from suffice.policies.method import Preset
from suffice.policies.registry import fit_method
from suffice.policies.rules.policy import Rule
from suffice.signals.abstained import ABSTENTION_PHRASES
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Passage, QuestionRecord, Token
from suffice.trace.rounds.trace_set import TraceSet


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


def fitted(preset: str, traces: TraceSet) -> Rule:
    policy = fit_method("tasr", traces, preset, "tune")  # type: ignore[arg-type]
    assert isinstance(policy, Rule)
    assert (policy.kind, policy.preset) == ("tasr", preset)
    return policy


def stops_at(policy: Rule, record: QuestionRecord) -> int:
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


# --- a record that does not give what the rule reads ------------------------------------------------
def without_marker(record: QuestionRecord) -> QuestionRecord:
    """As a free reply leaves it: the answer in a sentence."""
    return with_rounds(
        record, tokens=lambda made: made.tokens and (Token("It is", 0.0), *made.tokens[2:])
    )


def test_a_rule_that_can_hold_in_next_to_no_round_is_warned_of() -> None:
    halves = [
        [without_marker(record) for record in tune_records(24)],
        [
            with_rounds(record, passages=record.rounds[0].passages)
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


# --- controls -------------------------------------------------------------------------------------
CONTROLS = ("early-stop", "margin-alone", "overlap-alone", "stable-base-rate")
GRID = [round(0.20 + 0.01 * step, 2) for step in range(16)]


def controlled_traces(seed: int = 1) -> TraceSet:
    generator = np.random.default_rng(seed)
    words = ["north", "south", "river", "bridge", "tower", "lake", "road", "hill"]
    found = []
    for number in range(50):
        right = generator.random(5) < np.linspace(0.3, 0.7, 5)
        answers = [
            str(generator.choice(["right"] if each else ["x", "y", "unknown"])) for each in right
        ]
        margins = [float(generator.normal(2.0 if each else 1.0, 0.9)) for each in right]
        texts = [" ".join(generator.choice(words, int(generator.integers(2, 6)))) for _ in range(5)]
        found.append(
            make_record(
                f"q{number:03d}",
                answers,
                gold=["right"],
                margins=margins,
                passages=[[Passage(id=f"{number}-{t}", text=text)] for t, text in enumerate(texts)],
                split="tune" if number % 5 else "eval",
            )
        )
    return to_trace_set(found)


class Loop:
    """Tune questions, one at a time; calibrated margins are out of fold."""

    def __init__(self, given: TraceSet) -> None:
        names = ["answer_stable", "answer_stable_published", "abstained", MARGIN, "overlap"]
        self.data: FitData = fit_data(given, names)
        self.values = {name: self.data.table.signal(name) for name in names}
        self.values["calibrated"] = out_of_fold(self.data, MARGIN)

    def stops(self, fires: Callable[[dict[str, float], int], bool]) -> list[int]:
        found = []
        for question in range(self.data.table.n_questions):
            last = int(self.data.table.exists[question].sum())
            stop = last
            for t in range(last):
                row = {name: float(each[question, t]) for name, each in self.values.items()}
                if fires(row, t + 1):
                    stop = t + 1
                    break
            found.append(stop)
        return found

    def scored(self, fires: Callable[[dict[str, float], int], bool]) -> tuple[float, float, float]:
        stops = self.stops(fires)
        f1 = [float(self.data.outcomes.f1[q, s - 1]) for q, s in enumerate(stops)]
        mean = math.fsum(f1) / len(f1)
        spread = math.sqrt(math.fsum((each - mean) ** 2 for each in f1) / (len(f1) - 1))
        return mean, spread / math.sqrt(len(f1)), sum(stops) / len(stops)

    def choose(
        self,
        grid: list[float],
        rule: Callable[[float], Callable[[dict[str, float], int], bool]],
        preset: str,
    ) -> float:
        rows = [(threshold, *self.scored(rule(threshold))) for threshold in grid]
        if preset == "published":
            best = None
            for threshold, f1, _, rounds in rows:
                if rounds <= 3.0 and (best is None or f1 > best[0]):
                    best = (f1, threshold)
            assert best is not None
            return best[1]
        top = max(rows, key=lambda each: each[1])
        close = [each for each in rows if each[1] >= top[1] - top[2]]
        return min(close, key=lambda each: (each[3], -each[1], each[0]))[0]


PRESETS: list[Preset] = ["published", "corrected"]
SEEDS = [1, 2]


def rule_of(name: str, given: TraceSet, preset: Preset) -> str:
    policy = fit_method(name, given, preset, "tune")
    assert isinstance(policy, Rule)
    return policy.rule


@pytest.mark.parametrize("seed", SEEDS)
def test_margin_alone(seed: int) -> None:
    given = controlled_traces(seed)
    assert rule_of("margin-alone", given, "published") == f"calibrated({MARGIN}) > 0.25"
    loop = Loop(given)
    chosen = loop.choose(GRID, lambda c: lambda row, _: row["calibrated"] > c, "corrected")
    assert rule_of("margin-alone", given, "corrected") == f"calibrated({MARGIN}) > {chosen}"


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("seed", SEEDS)
def test_overlap_alone(seed: int, preset: Preset) -> None:
    """Forty evenly spaced from least to greatest, of which the greatest is passed by nothing."""
    given = controlled_traces(seed)
    loop = Loop(given)
    finite = loop.values["overlap"][np.isfinite(loop.values["overlap"])]
    low, high = float(finite.min()), float(finite.max())
    grid = [low + number * (high - low) / 39 for number in range(39)]
    chosen = loop.choose(grid, lambda c: lambda row, _: row["overlap"] > c, preset)
    rule = rule_of("overlap-alone", given, preset)
    assert rule.startswith("overlap > ")
    written = rule.removeprefix("overlap > ")
    assert len(written) <= len(repr(chosen))
    values = loop.values["overlap"]
    np.testing.assert_array_equal(values > float(written), values > chosen)


def test_stable_base_rate() -> None:
    given = controlled_traces()
    stable = {"published": "answer_stable_published", "corrected": "answer_stable"}
    rates = fit_data(given, [MARGIN]).base_rates
    for preset in PRESETS:
        policy = fit_method("stable-base-rate", given, preset, "tune")
        assert isinstance(policy, Rule)
        assert policy.rule == f"{stable[preset]} and base_rate() > 0.25"
        assert policy.base_rates == rates
        assert 0.0 < rates[0] < rates[-1] < 1.0


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("seed", SEEDS)
def test_early_stop(seed: int, preset: Preset) -> None:
    """TASR's own floor first, then the round-1 threshold around it."""
    given = controlled_traces(seed)
    loop = Loop(given)
    stable = "answer_stable_published" if preset == "published" else "answer_stable"
    floor = 0.25

    def base(row: dict[str, float], c: float) -> bool:
        stops = row[stable] == 1.0 and row["calibrated"] > c
        return stops and (preset == "published" or row["abstained"] != 1.0)

    if preset == "corrected":
        floor = loop.choose(GRID, lambda c: lambda row, _: base(row, c), preset)
    grid = [round(0.05 * step, 2) for step in range(1, 20)]
    chosen = loop.choose(
        grid,
        lambda c: lambda row, t: (t == 1 and row["calibrated"] > c) or base(row, floor),
        preset,
    )
    words = f"{stable} and " + ("" if preset == "published" else "not abstained and ")
    assert rule_of("early-stop", given, preset) == (
        f"(round == 1 and calibrated({MARGIN}) > {chosen}) or ({words}calibrated({MARGIN}) > {floor})"
    )
    if preset == "corrected":
        tasr = fit_method("tasr", given, "corrected", "tune")
        assert isinstance(tasr, Rule)
        assert f"({tasr.rule})" in rule_of("early-stop", given, preset)


# --- which F1 ------------------------------------------------------------------------------------
CHOOSES = {
    ("margin-alone", "corrected"),
    ("overlap-alone", "published"),
    ("overlap-alone", "corrected"),
    ("early-stop", "published"),
    ("early-stop", "corrected"),
    ("tasr", "corrected"),
}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", [*CONTROLS, "tasr"])
def test_the_f1_chosen_by_is_stated_or_refused(name: str, preset: Preset) -> None:
    given = controlled_traces(1)
    if (name, preset) not in CHOOSES:
        with pytest.raises(UsageError, match="leave f1_kind out"):
            fit_method(name, given, preset, "tune", f1_kind="squad")
        assert "f1_kind" not in fit_method(name, given, preset, "tune").facts.fitted_on
        return
    for kind in ("hotpotqa", "squad"):
        policy = fit_method(name, given, preset, "tune", f1_kind=kind)
        assert policy.facts.fitted_on["f1_kind"] == kind
    assert fit_method(name, given, preset, "tune").facts.fitted_on["f1_kind"] == "hotpotqa"

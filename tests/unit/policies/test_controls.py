"""Controls: each one's rule and threshold against a loop over thresholds, questions and rounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given as each_of
from hypothesis import settings
from hypothesis import strategies as st
from tests.properties import examples

from suffice.errors import UsageError
from suffice.policies.fitting import FitData, fit_data, out_of_fold
from suffice.policies.method import Preset
from suffice.policies.registry import fit_method, method_and_preset, method_names
from suffice.policies.rules.policy import RulePolicy
from suffice.policies.tasr import (
    EARLY_STOP,
    MARGIN_ALONE,
    OVERLAP_ALONE,
    STABLE_BASE_RATE,
)
from suffice.replay.run.replay import stop_rounds
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Passage, QuestionRecord
from suffice.trace.rounds.table import TraceSet

MARGIN = "answer_token_margin"
CONTROLS = {
    control.name: control for control in (MARGIN_ALONE, OVERLAP_ALONE, STABLE_BASE_RATE, EARLY_STOP)
}
FLOORS = [round(0.20 + 0.01 * step, 2) for step in range(16)]


def controlled_records(seed: int, count: int = 50, rounds: int = 5) -> list[Any]:
    generator = np.random.default_rng(seed)
    words = ["north", "south", "river", "bridge", "tower", "lake", "road", "hill"]
    found = []
    for number in range(count):
        right = generator.random(rounds) < np.linspace(0.3, 0.7, rounds)
        record = make_record(
            f"q{number:03d}",
            [str(generator.choice(["right"] if each else ["x", "y", "unknown"])) for each in right],
            gold=["right"],
            margins=[float(generator.normal(2.0 if each else 1.0, 0.9)) for each in right],
            split="tune" if number % 5 else "eval",
        )
        kept = tuple(
            dataclasses.replace(
                each,
                passages=(
                    Passage(
                        id=f"{number}-{t}",
                        title="",
                        text=" ".join(generator.choice(words, int(generator.integers(2, 6)))),
                    ),
                ),
            )
            for t, each in enumerate(record.rounds)
        )
        found.append(dataclasses.replace(record, rounds=kept))
    return found


def controlled_traces(seed: int = 1, **given: int) -> TraceSet:
    return to_trace_set(controlled_records(seed, **given))


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
        """F1, its standard error, rounds."""
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
SEEDS = [1, 2, 3]


def rule_of(name: str, given: TraceSet, preset: Preset) -> str:
    policy = fit_method(name, given, preset, "tune")
    assert isinstance(policy, RulePolicy)
    return policy.rule


@pytest.mark.parametrize("seed", SEEDS)
def test_margin_alone(seed: int) -> None:
    given = controlled_traces(seed)
    assert rule_of("margin-alone", given, "published") == f"calibrated({MARGIN}) > 0.25"
    loop = Loop(given)
    chosen = loop.choose(FLOORS, lambda c: lambda row, _: row["calibrated"] > c, "corrected")
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
    given = controlled_traces(rounds=5)
    stable = {"published": "answer_stable_published", "corrected": "answer_stable"}
    rates = fit_data(given, [MARGIN]).base_rates
    for preset in PRESETS:
        policy = fit_method("stable-base-rate", given, preset, "tune")
        assert isinstance(policy, RulePolicy)
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
        floor = loop.choose(FLOORS, lambda c: lambda row, _: base(row, c), preset)
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
        assert isinstance(tasr, RulePolicy)
        assert f"({tasr.rule})" in rule_of("early-stop", given, preset)


def test_names_and_presets() -> None:
    assert set(CONTROLS) <= set(method_names())
    for name, control in CONTROLS.items():
        assert method_and_preset(name) == (control, "published")
        assert method_and_preset(f"{name}-published") == (control, "published")
        assert method_and_preset(f"{name}-corrected") == (control, "corrected")
        assert method_and_preset(f"{name}-best") is None
    with pytest.raises(
        UsageError, match="published preset of margin-alone takes no options; leave calibrator out"
    ):
        fit_method("margin-alone", controlled_traces(), "published", "tune", calibrator="platt")
    other = fit_method("margin-alone", controlled_traces(), "corrected", "tune", calibrator="platt")
    assert isinstance(other, RulePolicy)
    assert other.fitted_on["calibrator"] == "platt"


# --- an OR with TASR -----------------------------------------------------------------------------
def holed(record: QuestionRecord, missing: list[bool]) -> QuestionRecord:
    """The record without tokens, and so without a margin, in some rounds."""
    rounds = tuple(
        dataclasses.replace(made, tokens=None) if gone else made
        for made, gone in zip(record.rounds, missing, strict=False)
    )
    return dataclasses.replace(record, rounds=rounds)


@st.composite
def with_missing_margins(draw: st.DrawFn) -> TraceSet:
    answers = st.lists(st.sampled_from(["x", "y", "unknown", "none"]), min_size=3, max_size=3)
    gold = draw(st.sampled_from(["x", "none"]))
    records = []
    for number in range(draw(st.integers(6, 12))):
        record = make_record(
            f"q{number:02d}",
            draw(answers),
            gold=[gold],
            margins=draw(st.lists(st.floats(0, 4), min_size=3, max_size=3)),
            split="tune",
        )
        records.append(holed(record, draw(st.lists(st.booleans(), min_size=3, max_size=3))))
    # a record that holds no token at all is refused
    return to_trace_set(
        [*records, make_record("z", ["x"], gold=["x"], margins=[1.0], split="tune")]
    )


@pytest.mark.filterwarnings("ignore::suffice.errors.SufficeWarning")
@pytest.mark.parametrize("preset", PRESETS)
@each_of(given=with_missing_margins())
@settings(max_examples=examples(60), deadline=None)
def test_early_stop_stops_no_later_than_tasr(preset: Preset, given: TraceSet) -> None:
    early = fit_method("early-stop", given, preset, "tune")
    tasr = fit_method("tasr", given, preset, "tune")
    assert (stop_rounds(early, given) <= stop_rounds(tasr, given)).all()


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
@pytest.mark.parametrize("name", [*sorted(CONTROLS), "tasr"])
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

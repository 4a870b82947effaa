"""A search against loops over questions and rounds: thresholds, formulas, order, figures."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.cut_population import run_live

from suffice.costs.usage import CostModel
from suffice.errors import UsageError
from suffice.evaluation.choose.search import SearchedRule, SearchResult, search
from suffice.evaluation.replay.named_policies import named_policies
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import ComparisonSettings, SearchSettings
from suffice.measures.measures import Measures
from suffice.policies.fitting import fit_rule
from suffice.signals.known_signals import SIGNALS
from suffice.signals.signal_table import signal_table
from suffice.stats import intervals as sums
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Usage
from suffice.trace.rounds.trace_set import TraceSet

NAMES = ("answer_stable", "own", "normalized_entropy", "coarse")
LOW = {"normalized_entropy"}
BINARY = {"answer_stable"}
TURNED = {"own": "low own", "coarse": "low coarse"}  # nobody stated a direction
SAMPLED = {"normalized_entropy"}  # its samples are three of the four calls of a round


def made(seed: int, count: int = 40, rounds: int = 4) -> TraceSet:
    """Questions of 1 to ``rounds`` rounds, some unlabelled, signals with holes and ties."""
    generator = np.random.default_rng(seed)
    records = []
    for number in range(count):
        length = int(generator.integers(1, rounds + 1)) if generator.random() < 0.3 else rounds
        record = make_record(
            f"q{number:03d}",
            generator.choice(["a b", "a c", "b"], length).tolist(),
            gold=["a b"] if generator.random() < 0.9 else [],
            split="tune" if number % 2 else "eval",
        )
        kept = []
        for each in record.rounds:
            own = float(generator.normal()) if generator.random() < 0.9 else math.nan
            signals = {
                "own": own,
                "normalized_entropy": float(generator.choice([0.0, 0.25, 0.5, 1.0])),
                "coarse": float(generator.integers(0, 3)),
            }
            usage = Usage(llm_calls=4, sample_calls=3)
            kept.append(dataclasses.replace(each, signals=signals, usage=usage))
        records.append(dataclasses.replace(record, rounds=tuple(kept)))
    return to_trace_set(records)


class Twin:
    """One split, evaluated one question and one round at a time."""

    def __init__(self, traces: TraceSet, split: str) -> None:
        part = traces.only_split(split)
        self.part = part
        table = signal_table(part, NAMES)
        self.values = {name: table.signal(name) for name in NAMES}
        scored = Measures(part).scores()
        self.f1, self.em, self.labelled = scored.f1, scored.em, scored.labelled
        self.last = part.last_rounds

    def holds(self, name: str, question: int, t: int, threshold: float | None) -> bool:
        value = float(self.values[name.removeprefix("low ")][question, t])
        if threshold is None:
            return not math.isnan(value) and value != 0.0
        return value < threshold if name in (*LOW, *TURNED.values()) else value > threshold

    def fires(self, name: str, threshold: float) -> list[bool]:
        questions, rounds = self.values["own"].shape
        return [self.holds(name, q, t, threshold) for q in range(questions) for t in range(rounds)]

    def stops(self, fires: Any) -> list[int]:
        found = []
        for question, last in enumerate(self.last.tolist()):
            stop = last
            for t in range(last):
                if fires(question, t):
                    stop = t + 1
                    break
            found.append(stop)
        return found

    def mean(self, scores: np.ndarray[Any, Any], stops: list[int]) -> float:
        kept = [scores[q, s - 1] for q, s in enumerate(stops) if self.labelled[q]]
        return math.fsum(kept) / len(kept)

    def cost(self, stops: list[int], names: set[str]) -> float:
        return (4 if names & SAMPLED else 1) * sum(stops) / len(stops)

    def objective(self, name: str, stops: list[int], cost: float) -> float:
        if name != "gain-at-cost":
            return self.mean(getattr(self, name), stops)
        fixed = [
            [min(k, last) for last in self.last.tolist()] for k in range(1, self.part.n_rounds + 1)
        ]
        costs = [self.cost(each, set()) for each in fixed]
        scores = [self.mean(self.f1, each) for each in fixed]
        return self.mean(self.f1, stops) - float(np.interp(cost, costs, scores))


def thresholds(tune: Twin, settings: SearchSettings) -> dict[str, tuple[str, float] | None]:
    """The way and threshold best on tune, the first of equals; ``None``: none under the cap."""
    assert settings.grid != "quantiles"
    chosen: dict[str, tuple[str, float] | None] = {}
    for name in NAMES:
        if name in BINARY:
            continue
        values = [float(each) for each in tune.values[name].ravel() if math.isfinite(each)]
        low, high = min(values), max(values)
        step = (high - low) / (settings.grid - 1) if settings.grid > 1 else 0.0
        best: tuple[float, str, float] | None = None
        ways = [name, TURNED[name]] if name in TURNED else [name]
        for way, number in product(ways, range(settings.grid)):
            threshold = high if number and number == settings.grid - 1 else low + number * step
            stops = tune.stops(lambda q, t, n=way, c=threshold: tune.holds(n, q, t, c))
            cost = tune.cost(stops, {name})
            if settings.max_cost is not None and cost > settings.max_cost:
                continue
            score = round(tune.objective(settings.objective or "f1", stops, cost), 12)
            if best is None or score > best[0]:
                best = (score, way, threshold)
        chosen[name] = None if best is None or nothing_passes(name, best[2]) else best[1:]
    return chosen


def nothing_passes(name: str, threshold: float) -> bool:
    if name in LOW:
        return threshold <= 0  # no entropy is below 0
    return name in SIGNALS and threshold >= SIGNALS[name].high


def evaluated(
    side: Twin, rule: str, conditions: dict[str, tuple[str, float | None]]
) -> tuple[list[int], set[str]]:
    """Stop rounds of a rule's text, read as Python, and the signals it names."""
    text, used = rule, {}
    for number, condition in enumerate(sorted(conditions, key=len, reverse=True)):
        if condition in text:
            text = text.replace(condition, f"c{number}")
            used[f"c{number}"] = conditions[condition]
    assert re.fullmatch(r"(c\d+|and|or|at_least|\d+|[(), ])+", text), text
    code = compile(text, rule, "eval")

    def fires(question: int, t: int) -> bool:
        facts: dict[str, Any] = {
            key: t + 1 >= side.part.n_rounds
            if name == "round"
            else side.holds(name, question, t, threshold)
            for key, (name, threshold) in used.items()
        }
        facts["at_least"] = lambda count, *items: sum(items) >= count
        return bool(eval(code, {"__builtins__": {}}, facts))

    return side.stops(fires), {name for name, _ in used.values()}


def check_rule(each: SearchedRule, sides: tuple[Twin, Twin], conditions: Any) -> None:
    tune, scored = sides
    stops, names = evaluated(scored, each.rule, conditions)
    assert each.f1 == pytest.approx(scored.mean(scored.f1, stops), abs=1e-12)
    assert each.em == pytest.approx(scored.mean(scored.em, stops), abs=1e-12)
    assert each.mean_rounds == pytest.approx(sum(stops) / len(stops), abs=1e-12)
    on_tune, _ = evaluated(tune, each.rule, conditions)
    assert each.tune_score == pytest.approx(tune.mean(tune.f1, on_tune), abs=1e-12)
    assert each.tune_cost == pytest.approx(tune.cost(on_tune, names), abs=1e-12)


EXPECTED = {"or": 15, "and": 15, "dnf": 51, "vote": 32}


@pytest.mark.parametrize(
    ("form", "objective", "cap", "grid", "seed"),
    [
        ("or", "f1", None, 40, 1),
        ("and", "em", None, 40, 2),
        ("dnf", "f1", 3.0, 40, 3),
        ("vote", "gain-at-cost", None, 7, 4),
        ("dnf", "gain-at-cost", 2.5, 1, 5),
        ("or", "em", 0.5, 40, 6),
        ("vote", "f1", 9.0, 13, 7),
    ],
)
def test_a_search_is_what_loops_find(
    form: str, objective: str, cap: float | None, grid: int, seed: int
) -> None:
    traces = made(seed)
    settings = SearchSettings(
        signals=NAMES,
        form=form,
        objective=objective,
        max_cost=cap,
        grid=grid,
        resamples=20,
        cost_model=CostModel(charge="published"),
    )
    result = search(traces, settings)
    sides = Twin(traces, "tune"), Twin(traces, "eval")
    chosen = thresholds(sides[0], settings)
    conditions: dict[str, tuple[str, float | None]] = {}
    for found in result.thresholds:
        if found.signal in BINARY:
            assert found.threshold is None
            assert not found.never
            conditions[found.condition] = (found.signal, None)
            continue
        expected = chosen[found.signal]
        assert found.never == (expected is None)
        if expected is None:
            conditions[found.condition] = ("round", None)
        else:
            assert found.threshold is not None
            written = found.condition.split()[-1]
            assert float(written) == found.threshold
            way, threshold = expected
            assert len(written) <= len(repr(threshold))
            assert sides[0].fires(way, found.threshold) == sides[0].fires(way, threshold)
            assert (" < " in found.condition) == (way in (*LOW, *TURNED.values()))
            conditions[found.condition] = (way, found.threshold)
        assert found.tried == (grid if found.signal in LOW else 2 * grid)
    assert result.evaluated == EXPECTED[form]
    for each in result.rules:
        check_rule(each, sides, conditions)
        twin_stops, names = evaluated(sides[0], each.rule, conditions)
        wanted = sides[0].objective(objective, twin_stops, sides[0].cost(twin_stops, names))
        assert each.tune_objective == pytest.approx(wanted, abs=1e-12)
    keys = [
        (not each.within_cap, round(-each.tune_objective, 12), round(each.tune_cost, 12))
        for each in result.rules
    ]
    assert keys == sorted(keys)
    assert all(each.within_cap == (cap is None or each.tune_cost <= cap) for each in result.rules)


def test_rules_that_stop_every_question_alike_are_listed_once() -> None:
    traces = made(4, count=10, rounds=3)
    result = search(
        traces, SearchSettings(signals=("answer_stable", "own", "coarse"), form="vote", resamples=5)
    )
    policies = {rule.rule: fit_rule(rule.rule, traces) for rule in result.rules}
    measures = Measures(traces)
    stops = {text: tuple(measures.stop_rounds(policy)) for text, policy in policies.items()}
    for rule in result.rules:
        alike = [other.rule for other in result.rules if stops[other.rule] == stops[rule.rule]]
        assert rule.ways == len(alike)
        assert rule.like == (None if alike[0] == rule.rule else alike[0])
    assert len(result.listed) == len(set(stops.values())) < len(result.rules)
    assert sum(rule.ways for rule in result.listed) == result.evaluated
    assert all(rule.like is None for rule in result.rules if rule.pareto)
    rules, front = result.tables()
    assert [row[0] for row in rules.rows] == list(range(1, len(result.listed) + 1))
    assert result.pick(2) == result.listed[1]
    assert f"stop in {len(result.listed)} different ways" in front.text()


def test_the_family_is_everything_looked_at() -> None:
    result = search(
        made(1), SearchSettings(signals=("own", "coarse", "answer_stable"), resamples=50)
    )
    tried = {each.signal: each.tried for each in result.thresholds}
    assert tried == {"own": 80, "coarse": 80, "answer_stable": 0}  # both ways
    assert result.thresholds_tried == 160
    assert result.evaluated == 7
    assert result.family == 167
    one = search(made(1), SearchSettings(signals=("answer_stable",), resamples=50))
    assert result.critical_score > one.critical_score
    assert all(each.interval.low <= each.f1 <= each.interval.high for each in result.rules)


def replayed(traces: TraceSet, rules: list[str]) -> list[Any]:
    named = named_policies(traces, ["fixed-1"], rules)
    result = replay(
        traces.only_split("eval"), named, ComparisonSettings(baseline="fixed-1", resamples=2)
    )
    return list(result.policies)[1:]


@pytest.mark.parametrize("form", ["or", "and", "dnf", "vote"])
def test_every_rule_replays_to_its_figures(form: str) -> None:
    traces = made(9, count=60)
    names = ("answer_stable", "calibrated(own)", "normalized_entropy", "coarse")
    result = search(traces, SearchSettings(signals=names, form=form, resamples=5, max_cost=3.5))
    found = replayed(traces, [each.rule for each in result.rules])
    for rule, again in zip(result.rules, found, strict=True):
        assert again.f1 == pytest.approx(rule.f1, abs=1e-12)
        assert again.em == pytest.approx(rule.em, abs=1e-12)
        assert again.mean_rounds == pytest.approx(rule.mean_rounds, abs=1e-12)
        assert again.costs["llm_calls"] == pytest.approx(rule.cost, abs=1e-12)


def front_by_hand(result: SearchResult) -> set[tuple[float, float]]:
    kept = set()
    for each in result.rules:
        beaten = any(
            other.tune_cost <= each.tune_cost + 1e-12
            and other.tune_score >= each.tune_score - 1e-12
            and (
                other.tune_cost < each.tune_cost - 1e-12
                or other.tune_score > each.tune_score + 1e-12
            )
            for other in result.rules
        )
        if not beaten:
            kept.add((round(each.tune_cost, 10), round(each.tune_score, 10)))
    return kept


def test_the_front_is_of_tune() -> None:
    result = search(made(11), SearchSettings(signals=NAMES, form="dnf", resamples=5))
    front = [each for each in result.rules if each.pareto]
    points = {(round(each.tune_cost, 10), round(each.tune_score, 10)) for each in front}
    assert points == front_by_hand(result)
    assert len(points) == len(front)  # of equal ones the first


# --- records that were cut -----------------------------------------------------------------------
def cut(traces: TraceSet, explore: float | None, *, stops: tuple[int, ...] = (2, 3, 4)) -> TraceSet:
    """What a policy left of these questions that stops them at these rounds by turns."""
    records = list(traces.records())
    wanted = [stops[number // 2 % len(stops)] for number in range(len(records))]
    return to_trace_set(run_live(records, wanted, explore))


def test_rules_on_cut_records_replay_to_their_figures() -> None:
    log = cut(made(9, count=120), 0.5)
    settings = SearchSettings(signals=("answer_stable", "own"), resamples=5)
    result = search(log, settings)
    assert result.evaluated == 3
    found = replayed(log, [rule.rule for rule in result.rules])
    assert any(one.at_stops.past is not None for one in found)
    for rule, again in zip(result.rules, found, strict=True):
        for figure in ("f1", "em", "mean_rounds"):
            assert getattr(again, figure) == pytest.approx(getattr(rule, figure), abs=1e-12)
        assert again.costs["llm_calls"] == pytest.approx(rule.cost, abs=1e-12)


def test_questions_that_were_cut_and_nothing_stands_for_are_refused() -> None:
    log = cut(made(9, count=240), None, stops=(3, 4))
    with pytest.raises(UsageError, match="stopped early"):
        search(log, SearchSettings(signals=("coarse", "own", "answer_stable"), resamples=5))


def test_above_the_bound_rules_are_worked_on_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = made(11, count=300)
    asked = SearchSettings(signals=NAMES[:3], form="dnf", objective="gain-at-cost", resamples=500)
    whole = search(traces, asked)
    monkeypatch.setattr(sums, "SUMS_ABOVE", 64)
    monkeypatch.setattr(sums, "_CELLS", 1000)  # 64 questions at a time
    blocks = search(traces, asked)
    assert [rule.rule for rule in blocks.rules] == [rule.rule for rule in whole.rules]
    assert (blocks.thresholds, blocks.family) == (whole.thresholds, whole.family)
    assert blocks.critical_score == pytest.approx(whole.critical_score, abs=0.2)
    names = ("f1", "em", "acc", "mean_rounds", "cost", "tune_score", "tune_cost", "tune_objective")
    for one, other in zip(blocks.rules, whole.rules, strict=True):
        figures = [getattr(one, name) for name in names]
        assert figures == pytest.approx([getattr(other, name) for name in names], rel=1e-12)
        assert (one.ways, one.like, one.pareto) == (other.ways, other.like, other.pareto)
        assert one.p_holm == pytest.approx(other.p_holm, rel=1e-6)
        for name in ("interval", "naive", "delta", "naive_delta"):
            found, known = getattr(one, name), getattr(other, name)
            width = known.high - known.low
            assert found.estimate == pytest.approx(known.estimate, abs=1e-12)
            ends = (known.low, known.high)
            assert (found.low, found.high) == pytest.approx(ends, abs=0.15 * width + 1e-12)


def test_the_baseline_file_keeps_its_budget(tmp_path: Any) -> None:
    file = tmp_path / "policy.json"
    file.write_text(
        json.dumps({"suffice_policy": 1, "kind": "fixed", "rounds": 4, "max_rounds": 2})
    )
    settings = SearchSettings(signals=("own",), resamples=5)
    ended = search(made(1), dataclasses.replace(settings, baseline=str(file)))
    two = search(made(1), dataclasses.replace(settings, baseline="fixed-2"))
    assert ended.baseline_score == two.baseline_score
    assert ended.baseline_score != search(made(1), settings).baseline_score

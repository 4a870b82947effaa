"""Families of rules and one rule over a grid: members, costs, what is left out, and what is proven."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cut_population import run_live

from suffice.errors import UsageError
from suffice.evaluation.choose import rule_stops
from suffice.evaluation.choose.candidates import PROVE
from suffice.evaluation.choose.choice import Choice
from suffice.evaluation.choose.families import build_family, rules_of_grid
from suffice.evaluation.choose.procedure import choose
from suffice.evaluation.replay.named_policies import named_policies
from suffice.evaluation.replay.runner import stop_rounds
from suffice.evaluation.settings import ChoiceSettings
from suffice.measures.measures import Measures
from suffice.policies.policy_file import load_policy, save_policy
from suffice.policies.rules.policy import Rule
from suffice.signals.signal_table import signal_table
from suffice.stats import intervals as sums
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord, Usage
from suffice.trace.rounds.trace_set import TraceSet

MARGIN = "answer_token_margin"
OWN: dict[str, Any] = {"family": "rule", "signals": ("own",)}


def kept_records(count: int = 400, *, rounds: int = 4, seed: int = 1) -> list[QuestionRecord]:
    """Found at some round and kept; ``own`` is the user's signal, the entropy needs samples."""
    generator = np.random.default_rng(seed)
    made = []
    for number in range(count):
        reached = int(generator.integers(1, rounds + 1))
        right = [t >= reached for t in range(1, rounds + 1)]
        record = make_record(
            f"q{number:04d}",
            ["right" if each else f"wrong {t}" for t, each in enumerate(right)],
            gold=["right"],
            margins=[float(generator.normal(2.5 if each else 0.5, 0.7)) for each in right],
            split="tune",
        )
        kept = tuple(
            dataclasses.replace(
                each,
                usage=Usage(llm_calls=4, sample_calls=3),
                signals={
                    "own": float(found) + float(generator.normal(0, 0.3)),
                    "normalized_entropy": float(generator.choice([0.2, 0.8])) * (not found) + 0.1,
                },
            )
            for each, found in zip(record.rounds, right, strict=True)
        )
        made.append(dataclasses.replace(record, rounds=kept))
    return made


@functools.cache
def kept_traces(**given: Any) -> TraceSet:
    return to_trace_set(kept_records(**given))


def chosen(given: TraceSet, **asked: Any) -> Choice:
    return choose(given, ChoiceSettings(**{"max_loss": 0.1, "resamples": 2, **asked}))


# --- validity ------------------------------------------------------------------------------------
@pytest.mark.slow
def test_the_order_of_the_ids_cannot_win_the_bet() -> None:
    """Ids tell the losses: 60% gain by stopping (a...), 40% lose more (b...), on average 0.04 too much.

    Betting in the order of the ids would win on the first kind alone, every time.
    """
    broken = 0
    draws = 20
    for draw in range(draws):
        generator = np.random.default_rng([3, draw])
        made = []
        for number in range(500):
            gains = generator.random() < 0.6
            first, last = ("right", "wrong") if gains else ("wrong", "right")
            moves = generator.random() < (0.2 if gains else 0.65)
            answers = [first, last] if moves else ["other", "other"]
            made.append(
                make_record(f"{'a' if gains else 'b'}{number:03d}", answers, gold=["right"])
            )
        # the true loss of stopping every question is -0.6 * 0.2 + 0.4 * 0.65 = 0.14
        found = chosen(to_trace_set(made), family="fixed", max_loss=0.13, confidence=0.9)
        broken += found.chosen.policy.name in ("round >= 1", "fixed-1")
    assert broken / draws <= 0.1 + 3 * (0.1 * 0.9 / draws) ** 0.5


def test_gold_of_the_questions_that_prove_changes_p_values_only() -> None:
    made = kept_records()
    before = chosen(to_trace_set(made), **OWN)
    testing = set(before.comparison.measures.traces.question_ids)
    assert len(testing) == before.parts[PROVE]
    changed = [
        dataclasses.replace(each, gold=dataclasses.replace(each.gold, answers=("wrong 0",)))
        if each.question.id in testing
        else each
        for each in made
    ]
    after = chosen(to_trace_set(changed), **OWN)
    ranked = (
        {one.candidate.policy.label: (one.loss, one.cost) for one in choice.ranked}
        for choice in (before, after)
    )
    assert next(ranked) == next(ranked)
    p_values = (
        {one.candidate.policy.label: one.p_value for one in choice.ranked}
        for choice in (before, after)
    )
    assert next(p_values) != next(p_values)


# --- members -------------------------------------------------------------------------------------
@pytest.mark.parametrize("first", [1, 3])
def test_members_stop_where_their_rules_do(first: int) -> None:
    """Every member whose values are not out of fold; none stops earlier than it may."""
    given = to_trace_set(kept_records(count=60))
    signals = ("own", "answer_stable", f"calibrated({MARGIN})")
    family = build_family(Measures(given), signals=signals, levels=3, min_rounds=first)
    assert family.stops[:].min() == first
    lead = f"round >= {first} and ("
    alone = [rule.removeprefix(lead).removesuffix(")") for rule in family.rules]
    assert (alone != list(family.rules)) == (first > 1)
    own = signal_table(given, ["own"]).signal("own")
    quantiles = np.nanquantile(own, (0.25, 0.5, 0.75))
    alone = [rule for rule in alone if re.fullmatch(r"own > \S+", rule)]
    for rule, quantile in zip(alone, quantiles, strict=True):
        written = rule.removeprefix("own > ")
        assert len(written) <= len(repr(float(quantile)))
        np.testing.assert_array_equal(own > float(written), own > quantile)
    named = named_policies(given, [], [rule for rule in family.rules if "calibrated" not in rule])
    by_rule = {each.name: each for each in named}
    for number, rule in enumerate(family.rules):
        if rule in by_rule:
            policy = by_rule[rule].policy
            assert policy is not None
            assert stop_rounds(policy, given).tolist() == family.stops[number].tolist()
    assert sum("calibrated" in rule for rule in family.rules) > 3
    assert family.rules[-1] == "round >= 4"
    assert (family.stops[-1] == 4).all()


def test_the_numbers_of_a_rule_are_quantiles_or_floors_or_those_typed() -> None:
    fit = Measures(kept_traces(count=60))
    own = signal_table(kept_traces(count=60), ["own"]).signal("own")
    texts = rules_of_grid(fit, ChoiceSettings(rule="own > ?"))
    numbers = [float(text.removeprefix("own > ")) for text in texts]
    assert 20 < len(numbers) <= 39
    assert numbers == sorted(numbers)
    assert np.nanmin(own) < numbers[0] < numbers[-1] < np.nanmax(own)
    calibrated = rules_of_grid(fit, ChoiceSettings(rule=f"calibrated({MARGIN}) > ?"))
    assert (len(calibrated), calibrated[0]) == (16, f"calibrated({MARGIN}) > 0.2")
    typed = rules_of_grid(fit, ChoiceSettings(rule="own > ?", grid=(2, -1.5), min_rounds=2))
    assert typed == ["round >= 2 and (own > -1.5)", "round >= 2 and (own > 2)"]
    with pytest.raises(UsageError, match="--grid"):
        rules_of_grid(fit, ChoiceSettings(rule="round >= ?"))


def test_a_signal_that_reads_samples_pays_for_them() -> None:
    """Entropy alone would stop as well as ``own``, at three calls a round more."""
    asked: dict[str, Any] = {"family": "rule", "max_signals": 1}
    given, signals = kept_traces(), ("own", "normalized_entropy")
    found = chosen(given, signals=signals, cost="llm_calls", **asked)
    costs = {one.candidate.policy.label: one.cost for one in found.ranked}
    rules = {one.candidate.policy.label: one.candidate.policy.policy for one in found.ranked}
    entropy = [rule for rule in costs if "entropy" in rule]
    for rule in entropy:
        policy = rules[rule]
        assert policy is not None
        decided = np.minimum(stop_rounds(policy, given), given.n_rounds - 1)
        # one answer, at the stop; estimated on a part of the questions
        assert costs[rule] == pytest.approx(1 + 3 * decided.mean(), rel=0.1)
    assert "entropy" not in found.title
    in_rounds = chosen(given, signals=("normalized_entropy",), cost="rounds", **asked)
    assert any("entropy" in one.candidate.policy.label for one in in_rounds.ranked)


def test_by_default_all_that_varies_and_does_not_know_later_rounds() -> None:
    """A recorded signal equal to the next round's margin is left out, and that is said."""
    made = []
    for record in kept_records(count=120):
        table = signal_table(to_trace_set([record]), [MARGIN]).signal(MARGIN)[0]
        rounds = tuple(
            dataclasses.replace(
                each,
                signals={
                    **each.signals,
                    "peek": float(table[t + 1]) if t + 1 < len(table) else math.nan,
                    "still": 0.5,
                },
            )
            for t, each in enumerate(record.rounds)
        )
        made.append(dataclasses.replace(record, rounds=rounds))
    given = to_trace_set(made)
    family = build_family(Measures(given))
    assert not any("peek" in rule or "still" in rule for rule in family.rules)
    assert any("own" in rule for rule in family.rules)
    assert any("'peek'" in note and "looks ahead" in note for note in family.notes)
    for name, said in (("peek", "looks ahead"), ("still", "is 0.5 in every round")):
        with pytest.raises(UsageError, match=said):
            chosen(given, family="rule", signals=(name,))
        with pytest.raises(UsageError, match=said):
            chosen(given, rule=f"{name} > ?")


# --- what is chosen among ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("asked", "groups"),
    [
        ({"family": "fixed"}, {"fixed"}),
        ({"rule": "own > ?"}, {"fixed", "rule"}),
        (OWN, {"fixed", "rule"}),
    ],
)
def test_a_family_narrows_what_is_chosen_among(asked: dict[str, Any], groups: set[str]) -> None:
    choice = chosen(kept_traces(count=120), **asked)
    assert {one.candidate.group for one in choice.ranked} == groups
    json.dumps(choice.to_json(), allow_nan=False)


def test_several_promises_stand_in_the_file_and_hold_live(tmp_path: Path) -> None:
    promises: dict[str, Any] = {"max_loss": 0.3, "max_wrong_stops": 0.35}
    found = chosen(kept_traces(), **OWN, **promises, min_rounds=2, cost="rounds")
    assert isinstance(found.policy, Rule)
    terms = found.policy.guarantee
    assert terms["fell_back"] is False
    assert [bound["of"] for bound in terms["bounds"]] == ["signed", "wrong-stop"]
    assert all(bound["measured"] < bound["at_most"] for bound in terms["bounds"])
    assert terms["min_rounds"] == 2
    read = load_policy(save_policy(found.policy, tmp_path / "p.json")).policy
    assert read == found.policy
    assert stop_rounds(read, kept_traces()).min() >= 2


@pytest.mark.parametrize("family", ["fixed", "thresholds", "rule"])
@pytest.mark.parametrize("loss", ["drop", "wrong-stop"])
def test_every_family_on_real_rounds(data_folder: Path, family: str, loss: str) -> None:
    """124 questions prove the path's first step at most: one question in eight stops a round early."""
    qwen = read_traces(data_folder / "traces" / "hotpotqa_qwen1.5b.parquet")
    found = chosen(qwen, family=family, loss=loss, max_loss=0.02)
    assert found.promised is not None
    proven = found.promised.row.proven
    assert found.in_full == (proven is None)
    assert proven is None or 0.0 < proven.saved < 0.03
    json.dumps(found.to_json(), allow_nan=False)


def test_three_routes(data_folder: Path) -> None:
    """Stopping when the answer repeats loses nothing there, and 3,000 questions show it."""
    routes = read_traces(data_folder / "traces" / "routes_llama8b_dev.parquet")
    rule = "answer_stable and answer_similarity_seq > ?"
    found = chosen(routes, rule=rule, max_loss=0.02, cost="rounds")
    assert found.promised is not None
    assert found.promised.row.proven is not None
    assert found.measured.mean_rounds < 2.7
    fixed = chosen(routes, family="fixed", max_loss=0.02, cost="rounds")
    assert fixed.promised is not None
    assert fixed.promised.row.proven is not None
    kept = [one.promised.row.proven for one in (found, fixed) if one.promised]
    assert all(one is not None and one.saved > 0.1 for one in kept)


@pytest.mark.parametrize("explore", [0.5, None])
def test_a_promise_on_a_record_that_a_policy_cut(explore: float | None) -> None:
    """Weighted where some were explored, else the worst of what was not seen; both say so in the file."""
    stops = [3 if number % 2 else 4 for number in range(400)]
    log = to_trace_set(run_live(kept_records(), stops, explore))
    found = chosen(log, rule="own > ?", grid=(0.5, 0.9), max_loss=0.4, cost="rounds")
    assert isinstance(found.policy, Rule)
    stated = found.policy.guarantee["cut"]
    assert found.policy.guarantee["bounded"] is (explore is None)
    assert any(stated in note and "in shadow" in note for note in found.notes)
    if explore is None:
        assert stated.startswith("the worst is assumed of 200 ")
    else:
        assert "weight 2)" in stated


@pytest.mark.parametrize("asked", [{**OWN, "signals": ("own", MARGIN)}, {"family": "fixed"}])
def test_a_large_record_writes_out_no_more_stops_than_it_works_on(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = chosen(kept_traces(count=300), **asked)
    monkeypatch.setattr(sums, "_CELLS", 600)  # blocks of 64 questions
    monkeypatch.setattr(rule_stops, "_CELLS_A_BLOCK", 600)
    assert chosen(kept_traces(count=300), **asked).to_json() == whole.to_json()

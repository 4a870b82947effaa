"""Certified policies from traces: families, halves, costs, the file, and what is refused."""

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
from suffice.measures.measures import Measures
from suffice.policies.file import load_policy, policy_hash, save_policy
from suffice.replay.choose import families, rule_stops
from suffice.replay.choose.bounds import CertifySettings
from suffice.replay.choose.certified import CertifiedPolicy, CertifiedSettings, fit_certified
from suffice.replay.choose.families import FamilySettings, build_family
from suffice.replay.run.named_policies import named_policies
from suffice.replay.run.replay import stop_rounds
from suffice.signals.table import signal_table
from suffice.stats import intervals as sums
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord, Usage
from suffice.trace.rounds.table import TraceSet

MARGIN = "answer_token_margin"


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


def fitted(
    given: TraceSet, *, family: Any = None, promise: Any = None, **more: Any
) -> CertifiedPolicy:
    return fit_certified(
        given,
        CertifiedSettings(
            promise=CertifySettings(**{"max_loss": 0.1, **(promise or {})}),
            family=FamilySettings(**(family or {})),
            **more,
        ),
    )


OWN: dict[str, Any] = {"signals": ("own",)}


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
                make_record(
                    f"{'a' if gains else 'b'}{number:03d}", answers, gold=["right"], split="tune"
                )
            )
        found = fitted(
            to_trace_set(made),
            family={"family": "fixed"},
            promise={"max_loss": 0.13, "confidence": 0.9},
        )  # the true loss is -0.6 * 0.2 + 0.4 * 0.65 = 0.14
        broken += found.row.proven is not None
    assert broken / draws <= 0.1 + 3 * (0.1 * 0.9 / draws) ** 0.5


def test_gold_of_the_testing_half_changes_p_values_only() -> None:
    made = kept_records()
    given = to_trace_set(made)
    before = fitted(given, family=OWN)
    shuffled = np.random.default_rng(42).permutation(np.array(given.question_ids, object))
    testing = set(shuffled[200:].tolist())
    changed = [
        dataclasses.replace(each, gold=dataclasses.replace(each.gold, answers=("wrong 0",)))
        if each.question.id in testing
        else each
        for each in made
    ]
    after = fitted(to_trace_set(changed), family=OWN)
    assert after.rules == before.rules
    assert after.tests.order.tolist() == before.tests.order.tolist()
    np.testing.assert_array_equal(after.tests.learned, before.tests.learned)
    p_values = ([member["p_value"] for member in one.members] for one in (before, after))
    assert next(p_values) != next(p_values)


def test_calibrators_are_those_of_the_first_half() -> None:
    made = kept_records()
    given = to_trace_set(made)
    family: dict[str, Any] = {"family": "thresholds", "rule": f"calibrated({MARGIN}) > ?"}
    found = fitted(given, family=family)
    assert "calibrated" in found.policy.rule
    shuffled = np.random.default_rng(42).permutation(np.array(given.question_ids, object))
    learn = to_trace_set([each for each in made if each.question.id in set(shuffled[:200])])
    test = to_trace_set([each for each in made if each.question.id in set(shuffled[200:])])
    built = build_family(learn, test, "tune", FamilySettings(**family))
    assert dict(found.policy.calibrators) == dict(built.calibrators)


@pytest.mark.parametrize("first", [1, 3])
def test_members_stop_where_their_rules_do(first: int) -> None:
    """Every member of the rule family, on the half that its maps were not fitted on; none stops earlier."""
    made = kept_records(count=60)
    learn, test = to_trace_set(made[:30]), to_trace_set(made[30:])
    family = build_family(
        learn,
        test,
        "tune",
        FamilySettings(
            signals=("own", "answer_stable", f"calibrated({MARGIN})"), levels=3, min_rounds=first
        ),
    )
    assert family.test_stops[:].min() == first
    lead = f"round >= {first} and ("
    alone = [rule.removeprefix(lead).removesuffix(")") for rule in family.rules]
    assert (alone != list(family.rules)) == (first > 1)
    learn_own = signal_table(learn, ["own"]).signal("own")
    quantiles = np.nanquantile(learn_own, (0.25, 0.5, 0.75))
    alone = [rule for rule in alone if re.fullmatch(r"own > \S+", rule)]
    for rule, quantile in zip(alone, quantiles, strict=True):
        written = rule.removeprefix("own > ")
        assert len(written) <= len(repr(float(quantile)))
        np.testing.assert_array_equal(learn_own > float(written), learn_own > quantile)
    named = named_policies(test, [], [rule for rule in family.rules if "calibrated" not in rule])
    by_rule = {each.name: each for each in named}
    for number, rule in enumerate(family.rules):
        if rule in by_rule:
            policy = by_rule[rule].policy
            assert policy is not None
            assert stop_rounds(policy, test).tolist() == family.test_stops[number].tolist()
            assert stop_rounds(policy, learn).tolist() == family.learn_stops[number].tolist()
    assert sum("calibrated" in rule for rule in family.rules) > 3
    assert family.rules[family.full] == "round >= 4"
    assert (family.test_stops[family.full] == 4).all()


def test_too_many_members_are_refused_before_they_are_listed() -> None:
    names = ("own", MARGIN, "answer_stable", "overlap", "normalized_entropy")
    with pytest.raises(UsageError, match="--signals"):
        fitted(kept_traces(), family={"signals": names[:2], "levels": 700, "max_signals": 9})


def test_a_signal_that_reads_samples_pays_for_them() -> None:
    """Entropy alone would stop as well as ``own``, at three calls a round more."""
    found = fitted(
        kept_traces(),
        family={"signals": ("own", "normalized_entropy"), "max_signals": 1},
        cost="llm_calls",
    )
    costs = dict(zip(found.rules, found.tests.costs, strict=True))
    entropy = [rule for rule in costs if "entropy" in rule]
    assert entropy
    given = kept_traces()
    for rule in entropy:
        policy = named_policies(given, [], [rule])[0].policy
        assert policy is not None
        decided = np.minimum(stop_rounds(policy, given), given.n_rounds - 1)
        assert costs[rule] == pytest.approx(1 + 3 * decided.mean())  # one answer, at the stop
    assert "entropy" not in found.policy.rule
    in_rounds = fitted(
        kept_traces(), family={"signals": ("normalized_entropy",), "max_signals": 1}, cost="rounds"
    )
    assert "entropy" in in_rounds.policy.rule
    assert in_rounds.policy.guarantee["cost"] == "rounds"


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
    found = fitted(to_trace_set(made))
    assert not any("peek" in rule or "still" in rule for rule in found.rules)
    assert any("own" in rule for rule in found.rules)
    assert any("'peek'" in note and "later rounds" in note for note in found.notes)
    for name, said in (("peek", "knows later rounds"), ("still", "is 0.5 in every round")):
        with pytest.raises(UsageError, match=said):
            fitted(to_trace_set(made), family={"signals": (name,)})


# --- records that are not tidy -------------------------------------------------------------------
def test_questions_of_different_lengths_lose_against_their_own_last_round() -> None:
    made = [
        dataclasses.replace(each, rounds=each.rounds[:2]) if number % 3 == 0 else each
        for number, each in enumerate(kept_records())
    ]
    found = fitted(to_trace_set(made), family={"family": "fixed"}, promise={"max_loss": 0.35})
    assert any("134 questions were recorded to fewer than 4 rounds" in note for note in found.notes)
    given = to_trace_set(made)
    scored = Measures(given).scores()
    rows = np.arange(given.n_questions)
    stops = stop_rounds(found.policy, given)
    loss = (scored.f1[rows, given.last_rounds - 1] - scored.f1[rows, stops - 1]).mean()
    chosen = found.rules.index(found.policy.rule)
    learned = 2 * found.tests.learned[0][chosen] - 1
    tested = next(one["loss"] for one in found.members if one["rule"] == found.policy.rule)
    assert loss == pytest.approx((learned + tested) / 2)


def test_the_file_keeps_the_promise_and_the_hash_ignores_it(tmp_path: Path) -> None:
    found = fitted(kept_traces(), family=OWN)
    file = save_policy(found.policy, tmp_path / "p.json")
    document = json.loads(file.read_text(), parse_constant=pytest.fail)
    assert document["kind"] == "certified"
    assert document["guarantee"] == dict(found.policy.guarantee)
    assert document["guarantee"]["max_loss"] == 0.1
    assert document["guarantee"]["fell_back"] is False
    assert 0 < document["guarantee"]["p_value"] <= 0.05
    read = load_policy(file).policy
    assert policy_hash(read) == policy_hash(found.policy)
    other = dataclasses.replace(found.policy, guarantee={})
    assert policy_hash(other) == policy_hash(found.policy)
    moved = dataclasses.replace(found.policy, rule="own > 9")
    assert policy_hash(moved) != policy_hash(found.policy)


def test_several_promises_stand_in_the_file_and_hold_live(tmp_path: Path) -> None:
    """Of members that keep the losses some cost too much."""
    asked: dict[str, Any] = {
        "promise": {"max_loss": 0.3, "max_wrong_stops": 0.35, "max_cost": 3.2},
        "family": {**OWN, "min_rounds": 2},
        "cost": "rounds",
    }
    found = fitted(kept_traces(), **asked)
    terms = found.policy.guarantee
    assert found.row.proven is not None
    assert [bound["of"] for bound in terms["bounds"]] == ["signed", "wrong-stop", "cost"]
    assert all(bound["measured"] < bound["at_most"] for bound in terms["bounds"])
    assert (terms["min_rounds"], terms["cost_counted_to"], terms["cost_above"]) == (2, 4.0, 0)
    assert found.policy.rule.startswith("round >= 2 and (own >")
    read = load_policy(save_policy(found.policy, tmp_path / "p.json")).policy
    assert read == found.policy
    stops = stop_rounds(read, kept_traces())
    assert stops.min() >= 2
    assert stops.mean() == pytest.approx(terms["mean_cost"])
    (table,) = found.tables()
    heads = [column.name for column in table.columns]
    assert heads[:3] == ["loss", "wrong-stop", "p_value"]


@pytest.mark.parametrize("family", ["fixed", "thresholds", "rule"])
@pytest.mark.parametrize("loss", ["signed", "drop", "wrong-stop"])
def test_every_family_on_real_rounds(
    data_folder: Path, family: str, loss: Any, tmp_path: Path
) -> None:
    """49 labelled questions prove nothing: all fall back, and say how many would be needed."""
    qwen = read_traces(data_folder / "traces" / "hotpotqa_qwen1.5b.parquet")
    found = fitted(qwen, family={"family": family}, promise={"max_loss": 0.02, "loss": loss})
    assert found.row.proven is None
    assert found.policy.rule == "round >= 5"
    needed = found.policy.guarantee["questions_needed"]
    assert needed is None or needed > 49
    json.dumps(found.to_json(), allow_nan=False)
    assert load_policy(save_policy(found.policy, tmp_path)).policy == found.policy


def test_three_routes(data_folder: Path) -> None:
    """Stopping when the answer repeats loses nothing there, and 3,000 questions show it."""
    routes = read_traces(data_folder / "traces" / "routes_llama8b_dev.parquet")
    for family in ("rule", "thresholds"):
        found = fitted(
            routes,
            family={"family": family, "rule": "answer_stable and answer_similarity_seq > ?"},
            promise={"max_loss": 0.02},
            cost="rounds",
        )
        assert found.row.proven is not None
        assert found.policy.guarantee["mean_cost"] < 2.7
    fixed = fitted(routes, family={"family": "fixed"}, promise={"max_loss": 0.02}, cost="rounds")
    assert fixed.row.proven is None


@pytest.mark.parametrize("explore", [0.5, None])
def test_a_promise_on_a_record_that_a_policy_cut(explore: float | None) -> None:
    """Weighted where some were explored, else the worst of what was not seen; both say so in the file."""
    stops = [3 if number % 2 else 4 for number in range(400)]
    log = to_trace_set(run_live(kept_records(), stops, explore))
    family = {"family": "thresholds", "rule": "calibrated(own) > ?", "thresholds": (0.5, 0.9)}
    found = fitted(log, family=family, promise={"max_loss": 0.4}, cost="rounds")
    assert found.row.proven is not None
    stated = found.policy.guarantee["cut"]
    assert found.policy.fitted_on["cut"]["cut"] > 30
    assert found.policy.guarantee["bounded"] is (explore is None)
    assert any(stated in note and "in shadow" in note for note in found.notes)
    if explore is None:
        assert stated.startswith("the worst is assumed of 200 that were cut")
    else:
        assert (
            stated
            == "100 explored questions, of weight 2 at most, stand for 100 that the policy which ran cut"
        )


@pytest.mark.parametrize("family", [{"signals": ("own", MARGIN), "levels": 3}, {"family": "fixed"}])
def test_a_large_record_writes_out_no_more_stops_than_it_works_on(
    family: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fitted(kept_traces(count=300), family=family)
    monkeypatch.setattr(sums, "SUMS_ABOVE", 20)
    monkeypatch.setattr(sums, "_CELLS", 600)  # blocks of 64 questions
    monkeypatch.setattr(rule_stops, "_CELLS_A_BLOCK", 600)
    monkeypatch.setattr(families, "_CELLS", 3000)
    assert fitted(kept_traces(count=300), family=family).to_json() == whole.to_json()

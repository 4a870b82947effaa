"""Selective prediction: groups, abstentions, policies with and without a confidence."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.maps import at

from suffice.errors import UsageError
from suffice.evaluation.diagnose.diagnosis import selective, selective_prediction
from suffice.evaluation.replay.compare import Comparison, compare
from suffice.evaluation.settings import ComparisonSettings, DiagnosisSettings
from suffice.results.as_json import as_json
from suffice.stats.auroc import auroc
from suffice.stats.p_values import rate_interval
from suffice.testing.traces import make_record, to_trace_set

RULE = "answer_stable and calibrated(answer_token_margin) > 0.2"
FEW = DiagnosisSettings(resamples=30)
NAN = float("nan")


def scores(em: list[float], abstained: list[bool] | None = None) -> dict[str, np.ndarray]:
    values = np.array(em)
    none = [False] * len(em)
    return {"em": values, "f1": (values + 0.5) / 1.5, "abstained": np.array(abstained or none)}


def comparison(rules: tuple[str, ...] = (RULE,), *, unlabelled: int = 3) -> Comparison:
    rng = np.random.default_rng(0)
    made = []
    for number in range(60):
        answers = [
            str(rng.choice(["Oslo", "Rome", "unknown"], p=[0.6, 0.3, 0.1])) for _ in range(3)
        ]
        made.append(
            make_record(
                f"q{number:02d}",
                answers,
                gold=["Oslo"] if number >= unlabelled else [],
                margins=[float(rng.random()) + (answer == "Oslo") * 0.4 for answer in answers],
                split="tune" if number % 2 else "eval",
            )
        )
    return compare(
        to_trace_set(made), ComparisonSettings(policies=("fixed-2",), rules=rules, resamples=20)
    )


def test_groups_by_hand() -> None:
    confidence = np.array([0.9, 0.7, 0.7, 0.2, NAN])
    at_stop = scores([1.0, 0.0, 1.0, 0.0, 1.0], [False, False, False, True, False])
    found = selective(confidence, at_stop, replace(FEW, threshold=0.7))
    assert (found["above"]["questions"], found["below"]["questions"], found["undefined"]) == (
        3,
        2,
        1,
    )
    assert found["above"]["em"].estimate == pytest.approx(2 / 3)
    assert (found["above"]["em"].low, found["above"]["em"].high) == rate_interval(2, 3)
    assert found["below"]["em"].estimate == 0.5
    # the tie of right and wrong counts half: pairs (.9, .7) (.9, .2) (.7, .7) (.7, .2)
    assert found["auroc"].estimate == pytest.approx(3.5 / 4)
    # losses in order: 0, tie of 1 and 0, then 1, then the undefined one's 0
    risks = [0, 0.25, 1 / 3, 0.5, 0.4]
    assert found["curve"].risk["em"].tolist() == pytest.approx(risks)
    assert found["aurc"].estimate == pytest.approx(np.mean(risks))
    best = [0, 0, 0, 1 / 4, 2 / 5]
    assert found["excess_aurc"].estimate == pytest.approx(np.mean(risks) - np.mean(best))
    assert found["answers"]["f1"] == pytest.approx(np.mean(at_stop["f1"]))


def test_no_confidence_anywhere_is_undefined_not_wrong() -> None:
    found = selective(np.full(3, NAN), scores([0.0, 1.0, 1.0]), FEW)
    assert found["auroc"].estimate is None
    assert found["threshold"] is None
    assert found["above"]["questions"] == 0
    assert found["above"]["em"].reason == "no such answer"
    assert found["aurc"].estimate == pytest.approx(1 / 3)  # as any random order
    json.dumps(as_json(found), allow_nan=False)
    one_class = selective(np.arange(3.0), scores([1.0, 1.0, 1.0]), FEW)
    assert one_class["auroc"].reason == "no wrong answer among these rounds"


def test_only_policies_with_a_confidence_and_their_auroc_in_replay() -> None:
    found = comparison()
    (result,) = selective_prediction(found.traces, found.result, FEW)
    fixed, rule, _ = found.result.policies
    assert result["policy"] == rule.name == RULE
    assert result["confidence"] == "policy"
    assert fixed.confidence is None
    assert "auroc" not in fixed.to_json()
    assert rule.policy is not None
    assert rule.confidence is not None
    labelled = np.array([bool(gold.answers) for gold in found.traces.gold])
    assert result["answers"]["questions"] == int(labelled.sum()) < found.traces.n_questions
    assert rule.to_json()["auroc"] == rule.auroc == pytest.approx(result["auroc"].estimate)
    assert result["answers"]["em"].estimate == rule.em
    assert result["answers"]["f1"] == pytest.approx(rule.f1)


def test_the_confidence_of_a_rule_is_its_calibrated_value_at_the_stop() -> None:
    found = comparison()
    rule = found.result.policies[1]
    assert rule.confidence is not None
    for number, record in enumerate(found.traces.records()):
        stop = int(rule.stops[number])
        tokens = record.rounds[stop - 1].tokens or ()
        margin = tokens[-1].top[0].logprob - tokens[-1].top[1].logprob
        calibrators = getattr(rule.policy, "calibrators")  # noqa: B009 - only rules have them
        expected = at(calibrators["answer_token_margin"], stop, margin)
        assert rule.confidence[number] == pytest.approx(expected, nan_ok=True)


def test_a_named_signal_serves_every_policy() -> None:
    found = comparison()
    settings = replace(FEW, confidence="answer_token_margin")
    results = selective_prediction(found.traces, found.result, settings)
    assert [each["policy"] for each in results] == [each.name for each in found.result.policies]
    assert {each["confidence"] for each in results} == {"answer_token_margin"}
    with pytest.raises(UsageError, match="unknown signal"):
        selective_prediction(found.traces, found.result, replace(FEW, confidence="nothing"))
    turned = selective_prediction(found.traces, found.result, replace(FEW, confidence="abstained"))
    at = found.result.policies[0].stops - 1
    em, abstained = [], []
    for number, record in enumerate(found.traces.records()):
        if record.gold.answers:
            answer = record.rounds[at[number]].answer
            em.append(answer == "Oslo")
            abstained.append(answer == "unknown")
    expected = auroc(-np.array(abstained, float), np.array(em))
    assert turned[0]["auroc"].estimate == pytest.approx(expected)


def test_other_traces_and_unlabelled_ones() -> None:
    found = comparison()
    with pytest.raises(UsageError, match="replayed"):
        selective_prediction(found.traces.take(np.arange(30) < 5), found.result, FEW)
    bare = [make_record(f"q{n}", ["Oslo", "Oslo"]) for n in range(4)]
    nothing = compare(to_trace_set(bare), ComparisonSettings(policies=("fixed-1",)))
    settings = replace(FEW, confidence="abstained")
    assert selective_prediction(nothing.traces, nothing.result, settings) == ()
    with pytest.raises(UsageError, match="finite"):
        DiagnosisSettings(threshold=NAN)

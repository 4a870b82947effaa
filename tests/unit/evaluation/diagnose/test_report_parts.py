"""Parts are there where the record allows them; where not, the reason is, and nothing fails."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.builders import drawn_records, eval_and_tune, with_rounds

from suffice.errors import UsageError
from suffice.evaluation.diagnose.diagnosis import Diagnosis, breakdown, diagnosis
from suffice.evaluation.diagnose.report_data import (
    PARTS,
    PartsSettings,
    ReportData,
    report_data,
    report_parts,
)
from suffice.evaluation.replay.compare import Comparison, compare
from suffice.evaluation.replay.named_policies import NamedPolicy
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import ComparisonSettings, DiagnosisSettings
from suffice.policies.rules.policy import Rule
from suffice.stats.auroc import USES
from suffice.testing.traces import make_record, random_records, to_trace_set
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.trace_set import TraceSet


def oslo_records(*, split: bool = True, margins: bool = True) -> list[QuestionRecord]:
    return drawn_records(
        40,
        ["Oslo", "Rome"],
        seed=3,
        widest=1.0 if margins else None,
        split=eval_and_tune if split else lambda _: None,
    )


def compared(traces: TraceSet, *names: str, baseline: str | None = None) -> Comparison:
    return compare(traces, ComparisonSettings(policies=names, resamples=20, baseline=baseline))


@pytest.mark.parametrize(
    ("split", "margins", "why"), [(False, True, "tune"), (True, False, "column tokens")]
)
def test_without_splits_or_margins_the_reason_is_given(
    split: bool, margins: bool, why: str
) -> None:
    traces = to_trace_set(oslo_records(split=split, margins=margins))
    found = report_parts(traces, compared(traces, "fixed-1"))
    assert (found["calibrators"], found["selective"]) == (None, ())
    assert why in found.left_out["calibrators"]
    assert "\n" not in found.left_out["calibrators"]
    assert found["diagnostics"] is not None


def test_only_the_parts_asked_for() -> None:
    traces = to_trace_set(oslo_records())
    found = report_parts(traces, compared(traces, "fixed-1"), PartsSettings(parts=("costs",)))
    assert found["costs"]
    assert (found["diagnostics"], found.left_out) == (None, {})
    with pytest.raises(UsageError, match="'cost'"):
        PartsSettings(parts=("cost",))
    assert PartsSettings().parts == PARTS


def with_round_zero(each: QuestionRecord) -> QuestionRecord:
    number = int(each.question.id[1:])
    closed = replace(each.rounds[0], answer="Oslo" if number % 4 else "Rome", passages=None)
    return replace(each, closed_book=closed)


def test_closed_book_has_no_scores_of_a_round() -> None:
    made = [
        with_round_zero(replace(each, question=replace(each.question, type="bridge")))
        for each in oslo_records()
    ]
    traces = to_trace_set(made)
    found = report_parts(traces, compared(traces, "closed-book", "fixed-1"))
    assert [each["policy"] for each in found["types"][0]["policies"]] == ["fixed-1", "fixed-3"]
    against = compared(traces, "fixed-1", baseline="closed-book")
    left_out = report_parts(traces, against).left_out
    assert "'closed-book'" in left_out["question types"]


RULE = "answer_stable and calibrated(answer_token_margin) > 0.2"


def found(
    signals: tuple[str, ...] | None = None, *, split: bool = True, rules: tuple[str, ...] = (RULE,)
) -> Diagnosis:
    drawn = drawn_records(
        40, ["Oslo", "Rome", "unknown"], seed=0, split=eval_and_tune if split else lambda _: None
    )
    made = []
    for number, record in enumerate(drawn):
        kind = "comparison" if number < 12 else "bridge\u202e"
        question = replace(record.question, type=kind)
        made.append(replace(with_rounds(record, verbalized_confidence=5.0), question=question))
    settings = DiagnosisSettings(signals=signals, resamples=30, rules=rules)
    return diagnosis(to_trace_set(made), settings)


def test_the_verdict_comes_first_and_the_most_useful_signals_after_it() -> None:
    result = found()
    table = result.named("signals")
    assert result.text().startswith(
        f"Which signals tell right from wrong answers? {result.signals.verdict}"[:70]
    )
    uses, areas = table.data()["use"], table.data()["eval: auroc"]
    assert uses == sorted(uses, key=USES.index)
    assert set(uses) > {"useful", "uninformative"}
    useful = [float(area or 0) for area, use in zip(areas, uses, strict=True) if use == "useful"]
    assert useful == sorted(useful, reverse=True)
    for name, use, low, high in zip(
        *(table.data()[key] for key in ("signal", "use", "eval: auroc_low", "eval: auroc_high")),
        strict=True,
    ):
        if low is not None:
            assert (use == "uninformative") == (low <= 0.5 <= high), name
    assert f"{uses.count('uninformative')} uninformative" in result.signals.verdict


KINDS = ("comparison", "bridge", None)


def comparison() -> Comparison:
    rng = np.random.default_rng(2)
    made = []
    for number in range(48):
        answers = [str(rng.choice(["Oslo", "Rome", "Oslo city"])) for _ in range(3)]
        record = make_record(f"q{number:02d}", answers, gold=["Oslo"] if number % 8 else [])
        kind = KINDS[0] if number < 30 else KINDS[1] if number < 40 else KINDS[2]
        made.append(replace(record, question=replace(record.question, type=kind)))
    settings = ComparisonSettings(
        policies=("fixed-1", "oracle-em", "fixed-3"), rules=("answer_stable",), resamples=200
    )
    return compare(to_trace_set(made), settings)


def test_each_type_is_a_replay_of_its_own() -> None:
    found = comparison()
    scored = found.measures.scores()
    by_type = breakdown(found.traces, found.result)
    assert [each["type"] for each in by_type] == ["bridge", "comparison", None]
    assert [each["questions"] for each in by_type] == [10, 30, 8]
    assert [each["labelled"] for each in by_type] == [9, 26, 7]
    assert [each["few"] for each in by_type] == [True, False, True]
    for each in by_type:
        rows = np.array([question.type == each["type"] for question in found.traces.questions])
        labelled = rows & scored.labelled
        base = found.result.policies[2]
        assert base.name == found.result.baseline == "fixed-3"
        base_f1 = scored.f1[np.arange(48), base.stops - 1][labelled]
        n = int(labelled.sum())
        drawn = np.random.default_rng(42).integers(0, n, size=(200, n))
        for policy, part in zip(found.result.policies, each["policies"], strict=True):
            assert part["policy"] == policy.name
            f1 = scored.f1[np.arange(48), policy.stops - 1][labelled]
            assert part["f1"] == pytest.approx(f1.mean())
            assert part["mean_rounds"] == pytest.approx(policy.stops[rows].mean())
            assert part["delta_f1"] is not None
            difference = f1 - base_f1
            assert part["delta_f1"].estimate == pytest.approx(difference.mean())
            slow = np.percentile([difference[row].mean() for row in drawn], [2.5, 97.5])
            found_ends = (part["delta_f1"].low, part["delta_f1"].high)
            if policy is base:
                assert found_ends == (0.0, 0.0)
            else:  # of fewer than 60 questions: the exact interval, which is wider
                assert found_ends[0] < slow[0]
                assert found_ends[1] > slow[1]
    # the types add up to the whole
    for number, policy in enumerate(found.result.policies):
        total = sum((each["policies"][number]["em"] or 0.0) * each["labelled"] for each in by_type)
        assert total / 42 == pytest.approx(policy.em)


def told(policy: Rule, *answers: str) -> ReportData:
    traces = to_trace_set([make_record("q", answers, gold=["none"])])
    candidate = NamedPolicy(name="p", kind=policy.kind, preset=None, policy=policy)
    result = replay(traces, [candidate], ComparisonSettings(baseline="p", resamples=10))
    return report_data(traces, result)


def test_the_reason_reads_the_policys_own_abstentions() -> None:
    rule = "answer_stable and not abstained"
    own = told(Rule(rule=rule, abstention=("unknown",)), "none", "none", "x").stories[0]
    assert own.stops[0].round == 2
    assert own.stops[0].reason == (f"{rule} holds at round 2: answer_stable = 1, abstained = 0")
    # the page itself shows the signal as its name means it
    assert own.signals["abstained"].tolist() == [1.0, 1.0, 0.0]
    usual = told(Rule(rule=rule), "none", "none", "x").stories[0]
    assert usual.stops[0].round == 3
    assert usual.stops[0].reason.startswith("the record or the budget ends here")


SIGNALS = DiagnosisSettings(signals=("answer_stable", "answer_token_margin"), resamples=20)


def test_without_a_policy_every_fixed_k_is_broken_down() -> None:
    found = diagnosis(to_trace_set(random_records(30)), SIGNALS)
    assert [each.name for each in found.replayed.policies] == ["fixed-1", "fixed-2", "fixed-3"]
    assert found.replayed.split == "eval"
    assert found.selective == ()
    assert not any("confidence" in note for note in found.notes)

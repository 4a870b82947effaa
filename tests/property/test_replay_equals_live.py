"""What was replayed is what runs: one definition of every policy, held by generated traces."""

from __future__ import annotations

import functools
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray
from tests.properties import examples

from suffice.errors import UsageError
from suffice.numbers.conformal.order_statistics import Threshold
from suffice.numbers.maps.isotonic import IsotonicMap
from suffice.numbers.maps.per_round import PerRoundCalibrator
from suffice.numbers.maps.platt import LogisticMap
from suffice.numbers.maps.shrunken import mix
from suffice.numbers.maps.venn_abers import StepMap
from suffice.pipelines.live.controller import Controller
from suffice.policies.ab_rag.policy import ABRagPolicy
from suffice.policies.file import load_policy, policy_document, save_policy
from suffice.policies.fixed import FixedPolicy
from suffice.policies.gate.policy import GatePolicy
from suffice.policies.gate.risk import RiskModel
from suffice.policies.gate.settings import GateCosts, GateSettings
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.rules.policy import RulePolicy
from suffice.policies.stop_rag.policy import StopRAGPolicy
from suffice.policies.stop_rag.signal_model import SignalModel, SignalNetwork, weight_shapes
from suffice.protocols import ConfidentPolicy, PolicyTable, StopPolicy
from suffice.signals.available import lack
from suffice.signals.registry import SIGNALS
from suffice.signals.table import signal_table
from suffice.testing.conformance import check_checkpoints, check_policy, incomplete_rounds
from suffice.testing.traces import make_record, question_records, to_trace_set
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord, Round
from suffice.trace.rounds.writer import write_traces

MARGIN = PerRoundCalibrator(
    maps=(
        IsotonicMap(x=(0.0, 0.5, 3.0), y=(0.1, 0.3, 0.9), undefined=None),
        IsotonicMap(x=(0.25,), y=(0.26,), undefined=None),
        IsotonicMap(x=(0.1, 0.5), y=(0.0, 1.0), undefined=0.5),
    ),
    absent=None,
)

OTHER_KINDS = (
    PerRoundCalibrator(  # platt, one round fallen back to its mean
        maps=(
            LogisticMap(slope=1.7, intercept=-2.0, undefined=None),
            IsotonicMap(x=(0.0,), y=(0.3,), undefined=None),
            LogisticMap(slope=-0.4, intercept=0.1, undefined=0.5),
        )
    ),
    PerRoundCalibrator(  # venn-abers
        maps=(
            StepMap(x=(0.0, 0.5), at=(0.1, 0.3), between=(0.05, 0.2, 0.6)),
            StepMap(x=(0.5,), at=(0.25,), between=(0.2, 0.3), undefined=0.5),
        ),
        absent=0.5,
    ),
    PerRoundCalibrator(beyond=IsotonicMap(x=(0.0, 3.0), y=(0.1, 0.9))),  # isotonic-global
    PerRoundCalibrator(  # shrunken
        maps=(mix(MARGIN.maps[0], IsotonicMap(x=(0.2, 4.0), y=(0.0, 0.8)), 1 / 3),),  # type: ignore[arg-type]
        beyond=IsotonicMap(x=(0.2, 4.0), y=(0.0, 0.8)),
    ),
)

RULES = (
    "answer_stable",
    "answer_stable and not abstained and calibrated(answer_token_margin) > 0.25",
    "answer_stable_published and calibrated(answer_token_margin) > 0.25",
    "not answer_stable or overlap >= 0.25",
    "at_least(2, answer_stable, self_consistency > 0.5, normalized_entropy < 0.4, round >= 3)",
    "overlap_idf != 0.5 and not (retrieval_gap > 2)",
    "0.2 < margin_p10 <= 3 or margin_min == margin_mean",
    "base_rate() > 0.25 and answer_in_evidence",
    "token_probability > 0.5 and verbalized_confidence >= 3",
    "retrieval_z > 1 or retrieval_z_robust > 1 or answer_similarity_f1 > 0.9",
    "since_highest(self_consistency) >= 1 or change(answer_similarity_f1) < -0.2",
    "stalling(1 - self_consistency) >= 2 or diverging(normalized_entropy) or gain(overlap) > 1.2",
    "judge_support >= 4 or answer_similarity_seq > 0.8 or top_cluster_confidence > 0.7",
)


@functools.cache
def policies() -> tuple[StopPolicy, ...]:
    built: list[StopPolicy] = [FixedPolicy(k) for k in (1, 3, 9)]
    built += [
        RulePolicy(
            rule=rule,
            calibrators={"answer_token_margin": MARGIN},
            base_rates=(0.1, 0.3, float("nan")),
        )
        for rule in RULES
    ]
    built += [
        RulePolicy(rule=rule, calibrators={"answer_token_margin": calibrator})
        for calibrator in OTHER_KINDS
        for rule in (
            "calibrated(answer_token_margin) > 0.25",
            "round >= 2 and calibrated(answer_token_margin) <= 0.5",
        )
    ]
    built.append(RulePolicy(rule="not abstained", abstention=("bergen",)))
    built.append(ABRagPolicy(weights={"token_probability": 0.8, "rerank_variance": 0.7}))
    built.append(
        ABRagPolicy(
            weights={"self_consistency": 1.7, "answer_in_evidence": -0.4, "overlap": 0.3},
            undefined={"answer_in_evidence": 0.2},
            intercept=-0.9,
            link="logistic",
            threshold=0.55,
            reads_abstention=True,
            abstention=("bergen",),
            preset="corrected",
        )
    )
    built.append(learned())
    built.append(
        MiCPPolicy(
            alpha=0.1,
            rounds=4,
            samples=3,
            stops=(Threshold(0.0, 0.5), Threshold(0.7, 0.25), Threshold(0.5)),
            final=-math.inf,
        )
    )
    built += gates()
    return tuple(built)


def gates() -> list[StopPolicy]:
    """As published, which never stops early, and fitted ones that do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the published gate says that it cannot EXECUTE
        settings = [GateSettings.published()]
        settings += [
            GateSettings.corrected(
                RiskModel(
                    disagreement=disagreement, contradiction=0.7, remaining=0.9, intercept=intercept
                ),
                GateCosts(retrieval=1, failure=failure),
            )
            for disagreement, intercept, failure in ((1.3, 0.8, 2.0), (0.2, 0.3, 1.8))
        ]
        return [GatePolicy(settings=each, rounds=rounds) for each in settings for rounds in (3, 6)]


def learned() -> StopPolicy:
    """Stop-RAG over signals, with weights drawn at random."""
    names = ("answer_stable", "overlap", "abstained")
    rng = np.random.default_rng(0)
    tensors = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in weight_shapes(len(names), 5).items()
    }
    tensors["spread"] = np.ones(len(names), np.float32)
    model = SignalModel.of(SignalNetwork(names=names, tensors=tensors))
    return StopRAGPolicy(model=model, threshold=0.2, rounds=4)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(records=question_records())
def test_first_live_stop_is_the_replayed_one(records: list[QuestionRecord]) -> None:
    for policy in policies():
        check_policy(policy, records)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(records=question_records())
def test_first_live_stop_is_the_replayed_one_in_many_traces(records: list[QuestionRecord]) -> None:
    for policy in policies():
        check_policy(policy, records)


@pytest.mark.filterwarnings("ignore:EXECUTE can never be chosen")
@settings(deadline=None, max_examples=5, suppress_health_check=list(HealthCheck))
@given(records=question_records(max_questions=3))
def test_it_holds_through_files(records: list[QuestionRecord], tmp_path: Path) -> None:
    """The same for the policy and the rounds read back from disk."""
    check_through_files(records, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:EXECUTE can never be chosen")
@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(records=question_records(max_questions=3))
def test_it_holds_through_many_files(records: list[QuestionRecord], tmp_path: Path) -> None:
    check_through_files(records, tmp_path)


def check_through_files(records: list[QuestionRecord], tmp_path: Path) -> None:
    write_traces(records, tmp_path / "traces.parquet")
    traces = read_traces(tmp_path / "traces.parquet")
    read_back = list(traces.records())
    for policy in policies():
        save_policy(policy, tmp_path / "policy.json")
        loaded = load_policy(tmp_path / "policy.json").policy
        assert policy_document(loaded) == policy_document(policy)
        check_policy(loaded, records)
        check_policy(policy, read_back)
        check_checkpoints(policy, records)


@settings(deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
@given(records=question_records())
def test_signals_are_the_same_live_and_from_a_trace(records: list[QuestionRecord]) -> None:
    traces = to_trace_set(records)
    computable = [spec for spec in SIGNALS.values() if not spec.recorded_only]
    computable = [spec for spec in computable if lack(spec, traces) is None]
    table = signal_table(traces, computable)
    for index, record in enumerate(traces.records()):
        controller = Controller(_Reads(tuple(computable)))
        with incomplete_rounds():
            for finished in record.rounds:
                controller.observe(finished)
        for spec in computable:
            replayed = table.signal(spec.name)[index, : len(record.rounds)]
            live = np.array(controller.signals[spec.name])
            np.testing.assert_array_equal(replayed, live, err_msg=spec.name)


@settings(deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
@given(records=question_records())
def test_confidence_is_the_same_live_and_from_a_trace(records: list[QuestionRecord]) -> None:
    traces = to_trace_set(records)
    for policy in policies():
        if not isinstance(policy, ConfidentPolicy):
            continue
        if any(lack(spec, traces) for spec in policy.specs):
            continue
        replayed = policy.confidence(signal_table(traces, policy.specs))
        for index, record in enumerate(traces.records()):
            controller = Controller(policy)
            for number, finished in enumerate(record.rounds):
                with incomplete_rounds():
                    decision = controller.observe(finished)
                wanted = None if replayed is None else float(replayed[index, number])
                live = decision.confidence
                assert live == (None if wanted is None or math.isnan(wanted) else wanted)
                if decision.stop:
                    break


class _Reads(FixedPolicy):
    """Reads signals and never stops."""

    def __init__(self, specs: tuple[object, ...]) -> None:
        object.__setattr__(self, "rounds", 10_000)
        object.__setattr__(self, "_specs", specs)

    __slots__ = ("_specs",)

    @property
    def specs(self):  # type: ignore[no-untyped-def]
        return self._specs  # type: ignore[attr-defined]


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(records=question_records())
def test_replay_refuses_exactly_the_records_without_any_input(
    records: list[QuestionRecord],
) -> None:
    traces = to_trace_set(records)
    for policy in policies():
        if any(lack(spec, traces) for spec in policy.specs):
            with pytest.raises(UsageError, match="does not hold"):
                signal_table(traces, policy.specs)
        else:
            assert signal_table(traces, policy.specs).n_questions == len(records)


def test_every_policy_names_what_a_loop_of_bare_answers_does_not_give() -> None:
    bare = Round(answer="Oslo")
    for policy in policies():
        controller = Controller(policy, strict=True)
        missing = [spec.name for spec in policy.specs if spec.needs or spec.recorded_only]
        if not missing:
            controller.observe(bare)
            continue
        with pytest.raises(UsageError, match="round 1 of this loop") as refused:
            controller.observe(bare)
        assert all(repr(name) in str(refused.value) for name in missing)


class _StopsOneRoundLate(FixedPolicy):
    """Replays another round than it decides."""

    def stop_rounds(self, table: PolicyTable) -> NDArray[np.int16]:
        return super().stop_rounds(table) + np.int16(1)


def test_the_check_notices_a_policy_with_two_definitions() -> None:
    records = [make_record("q", ["a", "b", "c"])]
    with pytest.raises(AssertionError, match="a stop at round 2, as live"):
        check_policy(_StopsOneRoundLate(2), records)

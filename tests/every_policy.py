"""Policies of every kind, for properties that hold of all of them."""

from __future__ import annotations

import functools
import math
import warnings

import numpy as np

from suffice.contracts import StopPolicy
from suffice.policies.ab_rag.policy import ABRagPolicy
from suffice.policies.gate.gate_settings import GateCosts, GateSettings, RiskModel
from suffice.policies.gate.policy import GatePolicy
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.rules.policy import Rule
from suffice.policies.stop_rag.policy import StopRAGPolicy
from suffice.policies.stop_rag.signal_network import SignalNetwork, weight_shapes
from suffice.policies.unfitted import FixedPolicy
from suffice.stats.conformal import Threshold
from suffice.stats.maps import IsotonicMap, LogisticMap, PerRoundCalibrator, StepMap, mix

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
    PerRoundCalibrator(
        beyond=IsotonicMap(x=(-3.0, 0.0), y=(0.1, 0.9)), falls=True
    ),  # isotonic-global
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
        Rule(
            rule=rule,
            calibrators={"answer_token_margin": MARGIN},
            base_rates=(0.1, 0.3, float("nan")),
        )
        for rule in RULES
    ]
    built += [
        Rule(rule=rule, calibrators={"answer_token_margin": calibrator})
        for calibrator in OTHER_KINDS
        for rule in (
            "calibrated(answer_token_margin) > 0.25",
            "round >= 2 and calibrated(answer_token_margin) <= 0.5",
        )
    ]
    built.append(Rule(rule="not abstained", abstention=("bergen",)))
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
    model = SignalNetwork(names=names, tensors=tensors)
    return StopRAGPolicy(model=model, threshold=0.2, rounds=4)

"""Diagnostics of recorded traces against figures published beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from suffice.evaluation.diagnose.signal_diagnostics import diagnose
from suffice.evaluation.replay.compare import compare
from suffice.evaluation.replay.results import ReplayResult
from suffice.evaluation.settings import ComparisonSettings, DiagnosisSettings
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.trace_set import TraceSet

# AUROC of S1, S2, S3 at round 1 against round-1 exact match (METHODS section 3)
SINGLE_SIGNALS = {
    "ollama": {"self_consistency": 0.651, "evidence_consistency": 0.568, "rerank_variance": 0.550},
    "local": {"token_probability": 0.607, "evidence_consistency": 0.517, "rerank_variance": 0.571},
}


@pytest.fixture
def traces_of(data_folder: Path) -> Callable[[str], TraceSet]:
    return lambda name: read_traces(data_folder / "traces" / f"{name}.parquet")


@pytest.mark.parametrize("log", ["ollama", "local"])
def test_single_signals_of_ab_rag(log: str, traces_of: Callable[[str], TraceSet]) -> None:
    published = SINGLE_SIGNALS[log]
    settings = DiagnosisSettings(signals=tuple(published), resamples=20)
    found = diagnose(traces_of(f"abrag_hotpotqa_{log}"), settings)
    for signal in found.signals:
        first = signal["parts"]["all"]["rounds"][0]
        assert first["auroc"].estimate == pytest.approx(published[signal["name"]], abs=0.0005)
        assert first["right"] + first["wrong"] == 200
        assert [flag.kind for flag in signal["flags"]] == ["look_ahead_unchecked"]


def test_the_verbalized_confidence_of_a_small_model_has_collapsed(qwen_traces: Path) -> None:
    settings = DiagnosisSettings(signals=("verbalized_confidence",), resamples=20)
    (signal,) = diagnose(read_traces(qwen_traces), settings).signals
    for part in signal["parts"].values():
        assert part["concentration"]["mode"] == 5.0
        assert part["concentration"]["mode_share"] > 0.99
        assert part["concentration"]["entropy_nats"] < 0.05
    assert signal["parts"]["eval"]["auroc"].estimate is None


# EM in percent of no retrieval, one retrieval, iterative retrieval (traces/README.md)
PUBLISHED_EM = {
    "hotpotqa": (27.6, 36.2, 41.6),
    "2wiki": (26.6, 28.0, 36.2),
    "musique": (9.0, 11.2, 16.0),
    "nq": (31.2, 32.4, 34.2),
    "trivia": (63.2, 60.0, 60.8),
    "squad": (14.4, 24.0, 23.4),
}


def replayed(
    traces: TraceSet, *policies: str, rules: tuple[str, ...] = (), baseline: str | None = None
) -> ReplayResult:
    settings = ComparisonSettings(policies=policies, rules=rules, baseline=baseline, resamples=20)
    return compare(traces, settings).result


def test_routes_give_the_published_exact_match(traces_of: Callable[[str], TraceSet]) -> None:
    whole = traces_of("routes_llama8b_dev")
    kinds = [question.type or "" for question in whole.questions]
    assert set(Counter(kinds).values()) == {500}
    for kind in sorted(set(kinds)):
        (published,) = [em for name, em in PUBLISHED_EM.items() if name in kind.lower()]
        part = whole.take(np.array([each == kind for each in kinds]))
        asked = ComparisonSettings(
            policies=("fixed-1", "fixed-2", "fixed-3"), split=None, resamples=20
        )
        result = compare(part, asked).result
        found = [100 * (each.em or 0.0) for each in result.policies]
        assert result.questions == 500
        assert found == pytest.approx(published, abs=1e-9), kind


def test_a_real_trace_pays_its_samples_only_when_read(qwen_traces: Path) -> None:
    traces = read_traces(qwen_traces)
    result = replayed(traces, "fixed-5")
    fixed = result.policies[0].costs
    assert (fixed["llm_calls"], round(fixed["prompt_tokens"] or 0)) == (1.0, 971)
    reading = replayed(traces, rules=("self_consistency >= 0.8 and round >= 5",)).policies[0]
    assert reading.costs["llm_calls"] == 21.0  # five samples in rounds 1 to 4, and one answer
    assert reading.mean_rounds == 5.0

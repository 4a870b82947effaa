"""Diagnostics of recorded traces against figures published beside them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from suffice.evaluation.diagnose.signal_diagnostics import diagnose
from suffice.evaluation.settings import DiagnosisSettings
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.trace_set import TraceSet

DATA = os.environ.get("SUFFICE_DATA")
TRACES = Path(DATA or "") / "traces"
pytestmark = pytest.mark.skipif(
    not DATA or not TRACES.is_dir(), reason="SUFFICE_DATA does not name the recorded traces"
)

# AUROC of S1, S2, S3 at round 1 against round-1 exact match (METHODS section 3)
SINGLE_SIGNALS = {
    "ollama": {"self_consistency": 0.651, "evidence_consistency": 0.568, "rerank_variance": 0.550},
    "local": {"token_probability": 0.607, "evidence_consistency": 0.517, "rerank_variance": 0.571},
}


def traces_of(name: str) -> TraceSet:
    return read_traces(TRACES / f"{name}.parquet")


@pytest.mark.parametrize("log", ["ollama", "local"])
def test_single_signals_of_ab_rag(log: str) -> None:
    published = SINGLE_SIGNALS[log]
    settings = DiagnosisSettings(signals=tuple(published), resamples=20)
    found = diagnose(traces_of(f"abrag_hotpotqa_{log}"), settings)
    for signal in found.signals:
        first = signal["parts"]["all"]["rounds"][0]
        assert first["auroc"].estimate == pytest.approx(published[signal["name"]], abs=0.0005)
        assert first["right"] + first["wrong"] == 200
        assert [flag.kind for flag in signal["flags"]] == ["look_ahead_unchecked"]


def test_the_verbalized_confidence_of_a_small_model_has_collapsed() -> None:
    settings = DiagnosisSettings(signals=("verbalized_confidence",), resamples=20)
    (signal,) = diagnose(traces_of("hotpotqa_qwen1.5b"), settings).signals
    for part in signal["parts"].values():
        assert part["concentration"]["mode"] == 5.0
        assert part["concentration"]["mode_share"] > 0.99
        assert part["concentration"]["entropy_nats"] < 0.05
    assert signal["parts"]["eval"]["auroc"].estimate is None

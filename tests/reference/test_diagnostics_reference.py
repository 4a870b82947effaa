"""Diagnostics of recorded traces against figures published beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffice.replay.diagnose.signal_diagnostics import diagnose
from suffice.replay.settings import DiagnosticsSettings
from suffice.trace.rounds.reader import read_traces

# AUROC of S1, S2, S3 at round 1 against round-1 exact match (METHODS section 3)
SINGLE_SIGNALS = {
    "ollama": {"self_consistency": 0.651, "evidence_consistency": 0.568, "rerank_variance": 0.550},
    "local": {"token_probability": 0.607, "evidence_consistency": 0.517, "rerank_variance": 0.571},
}


@pytest.mark.parametrize("log", ["ollama", "local"])
def test_single_signals_of_ab_rag(log: str, data_folder: Path) -> None:
    published = SINGLE_SIGNALS[log]
    traces = read_traces(data_folder / "traces" / f"abrag_hotpotqa_{log}.parquet")
    for signal in diagnose(
        traces, DiagnosticsSettings(signals=tuple(published), resamples=20)
    ).signals:
        first = signal["parts"]["all"]["rounds"][0]
        assert first["auroc"].estimate == pytest.approx(published[signal["name"]], abs=0.0005)
        assert first["right"] + first["wrong"] == 200


def test_the_verbalized_confidence_of_a_small_model_has_collapsed(qwen_traces: Path) -> None:
    settings = DiagnosticsSettings(signals=("verbalized_confidence",), resamples=20)
    (signal,) = diagnose(read_traces(qwen_traces), settings).signals
    for part in signal["parts"].values():
        assert part["concentration"]["mode"] == 5.0
        assert part["concentration"]["mode_share"] > 0.99
    assert signal["parts"]["eval"]["auroc"].estimate is None

"""Diagnostics of recorded traces against figures published beside them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from suffice.evaluation.diagnose.diagnosis import selective
from suffice.evaluation.diagnose.signal_diagnostics import diagnose
from suffice.evaluation.settings import DiagnosisSettings
from suffice.measures.measures import Measures
from suffice.signals.signal_table import signal_table
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


def test_selective_prediction_of_ab_rag() -> None:
    """Conf at the last recorded round of the Ollama log: AUROC 0.644; 155 above 0.6, 45 below."""
    traces = traces_of("abrag_hotpotqa_ollama")
    weights = {"self_consistency": 0.70, "evidence_consistency": 0.05, "rerank_variance": 0.25}
    table = signal_table(traces, weights)
    rows, last = np.arange(traces.n_questions), traces.last_rounds - 1
    confidence = sum(
        (weight * table.signal(name)[rows, last] for name, weight in weights.items()),
        start=np.zeros(traces.n_questions),
    )
    scored = Measures(traces).scores()
    at_stop = {
        "em": scored.em[rows, last],
        "f1": scored.f1[rows, last],
        "abstained": np.zeros(traces.n_questions, bool),
    }
    found = selective(confidence, at_stop, DiagnosisSettings(threshold=0.6, resamples=20))
    assert found["auroc"].estimate == pytest.approx(0.644, abs=0.0005)
    assert (found["above"]["questions"], found["below"]["questions"]) == (155, 45)
    assert found["above"]["em"].estimate == pytest.approx(0.516, abs=0.0005)
    assert found["below"]["em"].estimate == pytest.approx(0.222, abs=0.0005)


def test_the_verbalized_confidence_of_a_small_model_has_collapsed() -> None:
    settings = DiagnosisSettings(signals=("verbalized_confidence",), resamples=20)
    (signal,) = diagnose(traces_of("hotpotqa_qwen1.5b"), settings).signals
    for part in signal["parts"].values():
        assert part["concentration"]["mode"] == 5.0
        assert part["concentration"]["mode_share"] > 0.99
        assert part["concentration"]["entropy_nats"] < 0.05
    assert signal["parts"]["eval"]["auroc"].estimate is None

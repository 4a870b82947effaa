"""Diagnostics of recorded traces against figures published beside them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from suffice.replay.diagnose.signal_diagnostics import diagnose
from suffice.replay.settings import DiagnosticsSettings
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.table import TraceSet

DATA = os.environ.get("SUFFICE_DATA")
TRACES = Path(DATA or "") / "traces"
pytestmark = pytest.mark.skipif(
    not DATA or not TRACES.is_dir(), reason="SUFFICE_DATA does not name the recorded traces"
)


def traces_of(name: str) -> TraceSet:
    return read_traces(TRACES / f"{name}.parquet")


def test_the_verbalized_confidence_of_a_small_model_has_collapsed() -> None:
    settings = DiagnosticsSettings(signals=("verbalized_confidence",), resamples=20)
    (signal,) = diagnose(traces_of("hotpotqa_qwen1.5b"), settings).signals
    for part in signal["parts"].values():
        assert part["concentration"]["mode"] == 5.0
        assert part["concentration"]["mode_share"] > 0.99
        assert part["concentration"]["entropy_nats"] < 0.05
    assert signal["parts"]["eval"]["auroc"].estimate is None

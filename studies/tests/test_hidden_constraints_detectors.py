from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from studies.hidden_constraints.contradiction_head import FEATURES, ContradictionHead, HeadWeights
from studies.hidden_constraints.detectors import NliContradiction, connect_detector
from tests.hashing_encoder import HashingEncoder

from suffice.retrieval.dense import OnnxEncoder
from suffice.signals.samples import MarkerDetector


def test_detectors_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = HashingEncoder(8)
    monkeypatch.setattr(OnnxEncoder, "load", lambda: encoder)
    assert isinstance(connect_detector("markers"), MarkerDetector)
    weights = HeadWeights(encoder=encoder.name, pole=np.ones(9), weights=np.ones(len(FEATURES) + 1))
    own = tmp_path / "own.npz"
    weights.write(own)
    found = connect_detector(str(own))
    assert isinstance(found, ContradictionHead)
    asked = [("open port 80", "close port 80")]
    expected = ContradictionHead(weights, encoder).contradictions(asked)
    assert found.contradictions(asked).tolist() == expected.tolist()


def test_the_higher_probability_of_both_orders_counts() -> None:
    class ByWords(NliContradiction):
        def entailed(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
            return np.array([len(first) / 10 for first, _ in pairs])

    asked = [("a", "bcd"), ("abcd", "b")]
    assert ByWords(None).contradictions(asked).tolist() == [0.3, 0.4]

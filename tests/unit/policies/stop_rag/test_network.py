"""What the network computes: matching and pooling against plain twins, and weights that fit."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from suffice.policies.stop_rag.encoder import TextEncoder
from suffice.policies.stop_rag.network import QNetwork, build_network
from suffice.policies.stop_rag.settings import SETTINGS, TrainSettings

torch = pytest.importorskip("torch", reason="the extra 'learn' is missing")

SMALL = TrainSettings(trained_layers=1, head_width=12, reader_width=6)


@pytest.fixture
def net(tiny: Path) -> QNetwork:
    return build_network(TextEncoder.load(str(tiny)), SMALL)


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
    assert not found.reads_alike
    assert len(found.parameters()[0]) == len(list(found.encoder.body.parameters()))


def test_weights_go_from_one_network_to_another(tiny: Path, net: QNetwork) -> None:
    other = build_network(TextEncoder.load(str(tiny)), SMALL)
    tokens = net.tokenizer.read("Who?", ["The mill.", "The wall."])
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

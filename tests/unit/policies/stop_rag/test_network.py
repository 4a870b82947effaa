"""Weights that fit a network; scoring gives the same bits in replay and live, from any thread."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from tests.stop_rag_traces import stop_rag_records

from suffice.policies.stop_rag.encoder import TextEncoder
from suffice.policies.stop_rag.network import QNetwork, TextScorer, build_network
from suffice.policies.stop_rag.states import texts_of_traces
from suffice.policies.stop_rag.stop_rag_settings import SETTINGS, Mode, TrainSettings
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import LoopView, QuestionRecord

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


# --- scoring --------------------------------------------------------------------------------------

RECORDS = stop_rag_records("single", 4, seed=1)


def scorer(folder: Path, mode: Mode = "separate") -> TextScorer:
    settings = TrainSettings(trained_layers=1, head_width=12, reader_width=6, mode=mode)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return TextScorer(build_network(TextEncoder.load(str(folder)), settings))


def views(records: list[QuestionRecord]) -> list[LoopView]:
    return [
        LoopView(each.question.text, each.rounds[:number])
        for each in records
        for number in range(1, len(each.rounds) + 1)
    ]


@pytest.mark.parametrize("mode", ["separate", "joined"])
def test_replay_and_live_give_the_same_bits(tiny: Path, mode: Mode) -> None:
    recorded = scorer(tiny, mode)
    replayed = np.array(
        [
            recorded.score_texts(states, number)
            for states in texts_of_traces(to_trace_set(RECORDS))
            for number in range(1, len(states.documents) + 1)
        ]
    )
    stop, cont = replayed.T
    assert np.isfinite(stop).all()
    assert len(np.unique(stop)) > 10
    live = scorer(tiny, mode)
    found = np.array([live.score(view) for view in reversed(views(RECORDS))])[::-1]
    np.testing.assert_array_equal(found[:, 0], stop)
    np.testing.assert_array_equal(found[:, 1], cont)


def test_a_document_is_read_once(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = scorer(tiny)
    read: list[int] = []
    encode = one.network.encode

    def counted(texts: list[object]) -> object:
        read.append(len(texts))
        return encode(texts)  # type: ignore[arg-type]

    monkeypatch.setattr(one.network, "encode", counted)
    for view in views(RECORDS[:1]):
        one.score(view)
        one.score(view)
    assert read == [1] * 6

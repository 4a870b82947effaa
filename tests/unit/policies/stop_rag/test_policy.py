"""The policy: what it decides, replayed and live, and its file with the weights beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch", reason="the extra 'learn' is missing")

from tests.stop_rag_traces import stop_rag_records

from suffice.errors import DataError, StorageError, UsageError
from suffice.live.controller import Controller
from suffice.policies.policy_file import load_policy, policy_hash, save_policy
from suffice.policies.stop_rag.encoder import TextEncoder
from suffice.policies.stop_rag.network import TextModel, build_network
from suffice.policies.stop_rag.policy import StopRAGPolicy
from suffice.policies.stop_rag.signal_network import SignalNetwork, free_inputs, weight_shapes
from suffice.policies.stop_rag.stop_rag_settings import TrainSettings
from suffice.signals.known_signals import SignalSpec, resolve
from suffice.signals.signal_table import first_stops, signal_table
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import Round

RECORDS = stop_rag_records("single", 12, rounds=5, seed=3)


@dataclass(frozen=True)
class Given:
    specs: tuple[SignalSpec, ...] = (resolve("q_stop"), resolve("q_cont"))
    summary: str = "numbers given"

    def values(
        self, columns: Mapping[str, NDArray[np.float64]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return columns["q_stop"], columns["q_cont"]

    def to_json(self) -> dict[str, Any]:
        return {"features": "given"}

    def weights(self) -> bytes:
        return b""


GIVEN: Any = Given()


def valued(stop: float, cont: float) -> Round:
    return Round(answer="a", signals={"q_stop": stop, "q_cont": cont})


def test_it_stops_where_the_difference_exceeds_the_threshold() -> None:
    controller = Controller(StopRAGPolicy(model=GIVEN, threshold=0.25, rounds=4))
    controller.start("q")
    assert not controller.observe(valued(0.5, 0.25)).stop  # equal is not above
    undefined = controller.observe(valued(float("nan"), 0.0))
    assert not undefined.stop
    assert undefined.values["difference"] is None
    decision = controller.observe(valued(0.75, 0.25))
    assert decision.stop
    assert decision.values == {"q_stop": 0.75, "q_cont": 0.25, "difference": 0.5, "threshold": 0.25}
    assert "+0.500 is above +0.250" in decision.reason


def test_held_back_it_stops_no_question_sooner() -> None:
    policy = signal_policy()
    table = signal_table(to_trace_set(RECORDS), policy.specs)
    stops, later = first_stops(policy, table), first_stops(policy.from_round(3), table)
    assert stops.min() < 3
    assert later.min() == 3
    np.testing.assert_array_equal(later[stops >= 3], stops[stops >= 3])
    assert policy.from_round(9).first == policy.rounds


def test_the_last_round_it_was_trained_for_ends_it() -> None:
    controller = Controller(StopRAGPolicy(model=GIVEN, threshold=0.0, rounds=2))
    controller.start("q")
    assert not controller.observe(valued(0.0, 1.0)).stop
    last = controller.observe(valued(0.0, 1.0))
    assert last.stop
    assert last.stopped_by == "policy"
    assert "the last of the 2" in last.reason


def text_policy(encoder: Path, threshold: float = 0.0) -> StopRAGPolicy:
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(5)
        settings = TrainSettings(trained_layers=1, head_width=12, reader_width=6)
        network = build_network(TextEncoder.load(str(encoder)), settings)
    return StopRAGPolicy(model=TextModel.of(network), threshold=threshold, rounds=5)


def signal_policy(seed: int = 0) -> StopRAGPolicy:
    names = ("answer_stable", "overlap", "abstained")
    rng = np.random.default_rng(seed)
    tensors = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in weight_shapes(len(names), 7).items()
    }
    tensors["spread"] = np.abs(tensors["spread"]) + np.float32(0.1)
    network = SignalNetwork(names=names, tensors=tensors)
    return StopRAGPolicy(model=network, threshold=0.1, rounds=5)


@pytest.mark.parametrize("step", range(4))
def test_weights_and_the_policy_that_names_them_are_replaced_together(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = signal_policy(1), signal_policy(2)
    save_policy(older, tmp_path)
    count = iter(range(100))
    for name in ("rename", "replace"):
        move = getattr(Path, name)

        def moved(self: Path, target: Any, move: Any = move) -> Path:
            if next(count) == step:
                raise OSError(28, "No space left on device")
            moved_to: Path = move(self, target)
            return moved_to

        monkeypatch.setattr(Path, name, moved)
    with pytest.raises(StorageError):
        save_policy(newer, tmp_path)
    assert policy_hash(load_policy(tmp_path).policy) == policy_hash(older)
    save_policy(newer, tmp_path)
    assert policy_hash(load_policy(tmp_path).policy) == policy_hash(newer)
    assert len(list(tmp_path.iterdir())) == 2


def test_values_recorded_by_another_network_are_not_read(tiny: Path) -> None:
    policy = text_policy(tiny)
    foreign = [replace(each, signals={"q_stop": 9.0, "q_cont": 0.0}) for each in RECORDS[0].rounds]
    traces = to_trace_set([replace(RECORDS[0], rounds=tuple(foreign))])
    stop, _ = policy.values(signal_table(traces, policy.specs))
    assert not (stop == 9.0).any()


def test_weights_that_do_not_belong_to_the_file(tiny: Path, tmp_path: Path) -> None:
    file = save_policy(text_policy(tiny), tmp_path / "p.json")
    weights = file.with_suffix(".safetensors")
    data = weights.read_bytes()
    weights.write_bytes(data[:-1])
    with pytest.raises(DataError, match="holds other weights"):
        load_policy(file)
    weights.unlink()
    with pytest.raises(DataError, match=r"they belong beside it in p\.safet"):
        load_policy(file)


def test_an_encoder_that_changed_is_refused(tiny: Path, make_encoder: Any, tmp_path: Path) -> None:
    file = save_policy(text_policy(tiny), tmp_path / "p")
    document = json.loads(file.read_text())
    document["network"]["encoder"] = str(make_encoder(seed=1))
    file.write_text(json.dumps(document))
    policy = load_policy(file).policy  # nothing is loaded yet
    with pytest.raises(UsageError, match="not the one the policy was trained on"):
        signal_table(to_trace_set(RECORDS), policy.specs)


def test_signals_learned_from_cost_no_further_call() -> None:
    names = free_inputs(to_trace_set(RECORDS))
    assert "answer_stable" in names
    assert not {"sample_agreement", "self_consistency", "q_stop", "llm_stop"}.intersection(names)
    assert free_inputs(to_trace_set(RECORDS), ["overlap"]) == ("overlap",)
    everything = free_inputs(to_trace_set(RECORDS), ["all"])
    assert set(names) < set(everything)
    assert "self_consistency" in everything
    with pytest.raises(UsageError, match="unknown signal"):
        free_inputs(to_trace_set(RECORDS), ["nothing"])

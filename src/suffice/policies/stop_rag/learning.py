"""Training of a value network from trajectories: build, train and return it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.policies.method import FitRun
from suffice.policies.stop_rag.encoder import Batch, Encoded, TextEncoder, Tokens, torch
from suffice.policies.stop_rag.network import QNetwork, build_network
from suffice.policies.stop_rag.states import States
from suffice.policies.stop_rag.stop_rag_settings import TrainSettings
from suffice.policies.stop_rag.targets import check_learnable
from suffice.policies.stop_rag.training import (
    Learned,
    TrainingProgress,
    Trajectories,
    Values,
    train,
)
from suffice.stats.units import Array

_READ_AT_ONCE = 32
_SCALE_TEXTS = 512  # texts whose spread the features are standardised by
_EVALUATED_AT_ONCE = 8  # trajectories


class TextLearner:
    """Trains a :class:`QNetwork <suffice.policies.stop_rag.network.QNetwork>`."""

    def __init__(
        self,
        network: QNetwork,
        parts: tuple[States, States],
        *,
        cache_bytes: int,
        progress: Callable[[Any], None] | None = None,
    ) -> None:
        self.network = network
        self.encoded: Encoded = network.tokenizer.encode(
            replace(states, documents=states.documents[:-1]) for states in chain(*parts)
        )
        self._starts = (0, len(parts[0]))
        self._kept = _Kept(network, self.encoded.texts, cache_bytes, progress)
        self.device: Any = network.encoder.device
        self.tokens: float = self._tokens()
        self.parameters: Callable[[], tuple[list[Any], list[Any]]] = network.parameters
        self.tensors: Callable[[], dict[str, Any]] = network.tensors
        self.load_tensors: Callable[[dict[str, Any]], None] = network.load_tensors
        network.set_scale(self._sample())

    def _tokens(self) -> float:
        sizes = [len(text.ids) for text in self.encoded.texts]
        reads = self.encoded.reads[: self._starts[1]]
        whole = [
            sum(sizes[place] for place in {p for one in states for p in one}) for states in reads
        ]
        return sum(whole) / max(1, len(whole))

    def batch_values(
        self, rows: NDArray[np.int64], shape: tuple[int, int]
    ) -> tuple[Values, Values]:
        """Those of the training trajectories ``rows``; only the heads drop out, so they alone run twice."""
        heads = self.network.heads
        pooled, decisions = self._states(rows + self._starts[0], shape, gradients=True)
        heads.eval()
        with torch.no_grad():
            estimates = self._values(pooled, decisions)
        heads.train()
        return self._values(pooled, decisions), estimates

    def validation_values(self, shape: tuple[int, int]) -> tuple[Array, Array]:
        """Values of all validation trajectories, each (n, T), without gradients."""
        self.network.heads.eval()
        kept: tuple[list[Any], list[Any]] = ([], [])
        with torch.no_grad():
            for start in range(0, shape[0], _EVALUATED_AT_ONCE):
                rows = np.arange(start, min(start + _EVALUATED_AT_ONCE, shape[0]))
                states = self._states(
                    rows + self._starts[1], (len(rows), shape[1]), gradients=False
                )
                for into, action_values in zip(kept, self._values(*states), strict=True):
                    into.append(action_values.double().cpu().numpy())
        return np.concatenate(kept[0]), np.concatenate(kept[1])

    def _states(
        self, rows: NDArray[np.int64], shape: tuple[int, int], *, gradients: bool
    ) -> tuple[Any, Any]:
        """The heads' inputs (S, X), and which places (b, T) are decisions, S of them."""
        reads = [self.encoded.reads[row] for row in rows]
        needed = sorted({place for states in reads for state in states for place in state})
        local = {place: number for number, place in enumerate(needed)}
        states = [state for one in reads for state in one]
        most = max(map(len, states), default=0)
        members = torch.full((len(states), max(1, most)), -1, dtype=torch.long)
        for row, state in enumerate(states):
            members[row, : len(state)] = torch.tensor([local[place] for place in state])
        seen = [number for row in rows for number in self.encoded.documents[row]]
        # halves the time where the hardware has it
        with _autocast(self.device, on=gradients and self.device.type == "cuda"):
            features = self._features(needed)
        network = self.network
        pooled = network.pool(
            network.read(features),
            members.to(self.device),
            torch.tensor(seen, dtype=torch.float32, device=self.device),
        )
        decisions = torch.zeros(shape, dtype=torch.bool)
        for row, one in enumerate(reads):
            decisions[row, : len(one)] = True
        return pooled, decisions.to(self.device)

    def _values(self, pooled: Any, decisions: Any) -> Values:
        dense = [torch.zeros(decisions.shape, device=self.device) for _ in range(2)]
        for into, values in zip(dense, self.network.values(pooled), strict=True):
            into[decisions] = values
        return dense[0], dense[1]

    def _features(self, places: Sequence[int]) -> Any:
        if not places:
            return torch.zeros((0, len(self.network.centre)), device=self.device)
        batch = self.network.encoder.batch([self.encoded.texts[place] for place in places])
        tokens = self._kept.tokens(places, batch)
        with _autocast(self.device, on=False):
            return self.network.features(batch, tokens.float())

    def _sample(self) -> Any:
        """Features of texts spread over all there are, (P, F)."""
        count = len(self.encoded.texts)
        chosen = np.unique(np.linspace(0, count - 1, min(count, _SCALE_TEXTS)).astype(int))
        with torch.no_grad():
            blocks = [
                self._features(chosen[start : start + _READ_AT_ONCE].tolist())
                for start in range(0, len(chosen), _READ_AT_ONCE)
            ]
        return torch.cat(blocks) if blocks else self._features([])


class _Kept:
    """The tokens' vectors of every text in float16, where the encoder stays as it is and all of them fit."""

    def __init__(
        self,
        network: QNetwork,
        texts: Sequence[Tokens],
        cache_bytes: int,
        progress: Callable[[Any], None] | None,
    ) -> None:
        self._encoder, self._texts, self._fixed = network.encoder, texts, network.reads_alike
        self._vectors: dict[int, Any] = {}
        size = 2 * network.encoder.width * sum(len(text.ids) for text in texts)
        if not self._fixed or size > cache_bytes:
            return
        order = sorted(range(len(texts)), key=lambda place: len(texts[place].ids))
        for start in range(0, len(order), _READ_AT_ONCE):
            places = order[start : start + _READ_AT_ONCE]
            self._vectors |= self._read(places)
            if progress:
                done = start + len(places)
                progress(TrainingProgress(stage="read", done=done, total=len(order)))

    def _read(self, places: Sequence[int]) -> dict[int, Any]:
        texts = [self._texts[place] for place in places]
        with torch.no_grad():
            vectors = self._encoder.tokens(self._encoder.batch(texts)).half()
        return {
            place: vectors[row, : len(text.ids)].clone()
            for row, (place, text) in enumerate(zip(places, texts, strict=True))
        }

    def tokens(self, places: Sequence[int], batch: Batch) -> Any:
        """The tokens' vectors, (P, L, width)."""
        if not self._fixed:
            return self._encoder.tokens(batch)
        held = self._vectors or self._read(places)
        size = (*batch.ids.shape, self._encoder.width)
        vectors = torch.zeros(size, device=self._encoder.device)
        for row, place in enumerate(places):
            vectors[row, : len(held[place])] = held[place]
        return vectors


def _autocast(device: Any, *, on: bool) -> AbstractContextManager[Any]:
    context: AbstractContextManager[Any] = torch.autocast(device.type, torch.bfloat16, enabled=on)
    return context


def train_network(
    training: Trajectories,
    validation: Trajectories,
    settings: TrainSettings,
    run: FitRun | None = None,
) -> Learned:
    """Build a network and train it; the same inputs on the same machine give the same weights."""
    check_learnable(training.rewards, training.lengths, validation.lengths, settings.target)
    automatic = "cuda" if torch.cuda.is_available() else "cpu"
    device = automatic if settings.device == "auto" else settings.device
    encoder = TextEncoder.load(settings.encoder, device=device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = build_network(encoder, settings)
    run = run or FitRun()
    parts = training.states, validation.states
    learner = TextLearner(network, parts, cache_bytes=settings.cache_bytes, progress=run.progress)
    fitted = train(learner, (training, validation), settings, run)
    return Learned(
        network=network,
        fitted=fitted,
        truncation=learner.encoded.truncation,
        notes=_notes(training, validation, learner.encoded.truncation, network),
    )


def _notes(
    training: Trajectories, validation: Trajectories, cut: Mapping[str, int], network: QNetwork
) -> tuple[str, ...]:
    """What was left out or cut."""
    notes = []
    single = sum(int((part.lengths < 2).sum()) for part in (training, validation))
    if single:
        notes.append(f"{single} questions of one round decide nothing and were not learned from")
    window = network.shape.window
    if cut["states_cut"]:
        notes.append(
            f"{cut['states_cut']} of {cut['states']} states lost documents or parts of them to the window "
            f"of {window} tokens"
        )
    if cut["questions_cut"]:
        notes.append(
            f"{cut['questions_cut']} of {cut['questions']} questions were cut to fit the window of {window} "
            "tokens"
        )
    return tuple(notes)

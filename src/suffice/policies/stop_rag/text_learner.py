"""A network and the states it learns from: tokens made once, activations of frozen layers kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.policies.stop_rag.encoder import Batch, torch_module
from suffice.policies.stop_rag.encoding import Encoded, Tokens, Truncation
from suffice.policies.stop_rag.network import QNetwork
from suffice.policies.stop_rag.settings import Precision
from suffice.policies.stop_rag.states import StateTexts

__all__ = ["TextLearner", "computes_in_bfloat16"]

_READ_AT_ONCE = 32
_SCALE_TEXTS = 512  # texts whose spread the features are standardised by
_EVALUATED_AT_ONCE = 8  # trajectories


class TextLearner:
    """Trains a :class:`QNetwork <suffice.policies.stop_rag.network.QNetwork>`.

    The last round of a trajectory is no decision and never read.

    Parameters
    ----------
    network
        What is trained.
    parts
        The training trajectories and those of validation.
    cache_bytes
        Most memory for kept activations.
    precision
        Of the trained layers.
    on_read
        Called with how many texts were read and how many there are.
    """

    def __init__(
        self,
        network: QNetwork,
        parts: tuple[Sequence[StateTexts], Sequence[StateTexts]],
        *,
        cache_bytes: int,
        precision: Precision,
        on_read: Callable[[int, int], None] | None = None,
    ) -> None:
        decisions = [[_without_last(each) for each in part] for part in parts]
        self.network = network
        self.encoded = network.tokenizer.encode([each for part in decisions for each in part])
        self.truncation: Truncation = self.encoded.truncation
        self._starts = (0, len(decisions[0]))
        self._bfloat16 = precision == "bfloat16"
        self._kept = _Activations(network, self.encoded.texts, cache_bytes, on_read)
        network.set_scale(self._sample())

    @property
    def digest(self) -> str:
        """SHA-256 of the tokens learned from."""
        return _digest(self.encoded)

    @property
    def tokens(self) -> float:
        """Tokens of a training trajectory, on average."""
        sizes = [len(each.ids) for each in self.encoded.texts]
        reads = self.encoded.reads[: self._starts[1]]
        whole = [sum(sizes[place] for place in {p for one in each for p in one}) for each in reads]
        return sum(whole) / max(1, len(whole))

    @property
    def device(self) -> Any:
        """Where the network computes."""
        return self.network.encoder.device

    def parameters(self) -> tuple[list[Any], list[Any]]:
        """What is trained, of the encoder and of the heads."""
        return self.network.parameters()

    def tensors(self) -> dict[str, Any]:
        """The weights that training changes."""
        return self.network.tensors()

    def load_tensors(self, tensors: dict[str, Any]) -> None:
        """Take weights over."""
        self.network.load_tensors(tensors)

    def batch_values(self, rows: NDArray[np.int64], shape: tuple[int, int]) -> tuple[Any, Any]:
        """Values of the training trajectories ``rows`` with gradients, each (b, T); 0 at no decision."""
        self.network.heads.train()
        return self._values(rows + self._starts[0], shape, gradients=True)

    def validation_values(
        self, shape: tuple[int, int]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Values of all validation trajectories, each (n, T), without gradients."""
        torch = torch_module()
        self.network.heads.eval()
        found: tuple[list[Any], list[Any]] = ([], [])
        with torch.no_grad():
            for start in range(0, shape[0], _EVALUATED_AT_ONCE):
                rows = np.arange(start, min(start + _EVALUATED_AT_ONCE, shape[0]))
                values = self._values(
                    rows + self._starts[1], (len(rows), shape[1]), gradients=False
                )
                for into, each in zip(found, values, strict=True):
                    into.append(each.double().cpu().numpy())
        return np.concatenate(found[0]), np.concatenate(found[1])

    def _values(
        self, rows: NDArray[np.int64], shape: tuple[int, int], *, gradients: bool
    ) -> tuple[Any, Any]:
        torch = torch_module()
        reads = [self.encoded.reads[row] for row in rows]
        needed = sorted({place for states in reads for each in states for place in each})
        local = {place: number for number, place in enumerate(needed)}
        states = [each for one in reads for each in one]
        most = max(map(len, states), default=0)
        members = torch.full((len(states), max(1, most)), -1, dtype=torch.long)
        for row, each in enumerate(states):
            members[row, : len(each)] = torch.tensor([local[place] for place in each])
        seen = [number for row in rows for number in self.encoded.documents[row]]
        with _autocast(self.device, on=gradients and self._bfloat16):
            features = self._features(needed)
        network = self.network
        pooled = network.pool(
            network.read(features),
            members.to(self.device),
            torch.tensor(seen, dtype=torch.float32, device=self.device),
        )
        place = torch.zeros(shape, dtype=torch.bool)
        for row, one in enumerate(reads):
            place[row, : len(one)] = True
        dense = [torch.zeros(shape, device=self.device) for _ in range(2)]
        for into, values in zip(dense, network.values(pooled), strict=True):
            into[place.to(self.device)] = values
        return dense[0], dense[1]

    def _features(self, places: Sequence[int]) -> Any:
        torch = torch_module()
        if not places:
            return torch.zeros((0, len(self.network.centre)), device=self.device)
        batch = self.network.encoder.batch([self.encoded.texts[place] for place in places])
        tokens = self._kept.tokens(places, batch)
        with _autocast(self.device, on=False):
            return self.network.features(batch, tokens.float())

    def _sample(self) -> Any:
        """Features of texts spread over all there are, (P, F)."""
        torch = torch_module()
        count = len(self.encoded.texts)
        chosen = np.unique(np.linspace(0, count - 1, min(count, _SCALE_TEXTS)).astype(int))
        with torch.no_grad():
            found = [
                self._features(chosen[start : start + _READ_AT_ONCE].tolist())
                for start in range(0, len(chosen), _READ_AT_ONCE)
            ]
        return torch.cat(found) if found else self._features([])


class _Activations:
    """What enters the first trained layer, for every text, in float16, as far as memory is allowed.

    What is not kept is rounded alike, so that the limit changes nothing but time.
    """

    def __init__(
        self,
        network: QNetwork,
        texts: Sequence[Tokens],
        cache_bytes: int,
        on_read: Callable[[int, int], None] | None,
    ) -> None:
        self._network = network
        self._texts = texts
        self._frozen = network.splits
        self._kept: dict[int, Any] = {}
        if not self._frozen:
            return
        room = cache_bytes // (2 * network.encoder.width)
        order = sorted(range(len(texts)), key=lambda place: len(texts[place].ids))
        ends = np.cumsum([len(texts[place].ids) for place in order])
        fitting = order[: int(np.searchsorted(ends, room, side="right"))]
        for start in range(0, len(fitting), _READ_AT_ONCE):
            places = fitting[start : start + _READ_AT_ONCE]
            self._kept.update(zip(places, self._compute(places), strict=True))
            if on_read:
                on_read(start + len(places), len(fitting))

    def _compute(self, places: Sequence[int]) -> list[Any]:
        torch = torch_module()
        encoder = self._network.encoder
        with torch.no_grad():
            lower = encoder.lower(
                encoder.batch([self._texts[place] for place in places]), self._frozen
            ).half()
        return [
            lower[row, : len(self._texts[place].ids)].clone() for row, place in enumerate(places)
        ]

    def tokens(self, places: Sequence[int], batch: Batch) -> Any:
        """The tokens' vectors after all layers, (P, L, width)."""
        torch = torch_module()
        encoder = self._network.encoder
        if not self._frozen:
            return encoder.tokens(batch)
        absent = [place for place in places if place not in self._kept]
        fresh = dict(zip(absent, self._compute(absent), strict=True)) if absent else {}
        lower = torch.zeros((*batch.ids.shape, encoder.width), device=encoder.device)
        for row, place in enumerate(places):
            found = self._kept[place] if place in self._kept else fresh[place]
            lower[row, : len(found)] = found
        return encoder.upper(batch, lower, self._frozen)


def computes_in_bfloat16(device: Any) -> bool:
    """Whether the hardware has bfloat16 instructions; where it has none they are emulated slowly."""
    torch = torch_module()
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    known: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return device.type == "cpu" and bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def _autocast(device: Any, *, on: bool) -> AbstractContextManager[Any]:
    torch = torch_module()
    found: AbstractContextManager[Any] = torch.autocast(device.type, torch.bfloat16, enabled=on)
    return found


def _without_last(states: StateTexts) -> StateTexts:
    return StateTexts(question=states.question, documents=states.documents[:-1])


def _digest(encoded: Encoded) -> str:
    found = hashlib.sha256()
    for each in encoded.texts:
        found.update(np.array([len(each.ids), *each.ids], np.int64).tobytes())
    found.update(repr(encoded.reads).encode())
    return found.hexdigest()

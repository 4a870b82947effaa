"""Models that keep what they found, so that later rounds do not ask again about the same texts."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from suffice.concurrency import width_of
from suffice.contracts import Encoder, Entailment
from suffice.errors import BackendError, UsageError

_Role = Literal["query", "passage"]
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class _Kept(Generic[_Key, _Value]):
    """The values used last, at most ``most`` of them."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise UsageError(f"most must be at least 1, found {most}")
        self._most = most
        self._values: OrderedDict[_Key, _Value] = OrderedDict()
        self._lock = threading.Lock()

    def of(
        self, keys: Sequence[_Key], compute: Callable[[Sequence[_Key]], Sequence[_Value]]
    ) -> Mapping[_Key, _Value]:
        """The value of every key; those not kept are computed in one call, without the lock held."""
        values_of: dict[_Key, _Value] = {}
        with self._lock:
            for key in keys:
                if key in self._values:
                    self._values.move_to_end(key)
                    values_of[key] = self._values[key]
        new = [key for key in dict.fromkeys(keys) if key not in values_of]
        if new:
            values = compute(new)
            if len(values) != len(new):
                raise BackendError(f"asked about {len(new)} texts, got {len(values)} values")
            values_of.update(zip(new, values, strict=True))
            with self._lock:
                self._values.update((key, values_of[key]) for key in new)
                while len(self._values) > self._most:
                    self._values.popitem(last=False)
        return values_of


class KeptEncoder:
    """An encoder that keeps the vectors used last; a :class:`suffice.contracts.Encoder`.

    The vectors are those of ``encoder``, bit for bit: a passage is encoded once, however many rounds
    look at it. Safe to call from several threads when ``encoder`` is.
    """

    def __init__(self, encoder: Encoder, *, most: int = 4096) -> None:
        self._encoder = encoder
        self._kept: _Kept[tuple[_Role, str], NDArray[np.float32]] = _Kept(most)

    @property
    def name(self) -> str:
        """The encoder's own: the vectors are the same."""
        return self._encoder.name

    @property
    def concurrency(self) -> int:
        """Threads worth asking from, as the encoder says; 1 when it does not."""
        return width_of(self._encoder)

    def encode(self, texts: Sequence[str], *, role: _Role = "passage") -> NDArray[np.float32]:
        """A unit vector for every text, (len(texts), dimension)."""
        if not texts:
            return self._encoder.encode(texts, role=role)

        def encode(keys: Sequence[tuple[_Role, str]]) -> Sequence[NDArray[np.float32]]:
            vectors = self._encoder.encode([text for _, text in keys], role=role)
            return [vector.copy() for vector in vectors]  # a view would keep its whole batch

        vectors = self._kept.of([(role, text) for text in texts], encode)
        return np.stack([vectors[role, text] for text in texts])


class KeptEntailment:
    """An entailment model that keeps the probabilities used last.

    A :class:`suffice.contracts.Entailment`. An answer that does not change from round to round is
    judged against new passages only.
    """

    def __init__(self, model: Entailment, *, most: int = 4096) -> None:
        self._model = model
        self._kept: _Kept[tuple[str, str], float] = _Kept(most)

    @property
    def concurrency(self) -> int:
        """Threads worth asking from, as the model says; 1 when it does not."""
        return width_of(self._model)

    def entailed(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """For every (premise, conclusion) the probability that it follows, (len(pairs),)."""
        probabilities = self._kept.of(list(pairs), lambda new: self._model.entailed(new).tolist())
        return np.array([probabilities[pair] for pair in pairs], np.float64)

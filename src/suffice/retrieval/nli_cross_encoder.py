"""A cross-encoder that judges whether a text follows from another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.retrieval.pair_networks import load_pair_network, raw_outputs

__all__ = ["NliCrossEncoder"]

_WHAT = "entailment model"
_LABEL = "entailment"


class NliCrossEncoder:
    """Probability of entailment from a three-label cross-encoder of sentence-transformers.

    A :class:`suffice.protocols.Entailment`. The network's outputs go through a softmax; which one is
    entailment is read from the labels in the model's configuration, since models disagree about
    their order. Not safe to call from several threads.

    No weights come with the package: it is tested with random weights, for the plumbing, and not
    measured with trained ones.

    Use :meth:`load`.
    """

    def __init__(self, model: Any, *, index: int, batch_size: int = 32) -> None:
        if batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, found {batch_size}")
        self._model = model
        self._index = index
        self._batch_size = batch_size

    @classmethod
    def load(cls, name_or_path: str | Path, *, batch_size: int = 32) -> Self:
        """Load a folder that sentence-transformers saved, or a model by its name on the Hub.

        Raises
        ------
        MissingExtra
            When the extra ``rerank`` is not installed.
        UsageError
            When there is no such model, or its labels are not three with one named entailment.
        """
        model = load_pair_network(name_or_path, _WHAT)
        index = _entailment_index(model.config.id2label, str(name_or_path))
        return cls(model, index=index, batch_size=batch_size)

    def entailed(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """For every (premise, conclusion) the probability that it follows, (len(pairs),), in [0, 1].

        Raises
        ------
        BackendError
            When the network fails, for example for want of memory.
        """
        if not pairs:
            return np.empty(0, np.float64)
        logits = raw_outputs(self._model, pairs, _WHAT, batch_size=self._batch_size)
        return _softmax(np.asarray(logits, np.float64))[:, self._index]


def _entailment_index(labels: Mapping[int, str], source: str) -> int:
    found = [int(index) for index, label in labels.items() if label.strip().lower() == _LABEL]
    if len(labels) != 3 or len(found) != 1:
        raise UsageError(
            f"{source!r} has the labels {', '.join(labels.values())}; an entailment model has three, "
            f"one of them named {_LABEL}: set id2label in its config.json"
        )
    return found[0]


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)  # type: ignore[no-any-return]

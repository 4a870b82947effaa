"""Cross-encoders that judge whether a text follows from another, or contradicts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.retrieval.networks import load_pair_network, raw_outputs

_WHAT = "entailment model"


class _NliNetwork:
    """A three-label cross-encoder of sentence-transformers, and which label is asked for.

    Models disagree about the order of the labels, so it is read from the model's configuration.
    """

    _label: str

    def __init__(self, model: Any, *, index: int, batch_size: int = 32) -> None:
        if batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, found {batch_size}")
        self._model = model
        self._index = index
        self._batch_size = batch_size

    @classmethod
    def load(cls, name_or_path: str | Path, *, batch_size: int = 32) -> Self:
        """Load a folder that sentence-transformers saved, or a model by its name on the Hub."""
        model = load_pair_network(name_or_path, _WHAT)
        index = _index(model.config.id2label, cls._label, str(name_or_path))
        return cls(model, index=index, batch_size=batch_size)

    def _probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Of the label, (len(pairs),): the outputs go through a softmax."""
        if not pairs:
            return np.empty(0, np.float64)
        logits = raw_outputs(self._model, pairs, _WHAT, batch_size=self._batch_size)
        return _softmax(np.asarray(logits, np.float64))[:, self._index]


class NliCrossEncoder(_NliNetwork):
    """Probability of entailment; a :class:`suffice.protocols.Entailment`.

    Not safe to call from several threads. No weights come with the package: it is tested with random
    weights, for the plumbing, and not measured with trained ones.

    Use :meth:`load`.
    """

    _label = "entailment"

    def entailed(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """For every (premise, conclusion) the probability that it follows, (len(pairs),), in [0, 1]."""
        return self._probabilities(pairs)


class NliContradiction(_NliNetwork):
    """Probability of contradiction; a :class:`suffice.protocols.ContradictionDetector`.

    The same networks as :class:`NliCrossEncoder`, with the same reserve: no weights come along, and it
    is not measured with trained ones. Not safe to call from several threads.

    Use :meth:`load`.
    """

    _label = "contradiction"

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """The higher probability of the two orders of every pair, (len(pairs),), in [0, 1].

        Networks of this kind read a premise and a conclusion; of two plan steps neither is either. In
        another order or batch padding may change the last digits.
        """
        turned = [(second, first) for first, second in pairs]
        probabilities = self._probabilities([*pairs, *turned])
        return np.maximum(probabilities[: len(pairs)], probabilities[len(pairs) :])


def _index(labels: Mapping[int, str], wanted: str, source: str) -> int:
    matching = [int(index) for index, label in labels.items() if label.strip().lower() == wanted]
    if len(labels) != 3 or len(matching) != 1:
        raise UsageError(
            f"{source!r} has the labels {', '.join(labels.values())}; an entailment model has three, "
            f"one of them named {wanted}: set id2label in its config.json"
        )
    return matching[0]


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)  # type: ignore[no-any-return]

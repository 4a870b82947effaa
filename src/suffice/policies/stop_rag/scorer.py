"""A trained network that decides: values of a state, the same bits in replay and live."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from suffice.policies.stop_rag.encoder import torch_module
from suffice.policies.stop_rag.network import QNetwork
from suffice.policies.stop_rag.states import StateTexts, texts_of_traces, texts_of_view
from suffice.trace.records import LoopView

if TYPE_CHECKING:  # deciding live loads this module, and must not load pyarrow
    from suffice.trace.table import TraceSet

__all__ = ["TextScorer"]

_KEPT = 4096  # texts of a few dozen to a thousand numbers each


class TextScorer:
    """Values of a loop's states. Safe to use from several threads, which take turns.

    Every text goes through the encoder alone, in float32 and without padding, so that its numbers do
    not depend on what else is scored. What was read is kept: a further round costs its own documents
    only, in mode ``separate``.
    """

    def __init__(self, network: QNetwork) -> None:
        self.network = network
        network.heads.eval()
        self._kept: OrderedDict[tuple[str, tuple[str, ...]], Any] = OrderedDict()
        self._lock = threading.Lock()

    def score(self, view: LoopView) -> tuple[float, float]:
        """Values of stopping and of going on after the view's last round, as float32 numbers."""
        return self.score_texts(texts_of_view(view), len(view.rounds))

    def score_texts(self, states: StateTexts, number: int) -> tuple[float, float]:
        """The same of state ``number``, 1-based."""
        torch = torch_module()
        documents = states.seen(number)
        separate = self.network.shape.mode == "separate"
        texts = [(each,) for each in documents] if separate else [documents]
        network = self.network
        with self._lock, torch.inference_mode():
            read = [self._read(states.question, each) for each in texts]
            device = network.encoder.device
            stacked = (
                torch.stack(read)
                if read
                else torch.zeros((0, network.shape.reader_width), device=device)
            )
            members = torch.arange(max(1, len(read)), device=device).unsqueeze(0)
            if not read:
                members = members - 1
            seen = torch.tensor([float(len(documents))], device=device)
            stop, cont = network.values(network.pool(stacked, members, seen))
            return float(stop[0]), float(cont[0])

    def values(self, traces: TraceSet) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Values of every recorded round, each (n_questions, n_rounds); NaN where none was recorded."""
        found = np.full((2, traces.n_questions, traces.n_rounds), np.nan)
        for row, states in enumerate(texts_of_traces(traces)):
            for number in range(1, states.n_rounds + 1):
                found[:, row, number - 1] = self.score_texts(states, number)
        return found[0], found[1]

    def _read(self, question: str, documents: tuple[str, ...]) -> Any:
        """What the network keeps of a text, (R,); from memory where it was read before."""
        key = (question, documents)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        tokenizer = self.network.tokenizer
        separate = self.network.shape.mode == "separate"
        tokens = (
            tokenizer.pair(question, documents[0])
            if separate
            else tokenizer.joint(question, documents)
        )
        found = self.network.encode([tokens])[0]
        self._kept[key] = found
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return found

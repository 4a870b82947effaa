"""Ask an encoder or an entailment model about the answers of a whole record."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from suffice.protocols import Encoder, Entailment
from suffice.signals.asking import Asked, Replies, RoundQuestion, ask_rounds
from suffice.signals.evidence_consistency import evidence_signals
from suffice.signals.evidence_entailment import evidence_entailment
from suffice.signals.kept import KeptEncoder, KeptEntailment
from suffice.signals.recorded import EVIDENCE_ENTAILMENT

if TYPE_CHECKING:
    from suffice.trace.table import TraceSet

__all__ = ["Measured", "encode_rounds", "entail_rounds"]

Measured = Mapping[str, float]  # by the signal's name, NaN where undefined


def encode_rounds(
    traces: TraceSet,
    encoder: Encoder,
    wanted: NDArray[np.bool_],
    on_progress: Callable[[Asked], None],
) -> Replies[Measured]:
    """The three forms of evidence consistency in every row where ``wanted`` (n_rows,) is true.

    A passage is encoded once a question, as long as it is among the last 4,096 texts.

    Raises
    ------
    BackendError
        When every call of the encoder failed.
    """
    kept = KeptEncoder(encoder)
    question: RoundQuestion[Measured] = RoundQuestion(
        what="encoded",
        who="encoder",
        ask=lambda view: evidence_signals(view, kept),
        called=_defined,
        concurrency=kept.concurrency,
    )
    return ask_rounds(traces, question, wanted, on_progress)


def entail_rounds(
    traces: TraceSet,
    model: Entailment,
    wanted: NDArray[np.bool_],
    on_progress: Callable[[Asked], None],
) -> Replies[Measured]:
    """``evidence_entailment`` in every row where ``wanted`` (n_rows,) is true.

    Raises
    ------
    BackendError
        When every call of the model failed.
    """
    kept = KeptEntailment(model)
    question: RoundQuestion[Measured] = RoundQuestion(
        what="checked",
        who="entailment model",
        ask=lambda view: {EVIDENCE_ENTAILMENT.name: evidence_entailment(view, kept)},
        called=_defined,
        concurrency=kept.concurrency,
    )
    return ask_rounds(traces, question, wanted, on_progress)


def _defined(values: Measured) -> bool:
    return not any(map(math.isnan, values.values()))

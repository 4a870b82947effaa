"""Novelty of queries and passages by an encoder: how near the nearest of earlier rounds is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from suffice.contracts import Absence, Encoder
from suffice.signals.asking.evidence_models import encoded, unit_rows
from suffice.signals.asking.memo import KeptEncoder
from suffice.signals.asking.whole_record import asking_rounds, completed
from suffice.signals.evidence import PASSAGES_UNKNOWN, TEXT_UNKNOWN, seen_passages, seen_texts
from suffice.signals.spec import UNDEFINED, SignalSpec, share, unrecorded
from suffice.trace.rounds.records import LoopView, Round

NOVELTY = ("query_novelty", "passage_novelty")
"""Names of the two signals."""


def novelties(
    encoder: Encoder,
    new: Sequence[str],
    earlier: Sequence[str],
    role: Literal["query", "passage"],
) -> list[float]:
    """1 - the greatest cosine of each new text with an earlier one, in [0, 1]; 1 where there is none."""
    if not earlier:
        return [1.0] * len(new)
    vectors = unit_rows(encoded(encoder, [*new, *earlier], role=role))
    fresh, known = vectors[: len(new)], vectors[len(new) :]
    # row by row: a matrix product rounds a cosine by how many there are
    nearest = [float((known * vector).sum(axis=1).max()) for vector in fresh]
    return [min(1.0, max(0.0, 1.0 - cosine)) for cosine in nearest]


def query_novelty(view: LoopView, encoder: Encoder) -> float:
    """Of the round's query against those of earlier rounds, in [0, 1]; 1 in round 1.

    Undefined where this query or an earlier one was not recorded.
    """
    queries = [round_.query for round_ in view.rounds]
    if None in queries:
        return UNDEFINED
    *earlier, query = map(str, queries)
    return novelties(encoder, [query], earlier, "query")[0]


def passage_novelty(view: LoopView, encoder: Encoder) -> float:
    """Mean over the round's passages, of which those found before count 0, in [0, 1].

    1 in round 1 with a passage; 0 where the round found none, as ``new_passages`` has it. Undefined where a
    round's passages were not recorded, or one without its text.
    """
    texts, earlier = seen_texts(view.rounds), seen_passages(view.rounds[:-1])
    if texts is None or earlier is None:
        return UNDEFINED
    before = len(earlier)
    here = {passage.id for passage in view.current.passages or ()}
    found = here.union(passage.id for passage in view.current.refound or ())
    new = texts[before:]
    if not new:
        return 0.0
    return math.fsum(novelties(encoder, new, texts[:before], "passage")) / len(found)


def novelty_signals(view: LoopView, encoder: Encoder) -> dict[str, float]:
    """Both at the view's last round, by name; low: little news (DRA_Uncertainty's).

    Every call encodes all queries and passages so far. In a loop pass a
    :class:`suffice.signals.asking.memo.KeptEncoder`, which encodes each one once.
    """
    return {
        QUERY_NOVELTY.name: query_novelty(view, encoder),
        PASSAGE_NOVELTY.name: passage_novelty(view, encoder),
    }


def with_novelty(view: LoopView, encoder: Encoder) -> Round:
    """The view's last round with both among its signals; values it has are kept."""
    return completed(view, NOVELTY, lambda at: novelty_signals(at, encoder))


COMPARING = asking_rounds(
    "novelty",
    "--encoder",
    "encoder",
    "encoded",
    novelty_signals,
    keeping=KeptEncoder,
    called=lambda values: bool(np.isfinite([*values.values()]).any()),
    reads=("passages", "query", "refound"),
)


def _novelty(
    name: str, summary: str, needs: tuple[str, ...], undefined: tuple[Absence, ...]
) -> SignalSpec:
    return share(
        name=name,
        summary=summary,
        needs=needs,
        answers=False,
        direction="low",
        asking=COMPARING,
        undefined=undefined,
    )


QUERY_NOVELTY = _novelty(
    "query_novelty",
    "how unlike every earlier query the round's is: 1 less the greatest cosine",
    ("query",),
    (
        unrecorded("query", "the round's query was"),
        Absence("an earlier round's query was not recorded", lambda _: True),
    ),
)
PASSAGE_NOVELTY = _novelty(
    "passage_novelty",
    "how unlike earlier passages the round's are: 1 less the greatest cosine, their mean",
    ("passages",),
    (PASSAGES_UNKNOWN, TEXT_UNKNOWN),
)

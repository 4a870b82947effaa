"""Cluster the samples of a whole record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.protocols import Encoder
from suffice.signals.asking import Asked, Replies, RoundQuestion, ask_rounds
from suffice.signals.clustering import (
    CLUSTERS,
    check_clustering,
    cluster_samples,
    clustering_stated,
    needs_encoder,
    rows_with,
    stated_clustering,
)
from suffice.signals.kept import KeptEncoder
from suffice.trace.records import LoopView
from suffice.trace.table import TraceSet, with_column

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ClusteredTraces", "RoundClusters", "cluster_traces"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundClusters:
    """A round's ``sample_clusters``, and whether the encoder was asked for them."""

    first_positions: tuple[int, ...]
    encoded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteredTraces:
    """The traces with their samples clustered.

    Parameters
    ----------
    traces
        With the column ``sample_clusters``, and with ``stated`` in their run document.
    stated
        The encoder and the cosine.
    before
        Rounds that were clustered already.
    replies
        What was clustered now, and what failed.
    """

    traces: TraceSet
    stated: Mapping[str, Any]
    before: int
    replies: Replies[RoundClusters]


def cluster_traces(
    traces: TraceSet,
    encoder: Encoder,
    cosine: float,
    *,
    again: bool = False,
    on_progress: Callable[[Asked], None] = lambda _: None,
) -> ClusteredTraces:
    """Cluster every round that has samples and no clusters yet; a round whose call fails gets none.

    Parameters
    ----------
    traces
        The record.
    encoder, cosine
        See :func:`suffice.signals.clustering.cluster_samples`.
    again
        Cluster all rounds, whatever clusters they have.
    on_progress
        Told how far it is.

    Raises
    ------
    UsageError
        When no round has samples, the cosine is outside (0, 1], or the traces have clusters of
        another encoder or cosine, unless ``again``.
    MissingExtra
        When scikit-learn is not installed.
    BackendError
        When every call of the encoder fails.
    """
    check_clustering(cosine)
    stated = clustering_stated(encoder, cosine)
    if not traces.has("samples"):
        raise UsageError(
            f"{traces.origin.source}: no round has samples to cluster; record them with "
            "suffice record --samples M"
        )
    if not again:
        _check_same(traces, stated)
    kept = np.zeros(traces.table.num_rows, bool) if again else rows_with(traces, CLUSTERS)
    wanted = rows_with(traces, "samples") & ~kept
    replies = ask_rounds(traces, _question(encoder, cosine), wanted, on_progress)
    return ClusteredTraces(
        traces=replace(
            traces,
            table=_with_clusters(traces, kept, replies.found),
            origin=replace(traces.origin, run={**traces.origin.run, CLUSTERS: stated}),
        ),
        stated=stated,
        before=int(kept.sum()),
        replies=replies,
    )


def _question(encoder: Encoder, cosine: float) -> RoundQuestion[RoundClusters]:
    kept = KeptEncoder(encoder)

    def ask(view: LoopView) -> RoundClusters:
        samples = view.current.samples or ()
        found = cluster_samples(samples, kept, cosine=cosine)
        return RoundClusters(first_positions=found, encoded=needs_encoder(samples))

    return RoundQuestion(
        what="clustered",
        who="encoder",
        ask=ask,
        called=lambda reply: reply.encoded,
        concurrency=kept.concurrency,
        columns=("samples",),
    )


def _check_same(traces: TraceSet, stated: Mapping[str, Any]) -> None:
    before = stated_clustering(traces)
    if traces.has(CLUSTERS) and before != stated:
        raise UsageError(
            f"{traces.origin.source} has clusters of {_named(before)}, not of {_named(stated)}; "
            "ask for the same ones, or add --recluster to replace them all"
        )


def _named(stated: Mapping[str, Any] | None) -> str:
    if stated is None:
        return "an encoder that is not stated"
    return f"encoder {stated.get('encoder')!r} at cosine {stated.get('cosine')!r}"


def _with_clusters(
    traces: TraceSet, kept: NDArray[np.bool_], found: Mapping[int, RoundClusters]
) -> pa.Table:
    values: list[Any] = [None] * traces.table.num_rows
    if kept.any():
        values = traces.table.column(CLUSTERS).to_pylist()
    for row, clusters in found.items():
        values[row] = clusters.first_positions
    return with_column(traces.table, CLUSTERS, values)

"""Clusters of a round's samples by meaning: sentence vectors, agglomerative clustering (paper 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice._optional import require
from suffice.contracts import Encoder
from suffice.errors import DataError, UsageError, counted
from suffice.scoring import answer_form
from suffice.signals.asking.evidence_models import encoded, unit_rows
from suffice.signals.asking.whole_record import (
    Asked,
    KeptEncoder,
    Replies,
    RoundQuestion,
    column_values,
)
from suffice.stats.units import Array, Mask
from suffice.trace.rounds.records import LoopView, Round
from suffice.trace.rounds.trace_set import TraceSet, with_column

CLUSTERS = "sample_clusters"  # the column, and what a run document says of it

DEFAULT_COSINE = 0.9
"""Above it MiniLM mostly joins spellings of one answer; by 0.8 it joins neighbouring numbers."""


def check_cosine(cosine: float) -> None:
    if not 0.0 < cosine <= 1.0:
        raise UsageError(
            f"the cosine that clusters samples must be above 0 and at most 1, found {cosine!r}; "
            f"{DEFAULT_COSINE:g} is the one measured with minilm"
        )


def check_clustering(cosine: float) -> None:
    """Refuse a cosine or a missing library before any model is asked."""
    check_cosine(cosine)
    require("sklearn.cluster", extra="cluster", purpose="Clustering samples")


def needs_encoder(samples: Sequence[str]) -> bool:
    """Say whether at least two of the samples are different answers, so that vectors decide."""
    return len({answer_form(sample) for sample in samples} - {""}) > 1


def cluster_samples(samples: Sequence[str], encoder: Encoder, *, cosine: float) -> tuple[int, ...]:
    """Return for each sample the position, from 0, of the first sample of its cluster.

    The method is average linkage on cosine distance, cut at ``1 - cosine``; repeated samples count. Samples
    with one normal form are always together. Samples with an empty form are a cluster of their own, not an
    answer.
    """
    check_cosine(cosine)
    strings = [answer_form(sample) for sample in samples]
    clusters = dict(zip(strings, strings, strict=True))  # of each string: a name of its cluster
    if needs_encoder(samples):
        spelled = _spellings(samples)
        vectors = unit_rows(encoded(encoder, [*spelled.values()]))
        counts = [sum(other == string for other in strings) for string in spelled]
        labels = _linked(vectors, counts, 1.0 - cosine)
        names = [*spelled]
        clusters |= {
            name: names[labels.index(label)] for name, label in zip(names, labels, strict=True)
        }
    firsts: dict[str, int] = {}
    joined = enumerate(clusters[string] for string in strings)
    return tuple(firsts.setdefault(name, position) for position, name in joined)


def with_clusters(finished: Round, encoder: Encoder, cosine: float) -> Round:
    """Return the round with clustered samples; leave a round without samples or with clusters as it is."""
    if finished.samples is None or finished.sample_clusters is not None:
        return finished
    clusters = cluster_samples(finished.samples, encoder, cosine=cosine)
    return replace(finished, sample_clusters=clusters)


def _spellings(samples: Sequence[str]) -> dict[str, str]:
    """Return the most frequent spelling of every normal form; among equals the shortest."""
    written: dict[str, Counter[str]] = {}
    for sample in samples:
        written.setdefault(answer_form(sample), Counter())[sample] += 1
    return {
        string: min(counts, key=lambda text: (-counts[text], len(text), text))
        for string, counts in written.items()
        if string
    }


def _linked(unit: Array, counts: Sequence[int], cut: float) -> list[int]:
    """Return a label for each of two or more distinct answers, equal within a cluster."""
    # not a matrix product, which rounds a pair's cosine by how many there are
    distance = np.clip(1.0 - np.einsum("id,jd->ij", unit, unit), 0.0, 2.0)
    np.fill_diagonal(distance, 0.0)
    pairs = distance[np.triu_indices(len(distance), 1)]
    # the nearest two are joined first, and a mean exceeds none of its parts
    if pairs.min() >= cut:
        return [*range(len(unit))]
    if pairs.max() < cut:
        return [0] * len(unit)
    drawn = np.repeat(np.arange(len(unit)), counts)
    cluster = require("sklearn.cluster", extra="cluster", purpose="Clustering samples")
    linkage = cluster.AgglomerativeClustering(
        n_clusters=None, metric="precomputed", linkage="average", distance_threshold=cut
    )
    labels = linkage.fit_predict(distance[np.ix_(drawn, drawn)])
    firsts = np.cumsum([0, *counts[:-1]])
    return [int(labels[first]) for first in firsts]


def clustering_stated(encoder: Encoder, cosine: float) -> dict[str, Any]:
    """Return what a run document states under ``sample_clusters``."""
    return {"encoder": encoder.name, "cosine": cosine}


def clustered_by(traces: TraceSet) -> Mapping[str, Any] | None:
    """Return the encoder and cosine of the clusters; refuse a record with rounds that are not clustered."""
    drawn = rows_with(traces, "samples")
    lacking = int((drawn & ~rows_with(traces, CLUSTERS)).sum())
    if lacking:
        raise DataError(
            f"not clustered: {lacking} of {counted(int(drawn.sum()), 'round')} with samples; type suffice "
            "signals TRACES --encoder minilm --cluster-cosine --out TRACES2",
            file=traces.origin.source,
            column=CLUSTERS,
        )
    return stated_clustering(traces)


def stated_clustering(traces: TraceSet) -> Mapping[str, Any] | None:
    """Return the encoder and cosine that the run document states; ``None`` if it states none."""
    stated = traces.origin.run.get(CLUSTERS)
    return stated if isinstance(stated, dict) else None


def rows_with(traces: TraceSet, name: str) -> Mask:
    """Say in which rows the column is not null, (n_rows,)."""
    if name not in traces.table.column_names:
        return np.zeros(traces.table.num_rows, bool)
    return traces.table.column(name).is_valid().to_numpy()  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteredTraces:
    traces: TraceSet
    stated: Mapping[str, Any]
    before: int
    replies: Replies[tuple[tuple[int, ...], bool]]

    @property
    def summary(self) -> dict[str, Any]:
        return {
            **self.stated,
            "rounds": len(self.replies.by_row),
            "before": self.before,
            "failed": len(self.replies.failures),
            "left": self.replies.left,
        }


def cluster_traces(
    traces: TraceSet,
    encoder: Encoder,
    cosine: float,
    *,
    again: bool = False,
    on_progress: Callable[[Asked], None] = lambda _: None,
) -> ClusteredTraces:
    """Cluster every round that has samples and no clusters yet; a round whose call fails gets none."""
    check_clustering(cosine)
    stated = clustering_stated(encoder, cosine)
    if not traces.has("samples"):
        raise UsageError(
            f"{traces.origin.source}: no round has samples to cluster; record them with "
            "suffice record --samples M"
        )
    before = stated_clustering(traces)
    if not again and traces.has(CLUSTERS) and before != stated:
        raise UsageError(
            f"{traces.origin.source} has clusters of {_named(before)}, not of {_named(stated)}; "
            "ask for the same ones, or add --recluster to replace them all"
        )
    kept = np.zeros(traces.table.num_rows, bool) if again else rows_with(traces, CLUSTERS)
    wanted = rows_with(traces, "samples") & ~kept
    remembered = KeptEncoder(encoder)

    def ask(view: LoopView) -> tuple[tuple[int, ...], bool]:
        samples = view.current.samples or ()
        clusters = cluster_samples(samples, remembered, cosine=cosine)
        return clusters, needs_encoder(samples)

    question = RoundQuestion(
        what="clustered",
        who="encoder",
        ask=ask,
        called=lambda reply: reply[1],
        on_progress=on_progress,
        concurrency=remembered.concurrency,
        columns=("samples",),
    )
    replies = question.about(traces, wanted)
    values = column_values(traces, CLUSTERS) if kept.any() else [None] * len(kept)
    for row, (clusters, _) in replies.by_row.items():
        values[row] = clusters
    return ClusteredTraces(
        traces=replace(
            traces,
            table=with_column(traces.table, CLUSTERS, values),
            origin=replace(traces.origin, run={**traces.origin.run, CLUSTERS: stated}),
        ),
        stated=stated,
        before=int(kept.sum()),
        replies=replies,
    )


def _named(stated: Mapping[str, Any] | None) -> str:
    if stated is None:
        return "an unstated encoder"
    return f"encoder {stated.get('encoder')!r} at cosine {stated.get('cosine')!r}"

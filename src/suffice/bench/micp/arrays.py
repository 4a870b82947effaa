"""What the evaluation of MiCP reads of a record, once, as arrays that divisions slice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.policies.micp.fit import draft_policy
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.micp.relevance_fit import Relevances, scored_by
from suffice.policies.micp.samples import lots, read_samples
from suffice.policies.micp.settings import MiCPSettings
from suffice.policies.micp.stage2 import Sampled
from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSizes:
    """How many answers a set holds, for any threshold at any stop round.

    Parameters
    ----------
    question
        For each round 1..T the questions of its entries, (n_entries,).
    confidence
        An entry counts where the threshold is at most this.
    added
        How many answers it then adds: 1, or less where it joins answers that were apart.
    """

    question: tuple[NDArray[np.intp], ...]
    confidence: tuple[NDArray[np.float64], ...]
    added: tuple[NDArray[np.int64], ...]

    def answers(self, stops: NDArray[np.integer], final: float) -> NDArray[np.int64]:
        """Answers in the set of every question (n,), stopped at rounds ``stops`` (n,); 0: not asked."""
        found = np.zeros(len(stops), np.int64)
        rounds = zip(self.question, self.confidence, self.added, strict=True)
        for number, (question, confidence, added) in enumerate(rounds, start=1):
            counts = (stops[question] == number) & (confidence >= final)
            found += np.bincount(
                question[counts], weights=added[counts], minlength=len(stops)
            ).astype(np.int64)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A trace set's labelled questions.

    ``samples`` is m; ``last_rounds`` (n,) are as recorded, at most ``rounds``. Ties in ``sampled`` are
    drawn by some seed: take :meth:`drawn_by`.
    """

    source: str
    pipeline: str | None
    filtered: bool
    question_ids: tuple[str, ...]
    unlabelled: int
    rounds: int
    samples: int
    last_rounds: NDArray[np.int64]
    sampled: Sampled
    sizes: SetSizes
    relevances: Relevances | None

    def drawn_by(self, seed: int) -> Sampled:
        """The samples, with ties broken by this seed."""
        return replace(self.sampled, draws=lots(self.question_ids, self.rounds, seed))


def read_record(traces: TraceSet, settings: MiCPSettings) -> Recorded:
    """Read scores, clusters and relevance of the labelled questions.

    Raises
    ------
    UsageError
        When none is labelled, there are no samples, or fewer rounds than asked for.
    DataError
        Where the number of samples differs between rounds, or they were not clustered by meaning.
    """
    source = traces.origin.source
    labelled = np.array([bool(each.answers) for each in traces.gold], bool)
    if not labelled.any():
        raise UsageError(f"no question of {source} has gold answers; the evaluation needs them")
    chosen = traces.take(labelled)
    draft = draft_policy([chosen], settings)
    run = traces.origin.run
    pipeline = run.get("pipeline")
    return Recorded(
        source=source,
        pipeline=pipeline if isinstance(pipeline, str) else None,
        filtered=run.get("passage_filter") is not None,
        question_ids=chosen.question_ids,
        unlabelled=int((~labelled).sum()),
        rounds=draft.rounds,
        samples=draft.samples,
        last_rounds=np.minimum(chosen.last_rounds, draft.rounds).astype(np.int64),
        sampled=read_samples(chosen, draft),
        sizes=_set_sizes(chosen, draft),
        relevances=_relevances(chosen),
    )


# --- set sizes -----------------------------------------------------------------------------------
_Cluster = tuple[float, frozenset[str]]


def _set_sizes(traces: TraceSet, draft: MiCPPolicy) -> SetSizes:
    found: list[list[tuple[int, float, int]]] = [[] for _ in range(draft.rounds)]
    columns = ["samples", "sample_clusters", "signals"]
    for index, views in enumerate(traces.views(columns)):
        so_far: list[_Cluster] = []
        recorded = views[-1].rounds
        for number in range(draft.rounds):
            if number < len(recorded):
                so_far += [
                    (confidence, cluster.members)
                    for cluster, confidence in draft.confidences(recorded[number])
                ]
            found[number] += [(index, *step) for step in _steps(so_far)]
    columns_of = [tuple(zip(*each, strict=True)) or ((), (), ()) for each in found]
    return SetSizes(
        question=tuple(np.array(each[0], np.intp) for each in columns_of),
        confidence=tuple(np.array(each[1], np.float64) for each in columns_of),
        added=tuple(np.array(each[2], np.int64) for each in columns_of),
    )


def _steps(clusters: Sequence[_Cluster]) -> Iterator[tuple[float, int]]:
    """How a set grows as its threshold falls: clusters that share a member are one answer."""
    apart: list[frozenset[str]] = []
    for confidence, members in sorted(clusters, key=lambda each: -each[0]):
        touching = [each for each in apart if not each.isdisjoint(members)]
        if touching:
            apart = [each for each in apart if each.isdisjoint(members)]
        apart.append(members.union(*touching))
        if len(touching) != 1:
            yield confidence, 1 - len(touching)


# --- relevance -----------------------------------------------------------------------------------
def _relevances(traces: TraceSet) -> Relevances | None:
    relevance = scored_by(traces)
    filtered = traces.origin.run.get("passage_filter") is not None
    if filtered or relevance is None or not any(gold.passage_ids for gold in traces.gold):
        return None
    return Relevances.read(traces, relevance)

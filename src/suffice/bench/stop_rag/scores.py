"""Policies of the evaluation of Stop-RAG on its questions: scores, costs and paired differences."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.bench.stop_rag.results import F1Difference, RunScores
from suffice.costs.usage import CostModel, CostReads
from suffice.errors import UsageError
from suffice.measures.costs import CostBook, cost_reads
from suffice.measures.measures import Measures
from suffice.measures.retrieval import RetrievalQuality
from suffice.measures.scores import Outcomes
from suffice.numbers.intervals.simultaneous import simultaneous_bands
from suffice.protocols import StopPolicy
from suffice.replay.run.references import ORACLES
from suffice.replay.run.replay import at_stop
from suffice.scoring import F1Kind
from suffice.signals.table import first_stops, signal_table
from suffice.trace.rounds.labels import labelled
from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Labelled questions with everything a stop at any round is worth."""

    traces: TraceSet
    scored: Outcomes
    quality: RetrievalQuality
    book: CostBook

    @classmethod
    def read(cls, traces: TraceSet, f1_kind: F1Kind) -> Questions:
        """Score every recorded round."""
        labelled = _labelled(traces)
        measures = Measures(labelled).by(None)  # of a redacted record its own scores
        return cls(
            traces=labelled,
            scored=measures.scores(f1_kind),
            quality=measures.retrieval(),
            book=measures.costs(CostModel()),
        )

    @property
    def with_gold_passages(self) -> int:
        """Questions whose recall is known after their last round."""
        return int(np.isfinite(at_stop(self.quality.recall, self.traces.last_rounds)).sum())

    def fixed(self, rounds: int) -> RunScores:
        """Always stopping after so many rounds."""
        wanted = np.full(self.traces.n_questions, rounds, np.int16)
        return self._stopped(wanted, CostReads())

    def oracle(self, name: str) -> RunScores:
        """A policy that sees the gold answers."""
        stops = ORACLES[name](self.scored, self.traces.last_rounds)
        return self._stopped(stops, CostReads(answers=True))

    def policy(self, policy: StopPolicy, seed: int | None = None) -> tuple[RunScores, float]:
        """A policy's figures, and the seconds it took to decide a recorded round.

        A model that is loaded when it first decides has decided once before the clock starts.
        """
        first = np.arange(self.traces.n_questions) == 0
        _stops(policy, self.traces.take(first))
        started = time.perf_counter()
        wanted = _stops(policy, self.traces)
        seconds = (time.perf_counter() - started) / int(self.traces.exists.sum())
        return self._stopped(wanted, cost_reads(policy.specs), seed), seconds

    def _stopped(
        self, wanted: NDArray[np.int16], reads: CostReads, seed: int | None = None
    ) -> RunScores:
        last = self.traces.last_rounds
        stops = np.minimum(wanted, last)
        calls = self.book.at_stops(reads)["llm_calls"]
        f1_of = at_stop(self.scored.f1, stops)
        precision, recall = self.quality.at(stops)
        return RunScores(
            seed=seed,
            em=float(at_stop(self.scored.em, stops).mean()),
            f1=float(f1_of.mean()),
            acc=float(at_stop(self.scored.acc, stops).mean()),
            mean_rounds=float(stops.mean()),
            llm_calls=None if calls is None else float(at_stop(calls, stops).mean()),
            precision=precision,
            recall=recall,
            stops=stops,
            f1_of=f1_of,
            beyond_record=int((wanted > last).sum()),
        )


def _labelled(traces: TraceSet) -> TraceSet:
    chosen = labelled(traces)
    if not chosen.any():
        raise UsageError(
            f"no question of {traces.origin.source} that was asked for has gold answers; the "
            "evaluation needs them"
        )
    return traces.take(chosen)


def _stops(policy: StopPolicy, traces: TraceSet) -> NDArray[np.int16]:
    return first_stops(policy, signal_table(traces, policy.specs))


def best_fixed(fitting: Sequence[TraceSet], f1_kind: F1Kind, rounds: int) -> int:
    """The number of rounds, at most ``rounds``, after which F1 on these questions is highest.

    Of equal ones the fewest; questions without gold answers do not count, and one recorded for fewer
    rounds stays at its last.
    """
    scores: list[NDArray[np.float64]] = []
    for trace_set in fitting:
        chosen = labelled(trace_set)
        if chosen.any():
            scores.append(_padded(trace_set.take(chosen), f1_kind, rounds))
    if not scores:
        raise UsageError("no question that is fitted on has gold answers; fitting needs them")
    # equal means may differ in their last bits
    return int(np.round(np.concatenate(scores).mean(axis=0), 12).argmax()) + 1


def _padded(traces: TraceSet, f1_kind: F1Kind, rounds: int) -> NDArray[np.float64]:
    """F1 after 1 to ``rounds`` rounds, (n_questions, rounds)."""
    wanted = np.arange(1, rounds + 1)[None, :]
    at = np.minimum(wanted, traces.last_rounds[:, None]).astype(np.int64)
    return np.take_along_axis(Measures(traces).by(None).score("f1", f1_kind), at - 1, axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class F1Differences:
    """Differences with intervals of their own, and such as hold for all of them at once."""

    differences: tuple[F1Difference, ...]
    critical: float


def contrasts(
    f1_of: Mapping[str, NDArray[np.float64]],
    pairs: Sequence[tuple[str, str]],
    *,
    resamples: int,
    seed: int,
) -> F1Differences:
    """Mean differences of F1, the first of a pair minus the second, over the same resampled questions."""
    differences = np.stack([f1_of[of] - f1_of[against] for of, against in pairs], axis=1)
    (band,) = simultaneous_bands(
        len(pairs), lambda part: differences[:, part], [None], resamples=resamples, seed=seed
    )
    return F1Differences(
        differences=tuple(
            F1Difference(
                of=of,
                against=against,
                interval=band.alone(number),
                low=float(band.low[number]),
                high=float(band.high[number]),
            )
            for number, (of, against) in enumerate(pairs)
        ),
        critical=band.critical,
    )

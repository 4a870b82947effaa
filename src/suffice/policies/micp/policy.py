"""MiCP: stop, and return an answer set that holds the right answer as often as promised (paper 3).

Each round samples several answers and clusters them. The loop stops at the first round whose samples agree
above a threshold; questions whose right answer was not sampled rarely pass it. The answer set holds every
confident cluster of the rounds so far, and "Can't Answer" if no round stopped early.
:mod:`suffice.policies.micp.fit` calibrates the thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import (
    AnswerSet,
    Clusters,
    CoveragePromise,
    Explanation,
    Facts,
    LoopNeeds,
    PolicyTable,
    RecordedSets,
    SetMember,
)
from suffice.errors import DataError, UsageError, counted
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.method import Method, Preset, loop_needs, read_told
from suffice.policies.micp.micp_settings import (
    CALIBRATE,
    OPTIMIZE,
    STOP_ON,
    UNSTATED_WEIGHT,
    MiCPSettings,
    StopOn,
)
from suffice.policies.micp.relevance_filter import RelevanceFilter
from suffice.scoring import Match
from suffice.signals.known_signals import SignalSpec
from suffice.signals.samples import (
    CLUSTERINGS,
    SampleCluster,
    entropy_of_counts,
    entropy_signal,
    sample_clusters,
    top_cluster_signal,
)
from suffice.stats.conformal import Threshold
from suffice.stats.fields import Fields, finite, known
from suffice.stats.units import Array, Mask, lots
from suffice.trace.rounds.records import Round

if TYPE_CHECKING:
    from suffice.measures.measures import Measures
    from suffice.trace.rounds.trace_set import TraceSet


_MOST = 10_000  # rounds, and samples a round
_ENTROPY, _TOP = "normalized_entropy", "top_cluster_confidence"


@dataclass(frozen=True, kw_only=True)
class MiCPPolicy:
    """Stops at the first round whose threshold fires, else at round ``rounds``, T.

    The answer set covers the right answer with probability at least 1 - ``alpha``. Rounds 1..T-1 have a
    threshold each in ``stops``, and low scores stop: the normalized entropy of the ``samples`` of a round,
    or minus the confidence of its top cluster (``stop_on``). A cluster's confidence is its share of the
    samples minus ``penalty`` (lambda) times the normalized entropy (Eq. 5), or the share alone where the
    entropy is undefined. Clusters of confidence ``final`` or more enter the answer set. ``filter`` is the
    first stage; ``filtered``: the samples of the calibration come from the filtered passages. Lots of
    ``seed`` break ties. ``match`` says when a sample is right; only fitting and scoring read it.
    """

    alpha: float
    rounds: int
    samples: int
    stops: tuple[Threshold, ...]
    final: float
    stop_on: StopOn = "entropy"
    penalty: float = 0.0
    clusters: Clusters = field(default_factory=Clusters)
    match: Match = field(default_factory=Match)
    filter: RelevanceFilter | None = None
    filtered: bool = False
    seed: int = 42
    preset: str | None = None
    budget: Mapping[str, Any] = field(default_factory=dict)
    fitted_on: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = field(default=(), compare=False)
    kind: ClassVar[str] = "micp"

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha < 1.0:
            raise UsageError(f"alpha must lie strictly between 0 and 1, found {self.alpha!r}")
        for name, low, high in (("rounds", 1, _MOST), ("samples", 1, _MOST), ("seed", 0, 2**63)):
            if not low <= getattr(self, name) <= high:
                raise UsageError(
                    f"{name} must be from {low} to {high}, found {getattr(self, name)}"
                )
        if len(self.stops) != self.rounds - 1:
            raise UsageError(
                f"for {counted(self.rounds, 'round')} give {counted(self.rounds - 1, 'threshold')}, found "
                f"{len(self.stops)}"
            )
        if self.stop_on not in STOP_ON:
            raise UsageError(f"no stop_on {self.stop_on!r}; allowed: {', '.join(STOP_ON)}")
        if not 0.0 <= self.penalty < math.inf:
            raise UsageError(f"the penalty must be at least 0, found {self.penalty!r}")
        numbers = [self.final, *(stop.value for stop in self.stops)]
        if any(math.isnan(value) or value == math.inf for value in numbers):
            raise UsageError("thresholds must be numbers or -inf")
        if any(not 0.0 <= stop.share < 1.0 for stop in self.stops):
            raise UsageError("shares of ties must lie in [0, 1)")
        if self.filtered and self.filter is None:
            raise UsageError("calibrated on filtered passages, so the filter must be known")

    @property
    def signals(self) -> tuple[str, ...]:
        if self.stop_on == "entropy":
            return (_ENTROPY,)
        return (_TOP, _ENTROPY) if self.penalty else (_TOP,)

    @cached_property
    def specs(self) -> tuple[SignalSpec, ...]:
        make = {_ENTROPY: entropy_signal, _TOP: top_cluster_signal}
        return tuple(make[name](self.clusters.by) for name in self.signals)

    @property
    def needs(self) -> LoopNeeds:
        """Samples as in its calibration: their number, their clusters and its passage filter."""
        by_meaning = self.clusters.by == "embedding"
        return loop_needs(
            self.specs,
            samples=self.samples,
            other_samples="it promises nothing",
            clusters=self.clusters if by_meaning else None,
            filter=self.filter if self.filtered else None,
        )

    @property
    def facts(self) -> Facts:
        return Facts(
            summary=self._summary,
            fitted_on=self.fitted_on,
            notes=self.notes,
            promise=self._promise,
            coverage=CoveragePromise(
                alpha=self.alpha, match=self.match, shows_all=self.clusters.by == "string"
            ),
            max_rounds=self.rounds,
            earliest=next(
                (t for t, stop in enumerate(self.stops, 1) if stop.value > -math.inf), self.rounds
            ),
            loop=self.fitted_on.get("loop", {}),
        )

    @property
    def _summary(self) -> str:
        shown = (_shown(stop, self._score_name) for stop in self.stops)
        rounds = "; ".join(f"round {number}: {stop}" for number, stop in enumerate(shown, 1))
        enters = "every cluster" if self.final == -math.inf else f"confidence >= {self.final:.4g}"
        return f"{rounds or 'no early stop'}; answer set: {enters}"

    @property
    def _promise(self) -> str:
        held = (
            "for questions like those of its calibration, with this model, prompt and retriever"
            if self.preset == "corrected"
            else "as the paper claims; its construction can miss this level"
        )
        return (
            f'the answer set holds the right answer, or "Can\'t Answer" where none was sampled, with '
            f"probability at least {1 - self.alpha:.10g}, {held}"
        )

    # --- deciding --------------------------------------------------------------------------------
    def scores(self, table: PolicyTable) -> Array:
        """Return the scores that thresholds compare, (n_questions, n_rounds); low stops, NaN never."""
        if self.stop_on == "entropy":
            return table.signal(_ENTROPY)
        top = table.signal(_TOP)
        return -(top - self.penalty * table.signal(_ENTROPY) if self.penalty else top)

    def explain(self, table: PolicyTable, question: int, round_number: int) -> Explanation:
        """Compare the round's score with its threshold, or say that the full budget is spent."""
        at = question, round_number - 1
        shown = {name: known(float(table.signal(name)[at])) for name in self.signals}
        if round_number >= self.rounds:
            reason = f"the full budget of {counted(self.rounds, 'round')} is spent"
            return Explanation(reason=reason, values=shown)
        score, threshold = float(self.scores(table)[at]), self.stops[round_number - 1]
        if math.isnan(score):
            spec = next(spec for spec in self.specs if shown[spec.name] is None)
            said = f"is {table.undefined(spec, question, round_number)}"
        elif threshold.value == -math.inf:
            said = f"= {score:.4g} cannot stop the loop"
        elif score != threshold.value or not threshold.share:
            against = "<" if score < threshold.value else ">="
            said = f"= {score:.4g} {against} {threshold.value:.4g}"
        else:
            drawn = float(lots(f"{self.seed}:{round_number}", [table.question_ids[question]])[0])
            shown["lot"] = drawn
            against = (
                f"{drawn:.3g} {'<' if drawn < threshold.share else '>='} {threshold.share:.3g}"
            )
            said = f"= {score:.4g}, tied with its threshold; the lot says {against}"
        return Explanation(
            reason=f"{self._score_name} {said} at round {round_number}", values=shown
        )

    @property
    def _score_name(self) -> str:
        return "normalized entropy" if self.stop_on == "entropy" else "-top confidence"

    def fires(self, table: PolicyTable) -> Mask:
        """Return where the round's threshold fires, and all rounds from the full budget on."""
        fires = self._below(table)
        fires[:, self.rounds - 1 :] = True
        return fires

    def fired(self, table: PolicyTable) -> NDArray[np.int16]:
        """Return the first round whose threshold fires, (n_questions,); 0: none does."""
        below = self._below(table)
        return np.where(below.any(axis=1), below.argmax(axis=1) + 1, 0).astype(np.int16)

    def _below(self, table: PolicyTable) -> Mask:
        """Return where a score is below its threshold, or tied with it and drawn by lot."""
        scores = self.scores(table)
        below = np.zeros((table.n_rounds, table.n_questions), np.bool_).T
        for number in range(1, min(self.rounds - 1, table.n_rounds) + 1):
            score, threshold = scores[:, number - 1], self.stops[number - 1]
            below[:, number - 1] = score < threshold.value
            if threshold.share:
                tied = np.flatnonzero(score == threshold.value)
                names = [table.question_ids[index] for index in tied.tolist()]
                below[tied, number - 1] = lots(f"{self.seed}:{number}", names) < threshold.share
        return below

    # --- the answer set --------------------------------------------------------------------------
    def confidences(self, finished: Round) -> Iterator[tuple[SampleCluster, float]]:
        """Yield the clusters of a round that are answers, with their confidence (Eq. 5)."""
        clusters = sample_clusters(finished, self.clusters.by)
        drawn = sum(cluster.size for cluster in clusters)
        entropy = 0.0
        if self.penalty:
            says = drawn > 1 and any(cluster.is_answer for cluster in clusters)
            entropy = entropy_of_counts([cluster.size for cluster in clusters]) if says else 0.0
        for cluster in clusters:
            if cluster.is_answer:
                yield cluster, cluster.size / drawn - self.penalty * entropy

    def answer_set(self, rounds: Sequence[Round], *, stopped: bool) -> AnswerSet:
        """Return the confident clusters of these rounds, most confident first.

        Clusters of different rounds merge if they share a member. The set also holds "Can't Answer" unless
        the policy ``stopped`` the loop before its full budget.
        """
        merged: list[tuple[SetMember, frozenset[str]]] = []  # with every normalised form of it
        for number, finished in enumerate(rounds, start=1):
            for cluster, confidence in self.confidences(finished):
                if confidence < self.final:
                    continue
                best = SetMember(answer=cluster.answer, confidence=confidence, round=number)
                forms = cluster.members
                for entry in [kept for kept in merged if kept[1] & forms]:
                    merged.remove(entry)
                    forms |= entry[1]
                    best = max(entry[0], best, key=lambda member: member.confidence)
                merged.append((best, forms))
        answers = sorted(
            (best for best, _ in merged), key=lambda best: (-best.confidence, best.round)
        )
        early = stopped and len(rounds) < self.rounds
        return AnswerSet(answers=tuple(answers), cannot_answer=not early)

    def recorded_sets(
        self, traces: TraceSet, table: PolicyTable, stops: NDArray[np.int16]
    ) -> RecordedSets:
        """Return the sets of recorded questions at these stop rounds (n_questions,), scored."""
        from suffice.policies.micp.sampled_answers import recorded_sets

        return recorded_sets(self, traces, table, stops)

    def document(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "preset": self.preset,
            "alpha": self.alpha,
            "rounds": self.rounds,
            "samples": self.samples,
            "stop_on": self.stop_on,
            "penalty": self.penalty,
            "clusters": {
                name: value for name, value in asdict(self.clusters).items() if value is not None
            },
            "match": {"score": "em"}
            if self.match.f1 is None
            else {"score": "f1", "at_least": self.match.f1},
            "stops": [
                {"value": _finite(stop.value), "tied_share": stop.share} for stop in self.stops
            ],
            "answer_set": {"confidence": _finite(self.final)},
            "seed": self.seed,
            "filter": None if self.filter is None else self.filter.to_json(),
            "filtered": self.filtered,
            "budget": dict(self.budget),
            "fitted_on": dict(self.fitted_on),
            "notes": list(self.notes),
        }
        return {name: value for name, value in body.items() if value is not None}


def _finite(value: float) -> float | None:
    return None if value == -math.inf else value


def _shown(threshold: Threshold, name: str) -> str:
    if threshold.value == -math.inf:
        return "never"
    tied = f" (or equal, in a random {threshold.share:.3g} of questions)" if threshold.share else ""
    return f"{name} < {threshold.value:.4g}{tied}"


# --- the method -----------------------------------------------------------------------------------
class _MiCP(Method):
    name = "micp"
    summary = "stop when samples agree, and return an answer set with a promised coverage"
    source = "paper 3"
    about = (
        "fitted on the splits optimize and calibrate where the traces have both, else, or with another "
        "--split than tune, on a division of that"
    )
    reads: tuple[frozenset[str], ...] = (frozenset({OPTIMIZE, CALIBRATE}), frozenset({FIT_SPLIT}))
    main_field = "stops"
    options = MiCPSettings

    def fit(self, measures: Measures, preset: Preset, settings: Any, split: str) -> MiCPPolicy:
        from suffice.policies.micp.fit import fit_on, fit_parts

        return fit_on(fit_parts(measures, split, settings), preset, settings)

    def read(self, document: Mapping[str, Any], file: Path) -> MiCPPolicy:
        del file
        fields = Fields(document)
        fields.need("alpha", "rounds", "samples", "stops", "answer_set")
        match = fields.of("match", dict, {"score": "em"})
        chosen = fields.of("filter", dict)
        budget, clusters = fields.part("budget"), fields.part("clusters")
        budget.number("weight", UNSTATED_WEIGHT)
        fields.part("fitted_on").part("loop")
        return MiCPPolicy(
            alpha=fields.number("alpha"),
            rounds=fields.of("rounds", int),
            samples=fields.of("samples", int),
            stops=tuple(_read_stop(stop) for stop in fields.of("stops", list)),
            final=_or_below_all(fields.of("answer_set", dict), "confidence"),
            stop_on=document.get("stop_on", "entropy"),
            penalty=fields.number("penalty", 0.0),
            clusters=Clusters(
                by=clusters.one_of("by", CLUSTERINGS, "string"),
                cosine=clusters.number_or_none("cosine"),
                encoder=clusters.of("encoder", str),
            ),
            match=Match(
                f1=None if match.get("score") == "em" else finite(match.get("at_least"), "match")
            ),
            filter=None if chosen is None else RelevanceFilter.from_json(chosen),
            filtered=fields.of("filtered", bool, default=False),
            seed=fields.of("seed", int, 42),
            budget=budget.document,
            **read_told(fields),
        )


def _read_stop(stop: object) -> Threshold:
    if not isinstance(stop, dict) or "value" not in stop:
        raise DataError(
            f'must hold objects with "value" and "tied_share", found {stop!r}', column="stops"
        )
    share = Fields(stop, "stops").number("tied_share", 0.0)
    return Threshold(_or_below_all(stop, "value"), share)


def _or_below_all(document: Mapping[str, Any], name: str) -> float:
    value = document.get(name)
    return -math.inf if value is None else finite(value, name)


METHOD = _MiCP()

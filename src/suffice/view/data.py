"""An open record of the viewer: its columns, measured in the background."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.concurrency import started
from suffice.costs.usage import CostReads
from suffice.errors import SufficeError, UsageError
from suffice.evaluation.replay.named_policies import (
    NamedPolicy,
    Wanted,
    asked_policies,
    fixed_names,
    numbered,
    runnable,
    usual_names,
)
from suffice.evaluation.replay.runner import Runner
from suffice.evaluation.settings import ComparisonSettings
from suffice.measures.costs import CostAxis
from suffice.measures.measures import Measures
from suffice.measures.seen import record_banners
from suffice.monitor.production import Production, ProductionSettings
from suffice.policies.defaults import EVAL_SPLIT
from suffice.policies.fitting import fit_rule
from suffice.policies.policy_file import policy_hash
from suffice.policies.rules.policy import check_rule, rule_needs
from suffice.scoring import MetricName
from suffice.signals.columns.arrays import Texts
from suffice.signals.signal_table import given_signals, specs_for
from suffice.stats.intervals import Interval, Sums, percentile_interval, resampled_counts
from suffice.stats.units import unit_means
from suffice.trace.rounds.trace_set import TraceSet

Array = NDArray[np.float64]
Rounds = NDArray[np.int16]

SUMS_ABOVE = 5_000
"""Questions above which intervals come from sums here, so that a figure is there while somebody types."""
MOST_WATCHED = 20_000
"""Questions up to which it is told here what a watch of the policies that ran says."""
WHAT_IF = "what-if"
"""What the rule that is tried is called among policies."""
_KEPT_RULES = 16
_Task = tuple[str, Callable[[], object]]  # what it is called, and what does it


class NotReadyError(SufficeError):
    """What was asked for is being measured; it will be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSettings:
    """What is looked at: policies and rules beside each other, by which metric, at which cost."""

    policies: tuple[Wanted, ...] = ()
    rules: tuple[str, ...] = ()
    metric: MetricName | None = None
    cost: str | None = None
    fit_on: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyColumns:
    """A policy on every question of a record, (n_questions,) each.

    ``stops`` is the round it stops at, ``answers`` the one whose answer is returned; ``score`` and ``em`` are
    that answer's, ``cost`` what was paid: NaN is unknown, no ``cost`` unknown throughout.
    """

    candidate: NamedPolicy
    stops: Rounds
    answers: Rounds
    score: Array
    em: Array
    cost: Array | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How much of what is measured in the background is there."""

    done: int = 0
    of: int = 1
    doing: str = "opening the record"
    trouble: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether everything is."""
        return self.done >= self.of


class RecordView:
    """A record for the viewer: facts at once, everything else when :meth:`work` has come to it."""

    def __init__(self, measures: Measures, settings: ViewSettings | None = None) -> None:
        self.settings: ViewSettings = settings or ViewSettings()
        self.measures: Measures = measures
        self.traces: TraceSet = measures.traces
        self.questions: Texts = Texts.of(self.traces.first_rounds("question"))
        self.types: Texts = Texts.of(self.traces.first_rounds("question_type"))
        # what has been measured so far, each whole
        self.policies: list[PolicyColumns] = []
        self.signals: dict[str, Array] = {}
        self.searched: tuple[Texts, pa.Array, Texts] | None = None
        """Questions, ids and answers (by row) in small letters, in which words are searched."""
        self.axis: CostAxis | None = None
        self.watched: dict[str, Production] = {}
        """What a watch in production says of policies that ran in the record, by hash."""
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.progress: Progress = Progress()
        self._lock = threading.RLock()
        self.rule: Callable[[str], PolicyColumns] = lru_cache(_KEPT_RULES)(self._rule)
        """What a rule would do on every question."""
        self._ended = False
        self.orders: OrderedDict[object, NDArray[np.intp]] = OrderedDict()
        """Selections that were asked for lately."""

    # --- known at once ---------------------------------------------------------------------------
    @property
    def n_questions(self) -> int:
        """How many questions there are."""
        return self.traces.n_questions

    @cached_property
    def splits(self) -> Texts:
        """The split of every question."""
        return Texts.of(self.traces.first_rounds("split"))

    @cached_property
    def question_ids(self) -> pa.ChunkedArray:
        """The id of every question."""
        return self.traces.first_rounds("question_id")

    @property
    def scored_split(self) -> str:
        """The split that figures are of where none is asked for; empty: all questions."""
        return EVAL_SPLIT if EVAL_SPLIT in self.splits.distinct.to_pylist() else ""

    def split_of(self, asked: str) -> str:
        """The split that is asked for: ``*`` is all questions (empty), nothing the one scored."""
        return "" if asked == "*" else asked or self.scored_split

    def in_split(self, name: str) -> NDArray[np.bool_]:
        """Which questions lie in a split, (n_questions,); empty: all do."""
        if not name:
            return np.ones(self.n_questions, bool)
        return np.asarray(self.splits.codes == self.splits.code_of(name))

    # --- in the background -----------------------------------------------------------------------
    def start(self) -> RecordView:
        """Measure in a thread of its own."""
        started(self.work, "measuring")
        return self

    def stop(self) -> None:
        """Measure nothing more after what is under way."""
        self._ended = True

    def work(self) -> None:
        """Measure everything, the most needed first."""
        steps: list[_Task] = [
            ("scoring answers", self._score),
            ("building policies", self._build_policies),
            ("reading answers", self._read_searched),
        ]
        done, trouble = 0, list[str]()
        while done < len(steps) and not self._ended:
            doing, work = steps[done]
            of = len(steps) + (done < 3)
            self.progress = Progress(done=done, of=of, doing=doing, trouble=tuple(trouble))
            try:
                with self._lock:
                    work()
            except (SufficeError, OSError, MemoryError, RuntimeError) as error:
                trouble.append(f"{doing}: {error}")
            done += 1
            if done == 3:
                steps += self._later()
        self.progress = Progress(done=done, of=done, doing="", trouble=tuple(trouble))

    def _later(self) -> list[_Task]:
        """Signals that policies do not read, then what a watch of those that ran says."""
        ran = self.ran() if self.watches else []
        return [
            ("measuring signals", partial(self._measure, given_signals(self.traces))),
            *((f"watching {one.label}", partial(self._watch, one)) for one in ran),
        ]

    def _read_searched(self) -> None:
        answers = Texts.of(self.traces.table.column("answer"))
        ids = pc.utf8_lower(self.question_ids).combine_chunks()
        small = self.questions.mapped(pc.utf8_lower), ids, answers.mapped(pc.utf8_lower)
        self.searched = small

    def _score(self) -> None:
        self.measures = self.measures.by(self.settings.metric)
        self.measures.scores()
        self.notes += self.measures.notes(self.settings.metric)
        self.warnings += record_banners(self.traces)
        _ = self.measures.seen, self.labelled  # known when somebody asks

    def _measure(self, names: Sequence[str]) -> None:
        new = [name for name in names if name not in self.signals]
        if new:
            table = self.measures.signals(new)
            self.signals |= {name: table.signal(name) for name in new}

    @property
    def watches(self) -> bool:
        """Whether there are few enough questions for a watch here."""
        return self.n_questions <= MOST_WATCHED

    def ran(self) -> list[NamedPolicy]:
        """The policies here that ran when the record was made, as its questions say."""
        policies = [policy.candidate for policy in list(self.policies)]
        return [one for one in policies if one.policy is not None and one.hash in self._hashes]

    @cached_property
    def _hashes(self) -> frozenset[str]:
        return frozenset(self.traces.first_rounds("policy_hash").unique().to_pylist()) - {None}

    def _watch(self, candidate: NamedPolicy) -> None:
        if candidate.policy is None:
            return
        production = Production(
            candidate.policy, ProductionSettings(max_rounds=candidate.max_rounds)
        )
        production.read([(self.traces, self.traces.question_ids)])
        self.watched[candidate.hash] = production

    def _build_policies(self) -> None:
        settings, measures = self.settings, self.measures
        names: Sequence[Wanted] = settings.policies
        if not names and not settings.rules:
            names = usual_names(self.traces.n_rounds, oracles=False)[self.traces.n_rounds :]
        fit_on = None if settings.fit_on is None else Measures.of(settings.fit_on)
        asked = asked_policies(measures, names, settings.rules, fit_on=fit_on)
        able, left_out = runnable(asked, measures, "hotpotqa")
        self.notes += [f"{name} is left out: {why}" for name, why in left_out.items()]
        there = {candidate.name for candidate in able}
        fixed = [name for name in fixed_names(self.traces.n_rounds, 10) if name not in there]
        able += [policy.build() for policy in asked_policies(measures, fixed)]
        candidates = numbered(able)
        runner = Runner(measures, candidates, self._replay)
        self.axis = runner.book.axis(settings.cost, runner.reads, beside=runner.beside())
        for number, candidate in enumerate(candidates, start=1):
            doing = f"replaying {candidate.label} ({number} of {len(candidates)})"
            self.progress = replace(self.progress, doing=doing)
            self.policies.append(self._replayed(candidate))
            if candidate.policy is not None:
                table = measures.signals(candidate.policy.specs)
                self.signals |= {
                    spec.name: table.signal(spec.name)
                    for spec in specs_for(self.traces, candidate.policy.signals)
                    if spec in candidate.policy.specs
                }
        for reads in (CostReads(), CostReads(answers=True)):
            _ = measures.costs(self._replay.cost_model).at_stops(reads)[self.axis.name]

    @cached_property
    def _replay(self) -> ComparisonSettings:
        return ComparisonSettings(baseline=f"fixed-{self.traces.n_rounds}", cost=self.settings.cost)

    def _replayed(self, candidate: NamedPolicy) -> PolicyColumns:
        axis = self.axis
        runner = Runner(self.measures, [candidate], self._replay)
        run = runner.run(candidate)
        return PolicyColumns(
            candidate=candidate,
            stops=run.stops,
            answers=run.answers,
            score=run.read.scores[self.measures.metric.score],
            em=run.read.scores["em"],
            cost=None if axis is None else run.read.costs[axis.name],
        )

    # --- read when ready -------------------------------------------------------------------------
    def signal(self, name: str) -> Array:
        """A signal of every question and round, (n_questions, n_rounds)."""
        self._need((name,))
        return self.signals[name]

    def _need(self, names: Sequence[str]) -> None:
        """Signals, measured now where they were not."""
        specs_for(self.traces, names)  # what the record cannot give is told now
        if not self.policies:
            raise NotReadyError(f"the record is being measured: {self.progress.doing}")
        if not self.signals.keys() >= set(names):
            with self._lock:
                self._measure(names)

    def policy(self, name: str, rule: str = "") -> PolicyColumns:
        """A policy by what it is called; :data:`WHAT_IF`: the rule."""
        if name == WHAT_IF:
            return self.rule(rule)
        for policy in self.policies:
            if policy.candidate.name == name:
                return policy
        if not self.progress.ready:
            raise NotReadyError("policies are being replayed")
        known = ", ".join(policy.candidate.name for policy in self.policies)
        raise UsageError(f"no policy {name[:80]!r} in this viewer; allowed: {known}")

    @property
    def full(self) -> PolicyColumns:
        """The full budget."""
        return self.policy(f"fixed-{self.traces.n_rounds}")

    def _rule(self, text: str) -> PolicyColumns:
        check_rule(text, self.traces.signal_names)
        needs = rule_needs(text)
        self._need(needs.signals)
        with self._lock if needs.fitting else nullcontext():
            policy = fit_rule(text, self.measures)
        candidate = NamedPolicy(name=text, kind=policy.kind, preset=None, policy=policy)
        return self._replayed(candidate)

    # --- figures ---------------------------------------------------------------------------------
    def facts(self) -> dict[str, Any]:
        """What the first page says of the record."""
        traces, axis = self.traces, self.axis
        counts = np.bincount(self.splits.codes + 1, minlength=len(self.splits.distinct) + 1)
        names = ["", *self.splits.distinct.to_pylist()]
        metric = self.measures.metric
        return {
            "source": traces.origin.source,
            "run": traces.origin.run,
            "questions": self.n_questions,
            "rounds": traces.n_rounds,
            "recorded_rounds": int(traces.last_rounds.sum()),
            "splits": {
                name: int(count) for name, count in zip(names, counts, strict=True) if count
            },
            "types": self.types.distinct.to_pylist()[:200],
            "scored_split": self.scored_split,
            "metric": metric.label if self.policies else None,
            "gold": metric.gold,
            "cost": None
            if axis is None
            else {"name": axis.name, "label": " ".join(filter(None, axis.head))},
            "signals": {
                spec.name: getattr(spec, "summary", "")
                for spec in specs_for(traces, sorted(self.signals))
            },
            "warnings": self.warnings,
            "notes": self.notes,
            "progress": self.progress,
            "ready": self.progress.ready,
        }

    def figures_of(self, policy: PolicyColumns, rows: NDArray[np.bool_]) -> dict[str, Any]:
        """What a policy scores and pays on some questions, and where it stops."""
        candidate = policy.candidate
        stops = np.bincount(policy.stops[rows], minlength=self.traces.n_rounds + 1)
        return {
            "name": candidate.name,
            "label": candidate.label,
            "kind": candidate.kind,
            "adaptive": candidate.adaptive,
            "summary": "" if candidate.policy is None else candidate.policy.facts.summary,
            "hash": "" if candidate.policy is None else policy_hash(candidate.policy),
            "score": self.interval(policy.score, rows & self.labelled),
            "cost": None if policy.cost is None else self.interval(policy.cost, rows),
            "rounds": float(
                unit_means(policy.stops[rows].astype(np.float64), self.measures.units[rows]).mean()
            )
            if rows.any()
            else None,
            "stops": stops.tolist(),
        }

    @cached_property
    def labelled(self) -> NDArray[np.bool_]:
        """Which questions are scored, (n_questions,)."""
        return self.measures.scores().labelled

    def differences(
        self, one: PolicyColumns, other: PolicyColumns, rows: NDArray[np.bool_]
    ) -> dict[str, Interval | None]:
        """What one policy scores and pays more than another on the same questions."""
        cost = None
        if one.cost is not None and other.cost is not None:
            cost = self.interval(one.cost - other.cost, rows)
        return {"score": self.interval(one.score - other.score, rows & self.labelled), "cost": cost}

    def interval(self, values: Array, rows: NDArray[np.bool_]) -> Interval | None:
        """The mean over units of questions, with its 95% interval; ``None``: of one or more it is unknown."""
        means = unit_means(values[rows], self.measures.units[rows])
        if not len(means) or np.isnan(means).any():
            return None
        if len(means) <= SUMS_ABOVE:
            draws = _counts(len(means)) @ means / len(means)
        else:
            draws = Sums.of(means[:, None]).draws()[:, 0]
        return percentile_interval(float(means.mean()), draws)


@lru_cache(maxsize=2)
def _counts(n_questions: int) -> Array:
    """How often each question is drawn, (resamples, n_questions): at most 40 MB, kept while one types."""
    return np.concatenate(list(resampled_counts(n_questions)))

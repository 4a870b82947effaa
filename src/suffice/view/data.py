"""An open record of the viewer: its columns, measured in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.concurrency import started
from suffice.costs.usage import CostReads
from suffice.errors import SufficeError, UsageError
from suffice.evaluation.replay.compare import proven_on_all
from suffice.evaluation.replay.named_policies import (
    NamedPolicy,
    Wanted,
    asked_policies,
    fixed_names,
    numbered,
    runnable,
)
from suffice.evaluation.replay.runner import Run, Runner
from suffice.evaluation.settings import ComparisonSettings
from suffice.measures.costs import CostAxis
from suffice.measures.measures import Measures
from suffice.measures.seen import record_banners
from suffice.monitor.production import Production, ProductionSettings
from suffice.options import read_since
from suffice.policies.defaults import EVAL_SPLIT, USUAL_METHODS
from suffice.policies.fitting import fit_rule
from suffice.policies.policy_file import policy_hash
from suffice.policies.rules.policy import check_rule, rule_needs
from suffice.signals.columns.arrays import Texts
from suffice.signals.signal_table import given_signals, specs_for
from suffice.stats.intervals import (
    Interval,
    Sums,
    mean_interval,
    resampled_counts,
    with_rare_weights,
)
from suffice.stats.units import per_unit
from suffice.trace.rounds.trace_set import TraceSet

Array = NDArray[np.float64]
Rounds = NDArray[np.int16]

SUMS_ABOVE = 5_000
"""Questions above which intervals come from sums, to be there while somebody types a rule."""
MOST_WATCHED = 20_000
"""Most questions of a record whose policies are watched in the viewer."""
WHAT_IF = "what-if"
"""Name of the tried rule among policies."""
_KEPT_RULES = 16


class NotReadyError(SufficeError):
    """The figures are still being measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSettings:
    policies: tuple[Wanted, ...] = ()
    rules: tuple[str, ...] = ()
    metric: str | None = None
    cost: str | None = None
    fit_on: str | None = None
    since: str = "7d"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyColumns:
    """A policy on every question, as recorded at ``answers``, (n_questions,) each; NaN: unknown, past a cut.

    ``judged`` says what is right. ``replayed`` are the sources of its figures by split, which weigh
    questions; empty: all questions.
    """

    candidate: NamedPolicy
    stops: Rounds
    answers: Rounds
    score: Array
    judged: Array
    cost: Array | None
    replayed: dict[str, tuple[Runner, Run]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    done: int = 0
    of: int = 1
    doing: str = "opening the record"
    trouble: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        return self.done >= self.of


class RecordView:
    """A record for the viewer: facts at once, the rest as :meth:`work` measures it."""

    def __init__(self, measures: Measures, settings: ViewSettings | None = None) -> None:
        self.settings: ViewSettings = settings or ViewSettings()
        self.measures: Measures = measures
        self.traces: TraceSet = measures.traces
        self.questions: Texts = Texts.of(self.traces.first_rounds("question"))
        self.types: Texts = Texts.of(self.traces.first_rounds("question_type"))
        self.splits: Texts = Texts.of(self.traces.first_rounds("split"))
        self.question_ids: pa.ChunkedArray = self.traces.first_rounds("question_id")
        self.n_questions: int = self.traces.n_questions
        self.scored_split: str = (
            EVAL_SPLIT if EVAL_SPLIT in self.splits.distinct.to_pylist() else ""
        )
        """The default split of figures; empty: all questions."""
        # measured so far
        self.policies: list[PolicyColumns] = []
        self.signals: dict[str, Array] = {}
        self.searched: tuple[Texts, pa.Array, Texts] | None = None
        """Questions, ids and answers (by row) in lower case, for the search of words."""
        self.axis: CostAxis | None = None
        self.watched: dict[str, Production] = {}
        """The watch of every policy that ran in the record, by hash."""
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.progress: Progress = Progress()
        self._lock = threading.RLock()
        self.rule: Callable[[str], PolicyColumns] = lru_cache(_KEPT_RULES)(self._rule)
        """Replays a rule on every question."""
        self._ended = False
        self.orders: dict[object, NDArray[np.intp]] = {}
        """The latest selections."""

    def split_of(self, asked: str) -> str:
        """Return the split of a request: ``*`` is all questions (empty), nothing the default split."""
        return "" if asked == "*" else asked or self.scored_split

    def in_split(self, name: str) -> NDArray[np.bool_]:
        """Return which questions lie in a split, (n_questions,); empty: all do."""
        if not name:
            return np.ones(self.n_questions, bool)
        return np.asarray(self.splits.codes == self.splits.code_of(name))

    # --- in the background -----------------------------------------------------------------------
    def start(self) -> RecordView:
        started(self.work, "measuring")
        return self

    def stop(self) -> None:
        self._ended = True

    def work(self) -> None:
        """Measure everything, the most needed first."""
        steps: dict[str, Callable[[], None]] = {
            "scoring answers": self._score,
            "building policies": self._build_policies,
            "reading answers": self._read_searched,
            "measuring signals": lambda: self._measure(given_signals(self.traces)),
            "watching policies that ran": self._watch,
        }
        trouble: tuple[str, ...] = ()
        for done, (doing, step) in enumerate(steps.items()):
            if self._ended:
                break
            self.progress = Progress(done=done, of=len(steps), doing=doing, trouble=trouble)
            try:
                with self._lock:
                    step()
            except (SufficeError, OSError, MemoryError, RuntimeError) as error:
                trouble += (f"{doing}: {error}",)
        self.progress = Progress(done=len(steps), of=len(steps), doing="", trouble=trouble)

    def _read_searched(self) -> None:
        answers = Texts.of(self.traces.table.column("answer"))
        ids = pc.utf8_lower(self.question_ids).combine_chunks()
        self.searched = self.questions.mapped(pc.utf8_lower), ids, answers.mapped(pc.utf8_lower)

    def _score(self) -> None:
        self.measures = self.measures.by(self.settings.metric)
        self.measures.scores()
        self.notes += self.measures.notes(self.settings.metric)
        self.warnings += record_banners(self.traces, self.measures.metric)
        _ = self.measures.seen  # computed now, for whoever asks

    def _measure(self, names: Sequence[str]) -> None:
        new = [name for name in names if name not in self.signals]
        if new:
            table = self.measures.signals(new)
            self.signals |= {name: table.signal(name) for name in new}

    @property
    def watches(self) -> bool:
        """Whether the record is small enough for a watch in the viewer."""
        return self.n_questions <= MOST_WATCHED

    @cached_property
    def ran(self) -> frozenset[str]:
        """The hashes of policies that ran when the record was made."""
        return frozenset(self.traces.first_rounds("policy_hash").unique().to_pylist()) - {None}

    def _watch(self) -> None:
        for candidate in [columns.candidate for columns in self.policies] if self.watches else []:
            if candidate.policy is None or candidate.hash not in self.ran:
                continue
            since = read_since(self.settings.since) if self.traces.has("time") else None
            settings = ProductionSettings(max_rounds=candidate.max_rounds, since=since)
            production = Production(candidate.policy, settings)
            production.read([(self.traces, self.traces.question_ids)])
            self.watched[candidate.hash] = production

    def _build_policies(self) -> None:
        settings, measures = self.settings, self.measures
        names: Sequence[Wanted] = settings.policies
        if not names and not settings.rules:
            names = USUAL_METHODS
        fit_on = None if settings.fit_on is None else Measures.of(settings.fit_on)
        asked = asked_policies(measures, names, settings.rules, fit_on=fit_on)
        able, left_out = runnable(asked, measures, "hotpotqa")
        self.notes += [f"{name} is left out: {why}" for name, why in left_out.items()]
        there = {candidate.name for candidate in able}
        fixed = [name for name in fixed_names(self.traces.n_rounds, 10) if name not in there]
        able += [policy.build() for policy in asked_policies(measures, fixed)]
        candidates = numbered(able)
        if proven_on_all(candidates, self.traces.origin.source):
            self.scored_split = ""
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
        runner = Runner(self.measures, [candidate], self._replay)
        run = runner.run(candidate)
        recorded = runner.recorded(run)
        return PolicyColumns(
            candidate=candidate,
            stops=run.stops,
            answers=run.answers,
            score=recorded.scores[self.measures.metric.score],
            judged=recorded.scores["f1" if self.measures.metric.against == "scores" else "em"],
            cost=None if self.axis is None else recorded.costs[self.axis.name],
            replayed={"": (runner, run)},
        )

    # --- read when ready -------------------------------------------------------------------------
    def signal(self, name: str) -> Array:
        """Return a signal of every question and round, (n_questions, n_rounds)."""
        self._need((name,))
        return self.signals[name]

    def _need(self, names: Sequence[str]) -> None:
        specs_for(self.traces, names)  # refuses signals that the record cannot give
        if not self.policies:
            raise NotReadyError(f"the record is being measured: {self.progress.doing}")
        if not self.signals.keys() >= set(names):
            with self._lock:
                self._measure(names)

    def policy(self, name: str, rule: str = "") -> PolicyColumns:
        """Return the policy of this name; :data:`WHAT_IF`: the rule."""
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
            "scale": self.measures.scores().scale if self.policies else "gold",
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

    def figures_of(self, policy: PolicyColumns, split: str) -> dict[str, Any]:
        candidate, (runner, run) = policy.candidate, self.replayed(policy, split)
        weights = np.nan_to_num(runner.weights(run))
        stops = np.bincount(run.stops, weights, self.traces.n_rounds + 1)
        return {
            "name": candidate.name,
            "label": candidate.label,
            "kind": candidate.kind,
            "adaptive": candidate.adaptive,
            "summary": "" if candidate.policy is None else candidate.policy.facts.summary,
            "hash": "" if candidate.policy is None else policy_hash(candidate.policy),
            **self.differences(split, policy),
            "stops": stops.round(9).tolist(),
        }

    def differences(self, split: str, *policies: PolicyColumns) -> dict[str, Interval | None]:
        """Return the mean score, cost and rounds of a policy, or how much the first differs in them."""
        runs = [self.replayed(one, split) for one in policies]
        costs = {"cost": None if self.axis is None else self.axis.name, "rounds": "rounds"}
        paid = {key: _figure(runs, name) for key, name in costs.items()}
        return {"score": _figure(runs, self.measures.metric.score, of_score=True), **paid}

    def replayed(self, policy: PolicyColumns, split: str) -> tuple[Runner, Run]:
        """Return a policy's replay on a split, as ``suffice replay`` has it."""
        if split not in policy.replayed:
            runner = Runner(self.measures.only_split(split), [policy.candidate], self._replay)
            policy.replayed[split] = runner, runner.run(policy.candidate)
        return policy.replayed[split]


def _figure(
    replays: Sequence[tuple[Runner, Run]], name: str | None, *, of_score: bool = False
) -> Interval | None:
    """Return a mean, or the difference of two, with its 95% interval; the range of an unknown one."""
    reader, reads = replays[0][0].reader, list[Any](run.read for _, run in replays)
    values = [(read.scores if of_score else read.costs).get(name) for read in reads]
    if any(one is None for one in values):
        return None
    if (ranged := reads[0].ranges.get(str(name))) is not None and len(reads) == 1:
        high = np.nan if ranged.high is None else ranged.high
        return Interval(estimate=np.nan, low=ranged.low, high=high)
    some = reader.labelled if of_score else np.ones(len(reader.labelled), bool)
    means = per_unit(np.column_stack(values)[some], reader.units[some])
    if not len(means) or np.isnan(means).any():
        return None
    few = len(means) <= SUMS_ABOVE
    draws = _counts(len(means)) @ means / len(means) if few else Sums.of(means).draws()
    less = [1.0, *(-1.0 for _ in replays[1:])]
    itself = len({run.candidate.name for _, run in replays}) < len(replays)
    if not of_score or itself:  # a policy differs from itself in no question, whatever was drawn
        return mean_interval(means @ less, draws @ less, None)
    reach = np.array([runner.reach(run) for runner, run in replays])
    draws = with_rare_weights(draws, means, reach) @ less
    least, size = float(1 - len(replays)), replays[0][0].equally_many(reach.any())
    return mean_interval(means @ less, np.clip(draws, least, 1.0), least, size=size)


@lru_cache(maxsize=2)
def _counts(n_questions: int) -> Array:
    """Return how often each question is drawn, (resamples, n_questions); at most 40 MB are kept."""
    return np.concatenate(list(resampled_counts(n_questions)))

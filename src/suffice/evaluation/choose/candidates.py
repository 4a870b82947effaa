"""Questions and candidates of a choice: the parts that fit, rank and prove, and the policies on them."""

from __future__ import annotations

import hashlib
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import DelayedPolicy
from suffice.costs.usage import CostReads
from suffice.errors import SufficeWarning, UsageError, attempt, counted
from suffice.evaluation.choose.bounds import Bound, Half, mean_of
from suffice.evaluation.choose.families import build_family, paid_by_rules, rules_of_grid
from suffice.evaluation.choose.rule_stops import RuleStops
from suffice.evaluation.replay.frontier import pareto_front
from suffice.evaluation.replay.named_policies import (
    AskedPolicy,
    NamedPolicy,
    asked_policies,
    numbered,
    runnable,
)
from suffice.evaluation.replay.runner import Runner
from suffice.evaluation.settings import ChoiceSettings, ComparisonSettings
from suffice.measures.contents import NOT_AS_PROMISED, exploration
from suffice.measures.costs import CostAxis, CostBook, policy_reads
from suffice.measures.measures import Measures
from suffice.measures.seen import Seen
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT
from suffice.policies.method import Preset
from suffice.policies.registry import find_method, fit_method, nameable_methods
from suffice.policies.unfitted import FixedPolicy
from suffice.scoring import AnswerChoice, F1Kind
from suffice.stats.units import Array, lots, numbered_units
from suffice.trace.rounds.trace_set import TraceSet, in_words, unit_keys

RANK, PROVE = "rank", "prove"
_RANK_SHARE = 1 / 3
_FEWEST = 4
"""Labelled questions that each part must hold."""


def without_gaps(measures: Measures, who: str, f1_kind: F1Kind) -> tuple[Measures, str | None]:
    """Return the questions with unscored answers at their worst, and how many have some."""
    scored = measures.scores(f1_kind)
    gaps = (measures.traces.exists & np.isnan(scored.compared)).any(axis=1) & scored.labelled
    if not gaps.any():
        return measures, None
    if measures.seen is not None or (gaps == scored.labelled).all():
        measures.scores_throughout(who, f1_kind)  # refuses, saying what would mend it
    return measures.at_worst(), (
        f"{counted(int(gaps.sum()), measures.metric.noun)} without a scored answer in some round count at "
        "their worst: wrong if stopped there, right at the full budget"
    )


def refuse_unscored(part: Measures, split: str, f1_kind: F1Kind) -> None:
    if not part.scores(f1_kind).labelled.any():
        raise UsageError(
            f"no question of split {split!r} {part.metric.unscored}; to see which do: suffice traces info "
            f"{part.traces.at}"
        )


def labelled_only(measures: Measures, settings: ChoiceSettings) -> tuple[Measures, list[str]]:
    labelled = measures.scores(settings.f1_kind).labelled
    if not labelled.any():
        raise UsageError(
            f"no question of {measures.traces.origin.source} {measures.metric.unscored}; record or label "
            "some, or compare without gold answers: --metric agreement"
        )
    if labelled.all():
        return measures, []
    left_out = counted(int((~labelled).sum()), "question")
    return measures.only_labelled(labelled), [f"{left_out} not {measures.metric.scored} left out"]


def refuse_wrong_exploration(measures: Measures) -> None:
    """Refuse a record whose share of explored questions is not the stated one: its weights are wrong."""
    if (seen := measures.seen) is None:
        return
    found = exploration(seen, measures.scores().labelled)
    if wrong := [one for one in found.notes() if one.startswith(NOT_AS_PROMISED)]:
        raise UsageError(
            f"nothing can be proven from {measures.traces.origin.source}, {wrong[0]}; keep every question of "
            "the log and its true propensity, or choose on a record that no policy cut"
        )


def in_parts(measures: Measures, settings: ChoiceSettings) -> tuple[Measures, list[str]]:
    """Divide labeled questions into splits tune, rank and prove by whole units, and note how."""
    traces, units = measures.traces, measures.units
    names = (settings.tune_split, settings.split)
    random = np.random.default_rng(settings.seed)
    missing = [name for name in names if name not in traces.splits]
    if missing and names != (FIT_SPLIT, EVAL_SPLIT):
        traces.only_split(missing[0])  # refuses, saying which there are
    n_units = int(units.max(initial=-1)) + 1
    notes = []
    if missing:
        drawn = random.permutation(n_units)
        first, second = round(0.4 * n_units), round(0.6 * n_units)
        fits, ranks = np.isin(units, drawn[:first]), np.isin(units, drawn[first:second])
        proves = ~fits & ~ranks
        there = ", ".join(f"{name} ({size:,})" for name, size in traces.splits.items()) or "none"
        notes.append(
            f"the record has no splits {FIT_SPLIT} and {EVAL_SPLIT} (it has {there}), so all questions "
            f"were split at random (seed {settings.seed}) into parts that fit, rank and prove"
        )
    else:
        fits, kept = (traces.in_split(name) for name in names)
        both = kept & np.isin(units, units[fits])
        if both.any():
            notes.append(
                f"{counted(int(both.sum()), 'question')} of split {settings.split} left out of fitting "
                f"and ranking: their text or group also occurs in split {settings.tune_split}"
            )
        drawn = random.permutation(np.unique(units[kept & ~both]))
        ranks = kept & ~both & np.isin(units, drawn[: round(len(drawn) * _RANK_SHARE)])
        proves = kept & ~both & ~ranks
    parts = {FIT_SPLIT: fits, RANK: ranks, PROVE: proves}
    short = [f"{int(part.sum())} to {name}" for name, part in parts.items() if part.sum() < _FEWEST]
    if short:
        raise UsageError(
            f"choosing needs at least {_FEWEST} questions {measures.metric.scored} to fit, as many to rank "
            f"and to prove; {traces.origin.source} has {', '.join(short).replace('tune', 'fit')}; record or "
            "label more, or compare without gold answers: --metric agreement"
        )
    splits: list[str | None] = [None] * traces.n_questions
    for name, part in parts.items():
        for number in np.flatnonzero(part).tolist():
            splits[number] = name
    return measures.in_splits(splits), notes


def digest_of(traces: TraceSet) -> str:
    return hashlib.sha256(np.sort(unit_keys(traces)).tobytes()).hexdigest()[:16]


def refuse_one_round(measures: Measures) -> None:
    if measures.traces.n_rounds < 2 and measures.seen is None:
        raise UsageError(
            f"every question of {measures.traces.origin.source} has one round, so there is nothing to "
            "choose; record more rounds: suffice record --rounds 5"
        )


def refuse_several_loops(measures: Measures) -> None:
    """Refuse a folder with files of different loops; a merged file is one loop on purpose."""
    traces = measures.traces
    apart = [difference for difference in traces.origin.loops if difference.between_files]
    if apart:
        file = Path(traces.origin.source) / next(iter(apart[0].files.values()))[0]
        raise UsageError(
            f"the files of {traces.origin.source} are from different loops, {in_words(apart)}; choose for "
            f"one: suffice choose {shlex.quote(str(file))} --out NEW; or merge them first to choose one "
            "policy for all: suffice traces merge FILE FILE --out NEW"
        )


LATEST, MAJORITY = "latest", "majority"
MOST_RULES = 40
"""Most rules among the candidates: of the Pareto front on tune, evenly by cost."""
_MOST_ROUNDS = 24
"""Most budgets of one path; others are left out evenly."""
Group = Literal["fixed", "method", "rule", "path"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    policy: NamedPolicy
    group: Group
    answer: str = LATEST

    @property
    def of_no_label(self) -> bool:
        """Whether it used no label, so that all questions can measure it."""
        return self.group in ("path", "fixed")

    @property
    def title(self) -> str:
        answer = "most frequent answer" if self.answer == MAJORITY else f"answer of {self.answer}"
        returned = "" if self.answer == LATEST else f", and return the {answer}"
        policy, method = self.policy.policy, find_method(self.policy.kind)
        if isinstance(policy, FixedPolicy):
            return f"stop after round {policy.rounds}{returned}"
        if self.group == "method" and method is not None and method.summary.startswith("stop "):
            return f"{method.summary}{returned}"
        return f"stop when {self.policy.label}{returned}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """All candidates, with the full budget at ``full``."""

    members: tuple[Candidate, ...]
    full: int
    rules_looked_at: int
    left_out: Mapping[str, str]
    notes: tuple[str, ...]
    warned: tuple[str, ...] = ()


def budgets_below(budget: int, least: int) -> list[int]:
    """Return smaller budgets down to the least; of many an even sample.

    >>> budgets_below(5, 1)
    [4, 3, 2, 1]
    """
    rounds = np.arange(budget - 1, least - 1, -1)
    if len(rounds) > _MOST_ROUNDS:
        rounds = rounds[np.linspace(0, len(rounds) - 1, _MOST_ROUNDS).round().astype(int)]
    return [int(number) for number in rounds]


def candidates_of(record: Measures, kept: Measures, settings: ChoiceSettings) -> Candidates:
    """Return all policies that the record can feed, fitted on split tune."""
    budget = int(max(kept.ends.max(), 1))
    if settings.min_rounds > budget:
        raise UsageError(
            f"min_rounds is {settings.min_rounds}, and the full budget of {kept.traces.origin.source} is "
            f"{counted(budget, 'round')}; give {budget} at most"
        )
    fixed = [f"fixed-{k}" for k in (*budgets_below(budget, settings.min_rounds)[::-1], budget)]
    book = kept.costs(settings.cost_model)
    book.axis(settings.cost, {})  # refuses a cost that no fixed budget has
    rules, looked_at, notes, why = _rules(record, kept, settings)
    asked = asked_policies(record, fixed, f1_kind=settings.f1_kind)
    if settings.family == "all":
        asked += _methods(record, settings)
    of_user = asked_policies(record, settings.policies, f1_kind=settings.f1_kind)
    asked += [*of_user, *asked_policies(record, (), rules, f1_kind=settings.f1_kind)]
    warned: list[str] = []
    asked = [replace(one, build=partial(_told, one, warned)) for one in asked]
    able, left_out = runnable(asked, kept, settings.f1_kind)
    for one in of_user:
        if one.name in left_out:
            raise UsageError(f"policy {one.name!r} cannot run here: {left_out[one.name]}")
    if why is not None:
        left_out["rules"] = why
    texts = set(rules)
    able = [_held_back(policy, settings.min_rounds, texts) for policy in able]
    unfit = {policy.name: _unfit(policy, kept, settings, book) for policy in able}
    left_out |= {name: reason for name, reason in unfit.items() if reason}
    policies = numbered([policy for policy in able if not unfit[policy.name]])
    members = [
        Candidate(
            policy=policy,
            answer=settings.answer,
            group="fixed"
            if isinstance(policy.policy, FixedPolicy)
            else "rule"
            if policy.name in texts
            else "method",
        )
        for policy in policies
    ]
    return Candidates(
        members=tuple(members),
        full=next(n for n, one in enumerate(members) if one.policy.name == f"fixed-{budget}"),
        rules_looked_at=looked_at,
        left_out=left_out,
        notes=notes,
        warned=tuple(dict.fromkeys(warned)),
    )


def _told(asked: AskedPolicy, warned: list[str]) -> NamedPolicy:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SufficeWarning)
        built = asked.build()
    for one in caught:
        if issubclass(one.category, SufficeWarning):
            warned.append(f"{asked.name}: {one.message}")
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    return built


def _held_back(policy: NamedPolicy, first: int, rules: set[str]) -> NamedPolicy:
    """Delay a policy to the least round; rules of the family are delayed already."""
    if first == 1 or policy.name in rules or not isinstance(policy.policy, DelayedPolicy):
        return policy
    return replace(policy, policy=policy.policy.from_round(first))


def _unfit(policy: NamedPolicy, kept: Measures, settings: ChoiceSettings, book: CostBook) -> str:
    first = settings.min_rounds
    if policy.policy is None:
        return "it needs what a loop does not know, or answers before the first round"
    asked, own = AnswerChoice.parse(settings.answer), policy.policy.needs.returns
    if asked.or_own(own) != asked:
        return f"it does not return the {settings.answer} answer; to allow that: --answer {own}"
    reads = policy_reads(policy.policy, policy.max_rounds)
    if settings.cost is not None and (why := book.why_unknown(settings.cost, reads)):
        return why
    if first == 1 or isinstance(policy.policy, DelayedPolicy):
        return ""
    if not policy.adaptive and kept.wanted_rounds(policy.policy).min() >= first:
        return ""
    return f"it may stop a question before round {first}"


def _methods(record: Measures, settings: ChoiceSettings) -> list[AskedPolicy]:
    names, variants = [], []
    for name in nameable_methods():
        method = find_method(name)
        if method is None:
            continue
        if method.quick:
            names += [f"{name}-{preset}" for preset in method.presets]
        for variant, options in method.variants.items():
            label = f"{name} ({variant})"
            preset = "corrected" if "corrected" in method.presets else method.presets[0]
            build = partial(_variant, record, (name, preset), label, dict(options))
            variants.append(AskedPolicy(name=label, build=build))
    return [*asked_policies(record, names, f1_kind=settings.f1_kind), *variants]


def _variant(
    record: Measures, fitted: tuple[str, Preset], label: str, options: dict[str, Any]
) -> NamedPolicy:
    name, preset = fitted
    policy = fit_method(name, record, preset, FIT_SPLIT, **options)
    return NamedPolicy.of(policy, label)


def _rules(
    record: Measures, kept: Measures, settings: ChoiceSettings
) -> tuple[list[str], int, tuple[str, ...], str | None]:
    """Return texts of good rules, the number of all, notes, and the reason if there are none."""
    if settings.family == "fixed":
        return [], 0, (), None
    fit = record.only_split(FIT_SPLIT)
    fit = fit.take(fit.scores(settings.f1_kind).labelled)
    if settings.family == "thresholds":
        texts = rules_of_grid(fit, settings)
        return texts, len(texts), (), None
    build = partial(
        build_family,
        fit,
        signals=settings.signals,
        max_signals=settings.max_signals,
        min_rounds=settings.min_rounds,
    )
    # what was asked for by name is refused; of what was not, the reason is told
    asked_for = settings.signals is not None or settings.family == "rule"
    family, why = (build(), None) if asked_for else attempt(build)
    if family is None:
        return [], 0, (), why
    book = fit.costs(settings.cost_model)
    cost = settings.cost
    known = {
        reads for reads in set(family.reads) if cost is None or not book.why_unknown(cost, reads)
    }
    priced = np.flatnonzero([reads in known for reads in family.reads])
    stops = family.stops.take(priced)
    reads = [family.reads[number] for number in priced]
    axis = book.axis(settings.cost, {str(number): one for number, one in enumerate(known)})
    costs = paid_by_rules(book, axis, stops, reads, fit.seen)
    half = Half(
        stops=stops,
        scores=fit.scores(settings.f1_kind).compared,
        last=fit.traces.last_rounds,
        costs=costs,
        seen=None if fit.seen is None else fit.seen.of(fit.scores(settings.f1_kind)),
        reach=1.0 if fit.seen is None else fit.seen.reach,
    )
    losses = mean_of(half, Bound(of="signed", most=0.0))
    front = np.flatnonzero(pareto_front(costs, -losses))
    front = front[np.argsort(costs[front], kind="stable")]
    some = np.unique(
        np.linspace(0, len(front) - 1, min(MOST_RULES, len(front))).round().astype(int)
    )
    budget = max(int(kept.ends.max()), fit.traces.n_rounds)
    fixed = {f"round >= {k}" for k in range(1, budget + 1)}
    texts = [rule for number in priced[front[some]] if (rule := family.rules[number]) not in fixed]
    notes = family.notes
    if len(priced) < len(family.rules):
        left = f"{len(family.rules) - len(priced):,} of {counted(len(family.rules), 'rule')}"
        notes += (f"left out: {left}, as {settings.cost} is not known for their signals",)
    return texts, len(priced), notes, None


_ORDERS, _BETS, _MANY = (200, 1000), 600_000, 20_000
"""Least and most orders in which units are bet on, their number times the units, and the units beyond which
one order is as good as many."""


def betting_orders(keys: Array, units: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return orders of the betting test from the keys of questions alone, (n_orders, n_units)."""
    first = np.unique(units, return_index=True)[1]
    names = [f"{key:.0f}" for key in keys[first].tolist()]
    least, most = _ORDERS
    count = max(least, min(most, _BETS // max(len(names), 1))) if len(names) <= _MANY else 1
    return np.stack([np.argsort(lots(f"order {n}", names), kind="stable") for n in range(count)])


def _in_order_of_recording(measures: Measures) -> NDArray[np.intp]:
    """Return the place of every question in the order of recording, (n_questions,)."""
    traces = measures.traces
    ended = traces.of_last_rounds("time") if traces.has("time") else [None]
    why = None
    if measures.seen is not None:
        why = "a policy cut some of its questions"
    elif None in ended:
        why = "it does not say when every question was recorded (column time)"
    elif len(np.unique(measures.units)) < traces.n_questions:
        why = "some of its questions have the same text or group"
    if why is not None:
        raise UsageError(
            f"--anytime bets on questions in the order of recording, and {traces.origin.source} does not "
            f"allow that: {why}; leave --anytime out and choose once, at a size decided beforehand"
        )
    return np.argsort(np.argsort(np.array(ended), kind="stable"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    stops: NDArray[np.int16]  # (n_members, n_questions), from 1
    scores: Array  # (n_questions, n_rounds)
    right: Array  # EM, alike
    costs: Array  # (n_members, n_questions), those of the axis
    tables: tuple[Array, ...]  # (n_questions, n_rounds) each: the costs of stopping there
    paid_by: NDArray[np.intp]  # (n_members,): the table that each pays by
    last: NDArray[np.int16]
    axis: CostAxis
    seen: Seen | None
    reach: float
    units: NDArray[np.intp]
    keys: Array  # of the units, as :func:`unit_keys` makes them
    ids: Sequence[str]
    recorded: NDArray[np.intp] | None  # the questions in the order of recording, if bets follow it

    @classmethod
    def of(cls, kept: Measures, members: Sequence[Candidate], settings: ChoiceSettings) -> Kept:
        runner = Runner(
            kept,
            [member.policy for member in members],
            ComparisonSettings(**settings.scored, answer=settings.answer),
        )
        axis = runner.book.axis(settings.cost, runner.reads)
        scored = kept.scores(settings.f1_kind)
        taken, costs = [], []
        tables: dict[CostReads, Array] = {}
        paid_by: list[int] = []
        rows, ends = np.arange(kept.traces.n_questions), kept.ends
        for member in members:
            policy = member.policy.policy
            if policy is None:
                continue
            stops = np.minimum(kept.wanted_rounds(policy), ends)
            if member.policy.max_rounds is not None:
                stops = np.minimum(stops, member.policy.max_rounds)
            taken.append(stops.astype(np.int16))
            kind = runner.reads[member.policy.name]
            paid = tables.setdefault(kind, runner.book.known(axis, kind))
            paid_by.append(list(tables).index(kind))
            if kept.seen is not None:
                paid = kept.seen.paid(paid)
            costs.append(paid[rows, np.minimum(stops, paid.shape[1]) - 1])
        return cls(
            stops=np.stack(taken),
            scores=runner.returned.compared,
            right=runner.returned.em,
            costs=np.stack(costs),
            tables=tuple(tables.values()),
            paid_by=np.array(paid_by, np.intp),
            last=kept.traces.last_rounds,
            axis=axis,
            seen=None if kept.seen is None else kept.seen.of(scored),
            reach=1.0 if kept.seen is None else kept.seen.reach,
            units=kept.units,
            keys=unit_keys(kept.traces),
            ids=kept.traces.question_ids,
            recorded=_in_order_of_recording(kept) if settings.anytime else None,
        )

    def half(self, rows: NDArray[np.intp]) -> Half:
        units = numbered_units(self.units[rows])
        return Half(
            stops=RuleStops.of_array(self.stops[:, rows]),
            scores=self.scores[rows],
            right=self.right[rows],
            last=self.last[rows],
            costs=self.costs[:, rows].mean(axis=1),
            seen=None if self.seen is None else self.seen.take(rows),
            reach=self.reach,
            units=units,
            orders=betting_orders(self.keys[rows], units)
            if self.recorded is None
            else np.argsort(self.recorded[rows])[None, :],
            anytime=self.recorded is not None,
        )

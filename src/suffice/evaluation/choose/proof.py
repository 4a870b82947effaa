"""Proofs along paths that recycle their error (Bretz et al. 2009), beside a family that gives none back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np

from suffice.errors import UsageError
from suffice.evaluation.choose.bounds import (
    Bound,
    Half,
    OrderedTests,
    Promise,
    limit_of,
    mean_of,
    member_tests,
    p_values_of,
    plain,
)
from suffice.evaluation.choose.candidates import Candidate, Kept, budgets_below
from suffice.evaluation.replay.named_policies import NamedPolicy
from suffice.evaluation.settings import USUAL_LOSS, ChoiceSettings
from suffice.measures.costs import CostAxis
from suffice.measures.measures import Measures
from suffice.policies.rules.language import parse
from suffice.policies.rules.policy import Rule, check_rule, not_before, rule_needs
from suffice.results.formats import about
from suffice.signals.known_signals import SIGNALS, own_among, resolve
from suffice.signals.signal_table import lack
from suffice.stats.units import Array, unit_means

COINS = (0.25, 0.5, 0.75, 1.0)
"""Shares of the questions on which the next policy of a path decides, drawn by each question's coin."""
_SIMILAR = (0.95, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1)
_SURE = (0.99, 0.97, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)
_RATED = (4.5, 3.5, 2.5, 1.5)
_CONFIDENCES = ("answer_prob", "self_consistency", "token_probability", "verbalized_confidence")
_IN_WORDS = {
    "token_probability": "token probability",
    "self_consistency": "sample agreement",
    "verbalized_confidence": "stated confidence",
}
_SHARES = {
    0.25: "one question in four",
    0.5: "half of the questions",
    0.75: "three questions in four",
}


@dataclass(frozen=True, slots=True)
class Step:
    """A policy of a path: its rule, and its decision in words, behind "stop"."""

    rule: str
    when: str

    def mixed(self, before: Step | None, share: float) -> Step:
        """Return it for a share of the questions, with ``before`` for the others (``None``: full budget)."""
        if share == 1.0:
            return self
        tossed = f"(coin() < {share:g} and ({self.rule}))"
        if before is None:
            return Step(tossed[1:-1], f"{self.when} on {_SHARES[share]}")
        ours, theirs = self.when.split(), before.when.split()
        if ours[:-1] == theirs[:-1]:
            when = f"{before.when} ({ours[-1]} on {_SHARES[share]})"
        else:
            when = f"{before.when}, on {_SHARES[share]} {self.when}"
        return Step(f"{before.rule} or {tossed}", when)

    def from_round(self, first: int) -> Step:
        if first == 1:
            return self
        return Step(not_before(self.rule, first), f"{self.when}, from round {first} on")


@dataclass(frozen=True, slots=True)
class Path:
    """Policies in the order of ever earlier stops."""

    name: str
    steps: tuple[Step, ...]


def paths_of(
    record: Measures, cost: str, *, min_rounds: int = 1, own: Sequence[OwnPath] = ()
) -> Iterator[Path]:
    """Yield the paths of a record's signals, and the user's own, without gold answers."""
    counts = budgets_below(int(max(record.ends.max(), 1)), min_rounds)
    fixed = [Step(f"round >= {count}", f"after round {count}") for count in counts]

    def ending(steps: Sequence[Step]) -> tuple[Step, ...]:
        """The steps, the last of them with ever smaller budgets, then the least of these alone."""
        last, least = steps[-1], fixed[-1:]
        both = (
            Step(f"{last.rule} or {one.rule}", f"{last.when}, or {one.when}") for one in fixed[:-1]
        )
        return (*(one.from_round(min_rounds) for one in (*steps, *both)), *least)

    yield Path("fixed", tuple(fixed))
    for path in (_agreement, _confidence, _novelty):
        if steps := path(_Defined(record, cost), counts):
            yield Path(path.__name__.removeprefix("_"), ending(steps))
    for number, one in enumerate(own, start=1):
        yield Path(f"own path {number}", ending(one.steps(record)))


class _Defined:
    def __init__(self, record: Measures, cost: str) -> None:
        self.record = record
        self._all_free = cost == "rounds"

    def __call__(self, name: str) -> bool:
        traces = self.record.traces
        if name not in SIGNALS and name not in traces.signal_names:
            return False
        if lack(resolve(name, also=traces.signal_names), traces) is not None:
            return False
        return bool(np.isfinite(self.record.signals([name]).signal(name)).any())

    def free(self, name: str) -> bool:
        """Whether it is defined and to read it costs nothing."""
        return self(name) and (self._all_free or name not in SIGNALS or not SIGNALS[name].charges)

    def own_confidence(self) -> str | None:
        """The user's own signal that lies between 0 and 1 and varies, the first by name."""
        for name in sorted(set(self.record.traces.signal_names) - set(SIGNALS)):
            values = self.record.signals([name]).signal(name)
            values = values[np.isfinite(values)]
            if values.size and 0.0 <= values.min() < values.max() <= 1.0:
                return name
        return None


def _agreement(defined: _Defined, rounds: Sequence[int]) -> list[Step]:
    """Answers alike in several rounds running, then ever less alike."""
    if not defined("answer_repeats"):
        return []
    steps = _in_a_row(
        rounds,
        lambda count: "answer_repeats" if count == 1 else f"rounds_with(answer_repeats) >= {count}",
        lambda count: "when the answer repeats" + (f" {count} times in a row" if count > 1 else ""),
    )
    if defined("answer_similarity_seq"):
        steps += [
            Step(
                f"answer_repeats or answer_similarity_seq > {level:g}",
                f"when the answer is over {level:.0%} similar to the last one",
            )
            for level in _SIMILAR
        ]
    return steps


def _confidence(defined: _Defined, rounds: Sequence[int]) -> list[Step]:
    """The first signal of confidence that is there, from sure to unsure."""
    del rounds
    name = next(filter(defined.free, _CONFIDENCES), None) or defined.own_confidence()
    if name is None:
        return []
    levels = _RATED if name == "verbalized_confidence" else _SURE
    words = _IN_WORDS.get(name, name)
    return [Step(f"{name} > {level:g}", f"when {words} is above {level:g}") for level in levels]


def _novelty(defined: _Defined, rounds: Sequence[int]) -> list[Step]:
    """Rounds without a new passage, then passages ever more like earlier ones."""
    if not defined("new_passages"):
        return []
    steps = _in_a_row(
        rounds,
        lambda count: f"rounds_without(new_passages) >= {count}",
        lambda count: (
            "when a round adds nothing new"
            if count == 1
            else f"after {count} rounds in a row that add nothing new"
        ),
    )
    if defined("overlap"):
        steps += [
            Step(
                f"{steps[-1].rule} or overlap > {level:g}",
                f"when a round adds nothing new or overlaps over {level:.0%}",
            )
            for level in _SIMILAR
        ]
    return steps


def _in_a_row(
    rounds: Sequence[int], rule: Callable[[int], str], when: Callable[[int], str]
) -> list[Step]:
    counts = sorted({*rounds, 1}, reverse=True)
    return [Step(rule(count), when(count)) for count in counts]


@dataclass(frozen=True, slots=True)
class OwnPath:
    """A user's path: a rule with ``x`` for a number, and the numbers, the safest first."""

    template: str
    levels: tuple[float, ...]

    def steps(self, record: Measures) -> list[Step]:
        words = self.template.replace("?", " x ").split()
        if words.count("x") != 1:
            raise UsageError(
                f"a path is a rule with one x in place of a number, found {self.template!r}; type for "
                "example --path 'answer_prob > x' --levels .99,.95,.9"
            )
        steps = []
        for level in self.levels:
            rule = str(parse(" ".join(repr(level) if word == "x" else word for word in words)))
            check_rule(rule, record.traces.signal_names)
            steps.append(Step(rule, f"when {rule}"))
        if not steps:
            raise UsageError(f"path {self.template!r} has no levels; give --levels .99,.95,.9")
        return steps


_USUAL_SHARE = 0.4
"""Of the error, for the usual bound among several; the others have equal parts of the rest."""
_LEARNED_SHARE = 0.1
POWER = 0.8
"""Probability with which a number of questions that is named would prove something."""
LIKELY = 0.8
"""Confidence in a guess."""
_SLACK = 1.15
"""Questions that the betting test needs beyond a test of a normal mean, as a factor."""
_MOST_TIMES = 20
"""Times the questions there are beyond which more of them is no advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """A policy proven to keep a promise; ``path`` is empty for the learned family."""

    candidate: Candidate
    title: str
    path: str
    p_value: float
    saved: float
    measured: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A promise, the cheapest policy proven to keep it, or the number of questions that would tell."""

    promise: Promise
    proven: Proven | None
    needed: int | None
    noun: str
    tested: int
    rejected: int
    units: int
    walked: bool
    learned: tuple[OrderedTests, int] | None

    @property
    def more(self) -> str:
        """Say how many questions would prove it, if known."""
        if self.needed is not None:
            return f"{about(self.needed)} {self.noun}s would tell"
        if self.walked:
            return f"even {_MOST_TIMES} times as many questions would not tell"
        return "how many questions would tell is not known"

    def document(self) -> dict[str, Any]:
        promise, proven = self.promise, self.proven
        measured = [None] * len(promise.bounds) if proven is None else proven.measured
        bounds = [
            {"of": bound.of, "at_most": bound.most, "measured": mean}
            for bound, mean in zip(promise.bounds, measured, strict=True)
        ]
        return {
            "max_loss": promise.max_loss,
            "confidence": promise.confidence,
            "loss": None if promise.max_loss is None else promise.loss,
            "fell_back": proven is None,
            "p_value": None if proven is None else proven.p_value,
            "path": None if proven is None else proven.path or "learned",
            "measured_loss": None if promise.max_loss is None else measured[0],
            "tested": self.tested,
            "certified": self.rejected,
            "units": self.units,
            "questions_needed": self.needed,
            **({"bounds": bounds} if len(bounds) > 1 else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    """All promises, with the numbers of the one ``asked`` for and of the chosen policy's (``at``)."""

    rows: tuple[Row, ...]
    asked: int
    at: int
    guess: Proven | None

    @property
    def row(self) -> Row:
        return self.rows[self.at]

    @property
    def proven(self) -> list[Candidate]:
        return [row.proven.candidate for row in self.rows if row.proven is not None]

    @property
    def candidates(self) -> list[Candidate]:
        return [*([] if self.guess is None else [self.guess.candidate]), *self.proven]


def walk(
    p_values: Sequence[Array], shares: Sequence[float], gives: Sequence[bool]
) -> tuple[int, ...]:
    """Return the number of rejected hypotheses of each sequence, at its share and recycled shares.

    >>> walk([np.array([0.01, 0.02]), np.array([0.03, 0.2])], [0.025, 0.025], [True, True])
    (2, 1)
    """
    share, done = list(shares), [0] * len(p_values)
    moved = True
    while moved:
        moved = False
        for number, of_path in enumerate(p_values):
            while done[number] < len(of_path) and of_path[done[number]] <= share[number]:
                done[number], moved = done[number] + 1, True
            left = [
                k for k, p in enumerate(p_values) if k != number and done[k] < len(p) and gives[k]
            ]
            if gives[number] and done[number] == len(of_path) and share[number] and left:
                for other in left:
                    share[other] += share[number] / len(left)
                share[number] = 0.0
    return tuple(done)


class Along:
    def __init__(
        self, record: Measures, settings: ChoiceSettings, paths: Sequence[Path], answer: str
    ) -> None:
        self._signals = record.traces.signal_names
        full = Step(f"round >= {record.traces.n_rounds}", "never")
        steps = [full, *(step for path in paths for step in path.steps)]
        self._answer = answer
        self._members = [self.candidate(step) for step in steps]
        self._kept = Kept.of(record, self._members, settings)
        self._questions = record.traces.n_questions
        self.noun: str = record.metric.noun
        self.half: Half = self._kept.half(np.arange(self._questions))
        self.full_cost: float = float(self.half.costs[0])
        self.axis: CostAxis = self._kept.axis
        self.names: tuple[str, ...] = tuple(path.name for path in paths)
        self._steps = steps
        self._pairs = [*self._chains(paths)]

    def _chains(self, paths: Sequence[Path]) -> Iterator[list[tuple[int, int]]]:
        """The neighbours of every path, by number; what stops every question alike counts once."""
        at, stops = 1, self._kept.stops
        for path in paths:
            pairs, before = [], 0
            for number in range(at, at + len(path.steps)):
                later = np.flatnonzero(stops[number] > stops[before])
                if len(later):
                    raise UsageError(
                        f"{path.name}: {self._steps[number].rule!r} stops question "
                        f"{self._kept.ids[int(later[0])]!r} later than {self._steps[before].rule!r} does; "
                        "order the levels from safe to bold, so that each stops no question later"
                    )
                if (stops[number] < stops[before]).any():
                    pairs.append((before, number))
                    before = number
            at += len(path.steps)
            yield pairs

    def candidate(self, step: Step) -> Candidate:
        own = own_among(rule_needs(step.rule).signals, self._signals)
        rule = str(parse(step.rule))
        policy = Rule(rule=rule, kind="certified", own_signals=own)
        named = NamedPolicy.of(policy, rule)
        return Candidate(policy=named, group="path", answer=self._answer)

    def step(self, path: int, number: int) -> Step:
        (before, after), share = self._pairs[path][number // 4], COINS[number % 4]
        return self._steps[after].mixed(self._steps[before] if before else None, share)

    def losses(self, path: int, bound: Bound) -> Array:
        """Expected over the coins, as :meth:`Half.losses` scales them, (n_units, n_hypotheses)."""
        pairs = self._pairs[path]
        if not pairs:
            return np.empty((len(self.half), 0))
        used = np.unique(pairs)
        columns = self.half.losses(used, bound.of)
        before, after = (columns[:, np.searchsorted(used, part)] for part in np.array(pairs).T)
        return np.stack([(1 - c) * before + c * after for c in COINS], axis=2).reshape(
            len(columns), -1
        )

    def p_values(self, path: int, bounds: Sequence[Bound], level: float) -> Array:
        """Of every hypothesis, the greatest over the bounds, (n_hypotheses,)."""
        tests = (p_values_of(self.half, self.losses(path, b), b, level) for b in bounds)
        return np.asarray(np.max([*tests], axis=0))

    def costs(self, path: int) -> Array:
        """Means a unit over the coins, (n_hypotheses,): both pay for what the later one reads."""
        kept, stops, rows = self._kept, self._kept.stops, np.arange(len(self._kept.last))
        means = []
        for before, after in self._pairs[path]:
            table = kept.tables[kept.paid_by[after]]
            table = table if kept.seen is None else kept.seen.paid(table)
            both = (table[rows, stops[n] - 1] for n in (before, after))
            first, last = (float(unit_means(paid, kept.units).mean()) for paid in both)
            means += [(1 - c) * first + c * last for c in COINS]
        return np.array(means)

    def cheapest(self, path: int, p_values: Array, promise: Promise, count: int) -> Proven | None:
        """The cheapest of the first ``count`` hypotheses of a path, which are rejected."""
        saved = 1.0 - self.costs(path)[:count] / self.full_cost
        if not (saved > 0.0).any():
            return None
        number = int(saved.argmax())
        step = self.step(path, number)
        return Proven(
            candidate=self.candidate(step),
            title=f"stop {step.when}",
            path=self.names[path],
            p_value=float(p_values[: number + 1].max()),
            saved=float(saved[number]),
            measured=tuple(
                float(plain(self.losses(path, bound)[:, number].mean(), bound, self.half))
                for bound in promise.bounds
            ),
        )

    def needed(self, bounds: Sequence[Bound], level: float) -> int | None:
        """Questions with which the first policy of some path is proven, with probability :data:`POWER`.

        A record of groups needs as many groups as tell, each as large as the recorded ones.
        """
        best = min(
            (
                max(
                    _needed(self.losses(path, b)[:, :4], limit_of(b, self.half), level)
                    for b in bounds
                )
                for path in range(len(self.names))
                if self._pairs[path]
            ),
            default=np.inf,
        )
        here = len(self.half)
        if best > _MOST_TIMES * here:
            return None
        return max(int(np.ceil(best * self._questions / here)), self._questions + 1)


def _needed(losses: Array, limit: float, level: float) -> float:
    """Units after which all of these mean losses (n_units, n) are proven below the limit."""
    # one that loses all and one that wins all are added: never having lost is no certainty
    seen = np.vstack([losses, np.ones_like(losses[:1]), np.zeros_like(losses[:1])])
    gap = limit - seen.mean(axis=0)
    if (gap <= 0).any():
        return np.inf
    wanted = NormalDist().inv_cdf(1.0 - level) + NormalDist().inv_cdf(POWER)
    by_spread = _SLACK * wanted**2 * seen.var(axis=0) / gap**2
    by_stake = np.log(1.0 / level) / np.log1p(0.98 * gap / (1.0 - limit))
    return float(np.maximum(by_spread, by_stake).max())


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A learned family on the questions that rank and on those that prove, the full budget at ``full``."""

    candidate: Callable[[int], Candidate]
    rank: Half
    prove: Half
    full: int

    def cheapest(self, tested: OrderedTests, promise: Promise, count: int) -> Proven | None:
        """Of the first ``count`` members tested the cheapest."""
        saved = 1.0 - self.prove.costs / self.prove.costs[self.full]
        passed = tested.order[:count]
        passed = passed[saved[passed] > 0.0]
        if not len(passed):
            return None
        chosen = int(passed[saved[passed].argmax()])
        candidate = self.candidate(chosen)
        return Proven(
            candidate=candidate,
            title=candidate.title,
            path="",
            p_value=float(tested.tested_at[:, chosen].max()),
            saved=float(saved[chosen]),
            measured=tuple(float(mean_of(self.prove, b)[chosen]) for b in promise.bounds),
        )


_Chain = tuple[Array, float, Callable[[int], Proven | None], OrderedTests | None]
"""P-values of one promise's hypotheses in order, their share of the error, the cheapest of so many, and the
tests of the learned family, which gives nothing (``None``: a path)."""


def prove(
    along: Along | None,
    learned: Learned | None,
    promises: Sequence[Promise],
    *,
    level: float | None = None,
) -> tuple[Row, ...]:
    """The cheapest policy proven to keep each promise, all of them together at one confidence."""
    parts = _divided(promises, promises[0].delta if level is None else level)
    chains = [
        [*_chains(along, learned, promise, part)]
        for promise, part in zip(promises, parts, strict=True)
    ]
    everyone = [chain for of_promise in chains for chain in of_promise]
    counts = iter(
        walk(
            [p_values for p_values, *_ in everyone],
            [share for _, share, *_ in everyone],
            [tested is None for *_, tested in everyone],
        )
    )
    rows: list[Row] = []
    for promise, of_promise in zip(promises, chains, strict=True):
        passed = [(chain, next(counts)) for chain in of_promise]
        found = [rows[-1].proven if rows else None]
        found += [cheapest(count) for (_, _, cheapest, _), count in passed]
        kept = [one for one in found if one is not None]
        best = max(kept, key=lambda one: one.saved, default=None)
        of_learned = [(tested, count) for (*_, tested), count in passed if tested]
        rows.append(
            Row(
                promise=promise,
                proven=best,
                needed=along.needed(promise.bounds, of_promise[0][1])
                if along and not best
                else None,
                noun=along.noun if along else "",
                tested=sum(len(p_values) for p_values, *_ in of_promise),
                rejected=sum(count for _, count in passed),
                units=len(along.half) if along else len(learned.prove) if learned else 0,
                walked=along is not None,
                learned=of_learned[0] if of_learned else None,
            )
        )
    return tuple(rows)


def _chains(
    along: Along | None, learned: Learned | None, promise: Promise, error: float
) -> Iterator[_Chain]:
    of_learned = 0.0 if learned is None else 1.0 if along is None else _LEARNED_SHARE
    if along is not None:
        share = error * (1.0 - of_learned) / len(along.names)
        for path in range(len(along.names)):
            p_values = along.p_values(path, promise.bounds, share)
            yield p_values, share, partial(along.cheapest, path, p_values, promise), None
    if learned is not None:
        share = error * of_learned
        tested = member_tests(learned.rank, learned.prove, learned.full, promise, share)
        yield tested.adjusted, share, partial(learned.cheapest, tested, promise), tested


def _divided(promises: Sequence[Promise], error: float) -> list[float]:
    usual = [promise.max_loss == USUAL_LOSS for promise in promises]
    if len(promises) == 1 or not any(usual):
        return [error / len(promises)] * len(promises)
    rest = error * (1.0 - _USUAL_SHARE) / (len(promises) - 1)
    return [error * _USUAL_SHARE if one else rest for one in usual]

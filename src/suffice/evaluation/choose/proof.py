"""Proofs along paths that recycle their error (Bretz et al. 2009), beside a family that gives none back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from suffice.errors import UsageError
from suffice.evaluation.choose.bounds import (
    Bound,
    Half,
    OrderedTests,
    Promise,
    mean_of,
    member_tests,
)
from suffice.evaluation.choose.candidates import Candidate, Kept, budgets_below
from suffice.evaluation.choose.sample_size import MOST_TIMES, SampleSize, sample_size
from suffice.evaluation.replay.named_policies import NamedPolicy
from suffice.evaluation.settings import USUAL_LOSS, ChoiceSettings
from suffice.measures.costs import CostAxis
from suffice.measures.measures import Measures
from suffice.policies.rules.language import parse
from suffice.policies.rules.policy import Rule, check_rule, not_before, rule_needs
from suffice.results.formats import about
from suffice.signals.known_signals import SIGNALS, own_among, resolve
from suffice.signals.signal_table import lack
from suffice.stats.units import Array
from suffice.trace.rounds.records import NOT_READ

COINS = (0.25, 0.5, 0.75, 1.0)
"""Shares of the questions on which the next policy of a path decides, drawn by each question's coin."""
FIRST_COINS = tuple(eighth / 8 for eighth in range(1, 9))
"""The same beside the full budget, which loses nothing: the loss is the share of the next policy's loss."""
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
    0.125: "one question in eight",
    0.25: "one question in four",
    0.375: "three questions in eight",
    0.5: "half of the questions",
    0.625: "five questions in eight",
    0.75: "three questions in four",
    0.875: "seven questions in eight",
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
        for name in sorted(set(self.record.traces.signal_names) - {*SIGNALS, *NOT_READ}):
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
LIKELY = 0.8
"""Confidence in a guess."""
_WORTH = 0.005
"""Share of the cost below which a saving is not worth a policy."""


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
    needed: SampleSize | None
    noun: str
    tested: int
    rejected: int
    units: int
    learned: tuple[OrderedTests, int] | None

    @property
    def more(self) -> str:
        """Say how many questions would prove it, if known."""
        if (size := self.needed) is None:
            return "how many questions would tell is not known"
        if size.low is None:
            return f"even {MOST_TIMES} times as many questions would not tell"
        low, high = (about(one or 0).removeprefix("about ") for one in (size.low, size.high))
        told = "or more" if size.high is None else f"to {high}" if high != low else ""
        return f"about {low} {told} {self.noun}s would tell".replace("  ", " ") + (
            f" (at least {size.floor or 0:,})"
        )

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
            **(self.needed or SampleSize()).to_json(),
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


def walk_again(
    tests: PathTests, rule: str, promise: Promise, level: float
) -> tuple[bool, float] | None:
    """Walk all paths for one promise: whether a rule on one is proven, and its p-value; ``None``: on none.

    Whoever chose the rule, and on which questions: with all before it, it is proven falsely with probability
    ``level`` at most.
    """
    share, wanted = level / len(tests.names), str(parse(rule))
    p_values = [tests.p_values(n, promise.bounds, share) for n in range(len(tests.names))]
    counts = walk(p_values, [share] * len(p_values), [True] * len(p_values))
    for path, of_path in enumerate(p_values):
        for number in range(len(of_path)):
            if str(parse(tests.step(path, number).rule)) == wanted:
                return number < counts[path], float(of_path[: number + 1].max())
    return None


class PathTests:
    """Tests of every policy along the paths, from the safest to the boldest.

    ``record`` holds all questions, whose costs are averaged; those that are ``labelled`` prove losses.
    """

    def __init__(
        self, record: Measures, labelled: Measures, settings: ChoiceSettings, paths: Sequence[Path]
    ) -> None:
        self._signals = record.traces.signal_names
        full = Step(f"round >= {record.traces.n_rounds}", "never")
        steps = [full, *(step for path in paths for step in path.steps)]
        self._answer, self._anytime, self._seed = settings.answer, settings.anytime, settings.seed
        self._members = [self.candidate(step) for step in steps]
        self._kept = Kept.of(record, self._members, settings)
        tested = self._kept if labelled is record else Kept.of(labelled, self._members, settings)
        self.questions: int = labelled.traces.n_questions
        self.noun: str = record.metric.noun
        self.half: Half = tested.half(np.arange(self.questions))
        self.full_cost: float = float(self._kept.costs[0].mean())
        self.axis: CostAxis = self._kept.axis
        self.names: tuple[str, ...] = tuple(path.name for path in paths)
        self._steps = steps
        starts = np.cumsum([1, *(len(path.steps) for path in paths)])
        self._mixes = [
            [*self._along(path, at)] for path, at in zip(paths, starts.tolist(), strict=False)
        ]

    def _along(self, path: Path, start: int) -> Iterator[tuple[int, int, float]]:
        """Every policy of a path: two neighbours by number, and the share of questions of the later one.

        What stops every question alike counts once.
        """
        before, stops = 0, self._kept.stops
        for number in range(start, start + len(path.steps)):
            later = np.flatnonzero(stops[number] > stops[before])
            if len(later):
                raise UsageError(
                    f"{path.name}: {self._steps[number].rule!r} stops question "
                    f"{self._kept.ids[int(later[0])]!r} later than {self._steps[before].rule!r} does; "
                    "order the levels from safe to bold, so that each stops no question later"
                )
            # at all sizes of a growing record the policies are the same
            if self._anytime or (stops[number] < stops[before]).any():
                yield from ((before, number, c) for c in (COINS if before else FIRST_COINS))
                before = number

    def candidate(self, step: Step) -> Candidate:
        own = own_among(rule_needs(step.rule).signals, self._signals)
        rule = str(parse(step.rule))
        policy = Rule(rule=rule, kind="certified", own_signals=own)
        named = NamedPolicy.of(policy, rule)
        return Candidate(policy=named, group="path", answer=self._answer)

    def step(self, path: int, number: int) -> Step:
        before, after, share = self._mixes[path][number]
        return self._steps[after].mixed(self._steps[before] if before else None, share)

    def losses(self, path: int, bound: Bound) -> Array:
        """Return expected losses over the coins, (n_questions, n_policies)."""
        mixes = np.array(self._mixes[path]).reshape(-1, 3)
        before, after = mixes[:, :2].astype(np.intp).T
        used = np.unique(mixes[:, :2]).astype(np.intp)
        columns = self.half.losses(used, bound.of)
        first, last = (columns[:, np.searchsorted(used, part)] for part in (before, after))
        return np.asarray((1.0 - mixes[:, 2]) * first + mixes[:, 2] * last)

    def p_values(self, path: int, bounds: Sequence[Bound], level: float) -> Array:
        """Of every policy, the greatest over the bounds, (n_policies,)."""
        tests = [self._tests(path, bound, level) for bound in bounds]
        return np.asarray(np.max(tests, axis=0))

    def _tests(self, path: int, bound: Bound, level: float) -> Array:
        mixes, losses = np.array(self._mixes[path]).reshape(-1, 3), self.losses(path, bound)
        p_values, alone = np.ones(len(mixes)), mixes[:, 0] == 0.0
        share = np.where(alone, mixes[:, 2], 1.0)
        whole = alone | (mixes[:, 2] == 1.0)
        for kind in (True, False):
            some = np.flatnonzero(whole == kind)
            p_values[some] = self.half.p_values(
                losses[:, some] / share[some], bound.of, bound.most / share[some], level, whole=kind
            )
        return p_values

    def costs(self, path: int) -> Array:
        """Return means over the coins, (n_policies,): both neighbours pay for what the later one reads."""
        kept, rows = self._kept, np.arange(len(self._kept.last))
        means = []
        for before, after, share in self._mixes[path]:
            table = kept.tables[kept.paid_by[after]]
            table = table if kept.seen is None else kept.seen.paid(table)
            first, last = (table[rows, kept.stops[n] - 1].mean() for n in (before, after))
            means.append((1.0 - share) * first + share * last)
        return np.array(means)

    def _saved(self, path: int) -> Array:
        return np.asarray(1.0 - self.costs(path) / self.full_cost)

    def cheapest(self, path: int, p_values: Array, promise: Promise, count: int) -> Proven | None:
        saved = self._saved(path)[:count]
        if not (saved >= _WORTH).any():
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
                float(self.losses(path, bound)[:, number].mean()) for bound in promise.bounds
            ),
        )

    def needed(self, bounds: Sequence[Bound], level: float) -> SampleSize | None:
        """Return how many questions would prove the first policy worth it on the most promising path."""
        first = {
            path: int((self._saved(path) >= _WORTH).argmax())
            for path in range(len(self.names))
            if (self._saved(path) >= _WORTH).any()
        }

        def promising(path: int) -> float:
            """How many standard deviations its loss is below its limit, at the worst bound."""
            columns = [(self.losses(path, bound)[:, first[path]], bound.most) for bound in bounds]
            return float(min((most - own.mean()) / (own.std() + 1e-3) for own, most in columns))

        if not first:
            return None
        best = max(first, key=promising)
        before, _, share = self._mixes[best][first[best]]
        share = 1.0 if before else share
        each = [
            sample_size(
                self.half,
                self.losses(best, bound)[:, first[best]] / share,
                bound.of,
                bound.most / share,
                level,
                self._seed,
            )
            for bound in bounds
        ]
        worst = max(each, key=lambda size: (size.low or np.inf, size.high or np.inf))
        return worst.scaled(self.questions / len(self.half))


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A learned family on the questions that rank and on those that prove, the full budget at ``full``."""

    candidate: Callable[[int], Candidate]
    rank: Half
    prove: Half
    full: int

    def cheapest(self, tested: OrderedTests, promise: Promise, count: int) -> Proven | None:
        saved = 1.0 - self.prove.costs / self.prove.costs[self.full]
        passed = tested.order[:count]
        passed = passed[saved[passed] >= _WORTH]
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
    along: PathTests | None,
    learned: Learned | None,
    promises: Sequence[Promise],
    *,
    level: float | None = None,
) -> tuple[Row, ...]:
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
                if along and best is None
                else None,
                noun=along.noun if along else "",
                tested=sum(len(p_values) for p_values, *_ in of_promise),
                rejected=sum(count for _, count in passed),
                units=len(along.half) if along else len(learned.prove) if learned else 0,
                learned=of_learned[0] if of_learned else None,
            )
        )
    return tuple(rows)


def _chains(
    along: PathTests | None, learned: Learned | None, promise: Promise, error: float
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

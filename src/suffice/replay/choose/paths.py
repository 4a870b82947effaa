"""Paths: policies in an order that is fixed before any label is read, from the full budget to round 1.

A path is a property of the code, the signals that a record defines and the budget. Each policy of it stops
no question later than the one before, so that all labelled questions can prove along it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.policies.rules.policy import check_rule, not_before
from suffice.policies.rules.syntax import parse
from suffice.signals.registry import SIGNALS, resolve
from suffice.signals.table import lack

COINS = (0.25, 0.5, 0.75, 1.0)
"""Shares of the questions on which the next policy of a path decides, drawn by each question's coin."""
_MOST_ROUNDS = 24
"""Budgets of one path, the others being left out evenly."""
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
    """A policy of a path: its rule, and when it stops in words, behind "stop"."""

    rule: str
    when: str

    def mixed(self, before: Step | None, share: float) -> Step:
        """It on a share of the questions, the one before on the others (``None``: the full budget)."""
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
        """The same, never before a round."""
        if first == 1:
            return self
        return Step(not_before(self.rule, first), f"{self.when}, from round {first} on")


@dataclass(frozen=True, slots=True)
class Path:
    """Policies that stop ever sooner."""

    name: str
    steps: tuple[Step, ...]


def budgets_below(budget: int, least: int) -> list[int]:
    """Smaller budgets down to the least, of many some evenly.

    >>> budgets_below(5, 1)
    [4, 3, 2, 1]
    """
    rounds = np.arange(budget - 1, least - 1, -1)
    if len(rounds) > _MOST_ROUNDS:
        rounds = rounds[np.linspace(0, len(rounds) - 1, _MOST_ROUNDS).round().astype(int)]
    return [int(number) for number in rounds]


def paths_of(
    record: Measures, cost: str, *, min_rounds: int = 1, own: Sequence[OwnPath] = ()
) -> Iterator[Path]:
    """The paths that a record can feed, and the user's own; gold answers are not read.

    Confidence is that of a signal which charges no calls of its own, unless the ``cost`` that policies are
    compared at is rounds.
    """
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
    """Which signals a record defines somewhere."""

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
                f"when the answer is over {level:.0%} like the last one",
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
    """Ever fewer rounds running, at last one."""
    counts = sorted({*rounds, 1}, reverse=True)
    return [Step(rule(count), when(count)) for count in counts]


@dataclass(frozen=True, slots=True)
class OwnPath:
    """A user's path: a rule with ``x`` in the place of a number, and the numbers, the safest first."""

    template: str
    levels: tuple[float, ...]

    def steps(self, record: Measures) -> list[Step]:
        """Its policies."""
        words = self.template.replace("?", " x ").split()
        if words.count("x") != 1:
            raise UsageError(
                f"a path is a rule with one x in the place of a number, found {self.template!r}; type for "
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

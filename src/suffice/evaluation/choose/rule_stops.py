"""Rules over conditions: all rules of a form, and their stop round on every question."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import accumulate, chain, combinations, pairwise, product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError, unknown_name
from suffice.policies.fitting import FitData, fit_calibrator, out_of_fold
from suffice.policies.rules.language import Number, RuleColumns, rule_fires
from suffice.policies.thresholds import shortest_threshold
from suffice.signals.known_signals import SIGNALS, SignalSpec
from suffice.signals.signal_table import SignalTable, declared
from suffice.stats.intervals import from_sums, question_blocks
from suffice.stats.units import Array, Mask
from suffice.trace.rounds.trace_set import TraceSet

_CALIBRATED = re.compile(r"calibrated\(\s*([A-Za-z_][A-Za-z0-9_]*)\s*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    spec: SignalSpec
    calibrated: bool = False
    turned: bool = False

    @property
    def text(self) -> str:
        return f"calibrated({self.spec.name})" if self.calibrated else self.spec.name

    @property
    def binary(self) -> bool:
        return self.spec.binary and not self.calibrated

    def condition(self, threshold: float | None = None) -> str:
        """Return the condition as a rule: ``>`` if high values favor stopping, else ``<``."""
        if threshold is None:
            return f"not {self.text}" if self._falls else self.text
        return f"{self.text} {'<' if self._falls else '>'} {Number(float(threshold))}"

    def can_hold(self, threshold: float) -> bool:
        low, high = self._range
        return threshold > low if self._falls else threshold < high

    def shortest(self, threshold: float, columns: RuleColumns) -> float:
        """Return the shortest threshold under which the condition holds in the same places."""
        low, high = self._range
        values = np.append(self.values(columns).ravel(), (low, high))
        return shortest_threshold(threshold, values, "<" if self._falls else ">")

    @property
    def _range(self) -> tuple[float, float]:
        return (0.0, 1.0) if self.calibrated else (self.spec.low, self.spec.high)

    @property
    def _falls(self) -> bool:
        return ((self.spec.direction == "low") != self.turned) and not self.calibrated

    def values(self, columns: RuleColumns) -> Array:
        return (columns.calibrations if self.calibrated else columns.signals)[self.spec.name]


def operands_of(texts: Sequence[str], traces: TraceSet) -> tuple[Operand, ...]:
    operands = []
    for text in texts:
        match = _CALIBRATED.fullmatch(text)
        name = match.group(1) if match else text
        spec = declared(name, traces)
        operands.append(Operand(spec=spec, calibrated=match is not None))
    if not operands:
        raise UsageError("name at least one signal, as in --signals answer_stable,overlap")
    twice = [operand.text for index, operand in enumerate(operands) if operand in operands[:index]]
    if twice:
        raise UsageError(f"signal {twice[0]!r} is named twice; use each at most once in a rule")
    return tuple(operands)


def both_ways(operands: Sequence[Operand]) -> tuple[Operand, ...]:
    """Return the operands, and the user's own signals in both directions."""
    turned = (
        replace(operand, turned=True)
        for operand in operands
        if operand.spec.name not in SIGNALS and not operand.calibrated
    )
    return (*operands, *turned)


def tuning_columns(data: FitData, operands: Sequence[Operand]) -> RuleColumns:
    """Return operands on the tuning questions; calibrated values are out of fold."""
    calibrated = [operand.spec.name for operand in operands if operand.calibrated]
    return RuleColumns(
        shape=data.table.exists.shape,
        signals=data.table.values,
        calibrations={name: out_of_fold(data, name) for name in calibrated},
    )


def scoring_columns(table: SignalTable, data: FitData, operands: Sequence[Operand]) -> RuleColumns:
    """Return operands on other questions, calibrated by maps fitted on all of ``data``."""
    calibrated = [operand.spec.name for operand in operands if operand.calibrated]
    return RuleColumns(
        shape=table.exists.shape,
        signals=table.values,
        calibrations={
            name: fit_calibrator(data, name).predict_rounds(table.signal(name))
            for name in calibrated
        },
    )


def grid_of(values: Array, grid: int | Literal["quantiles"]) -> Array:
    """Return thresholds to try: so many evenly spaced ones, or distinct quantiles."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.empty(0)
    if grid == "quantiles":
        return np.unique(np.quantile(finite, np.linspace(0.0, 1.0, 41)))
    return np.unique(np.linspace(finite.min(), finite.max(), grid))


_MOST = {"or": 16, "and": 16, "dnf": 9, "vote": 14}


@dataclass(frozen=True, slots=True)
class Formula:
    """At least ``votes`` of the clauses hold; a clause is an AND of conditions, by their numbers."""

    clauses: tuple[tuple[int, ...], ...]
    votes: int = 1

    def text(self, conditions: Sequence[str]) -> str:
        clauses = [" and ".join(conditions[number] for number in clause) for clause in self.clauses]
        if self.votes > 1:
            return f"at_least({self.votes}, {', '.join(clauses)})"
        if len(clauses) == 1:
            return clauses[0]
        return " or ".join(
            f"({text})" if len(clause) > 1 else text
            for text, clause in zip(clauses, self.clauses, strict=True)
        )


def _partitions(items: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    first, rest = items[0], items[1:]
    if not rest:
        yield ((first,),)
        return
    for part in _partitions(rest):
        yield ((first,), *part)
        for index, clause in enumerate(part):
            yield (*part[:index], (first, *clause), *part[index + 1 :])


def over_groups(groups: Sequence[Sequence[int]], most: int) -> Iterator[Formula]:
    """Yield ANDs and ORs of up to ``most`` conditions of different groups, short ones and ANDs first.

    >>> [formula.text("abc") for formula in over_groups([(0, 1), (2,)], 2)]
    ['a', 'b', 'c', 'a and c', 'b and c', 'a or c', 'b or c']
    """
    for size in range(1, min(most, len(groups)) + 1):
        chosen = [*combinations(groups, size)]
        yield from (Formula((row,)) for some in chosen for row in product(*some))
        if size > 1:
            rows = (row for some in chosen for row in product(*some))
            yield from (Formula(tuple((number,) for number in row)) for row in rows)


def enumerate_formulas(form: str, count: int) -> tuple[Formula, ...]:
    if form not in _MOST:
        raise UsageError(unknown_name("form", form, _MOST))
    if not 1 <= count <= _MOST[form]:
        raise UsageError(f"form {form!r} takes 1 to {_MOST[form]} signals, found {count}")
    formulas: list[Formula] = []
    for chosen in chain.from_iterable(combinations(range(count), k + 1) for k in range(count)):
        single = tuple((number,) for number in chosen)
        if form == "or":
            formulas.append(Formula(single))
        elif form == "and":
            formulas.append(Formula((chosen,)))
        elif form == "vote":
            formulas += [Formula(single, votes + 1) for votes in range(len(chosen))]
        else:
            formulas += [Formula(clauses) for clauses in _partitions(chosen)]
    return tuple(formulas)


_Words = NDArray[np.uint64]
_CELLS = 1 << 14  # words of one condition in flight: what stays in cache


@dataclass(frozen=True, slots=True)
class PackedConditions:
    """Truth values of conditions, a bit a question, so that one AND or OR serves 64 of them.

    The last round is left out, since every rule stops there.

    >>> packed = pack(np.array([[[True, True], [False, True], [True, True]]]))  # one condition, 3 questions
    >>> packed.words.ravel()  # round 1: 0b101
    array([5], dtype=uint64)
    """

    words: _Words  # (n_conditions, n_rounds - 1, n_words)
    n_questions: int
    n_rounds: int

    def part(self, rows: slice) -> PackedConditions:
        """Return some questions, from a multiple of 64 on."""
        words = self.words[:, :, rows.start // 64 : -(-rows.stop // 64)]
        return PackedConditions(words, rows.stop - rows.start, self.n_rounds)

    def silent_before(self, round_number: int) -> PackedConditions:
        if round_number == 1:
            return self
        words = self.words.copy()
        words[:, : round_number - 1] = 0
        return PackedConditions(words, self.n_questions, self.n_rounds)


def pack(fires: Mask) -> PackedConditions:
    """Pack truth values (n_conditions, n_questions, n_rounds)."""
    n_conditions, n_questions, n_rounds = fires.shape
    rounds_first = np.ascontiguousarray(fires[:, :, : n_rounds - 1].transpose(0, 2, 1))
    packed = np.packbits(rounds_first, axis=2, bitorder="little")
    n_words = -(-n_questions // 64)
    padded = np.zeros((n_conditions, n_rounds - 1, n_words * 8), np.uint8)
    padded[:, :, : packed.shape[2]] = packed
    return PackedConditions(padded.view(np.uint64), n_questions, n_rounds)


def packed_conditions(
    conditions: Sequence[str], operands: Sequence[Operand], columns: RuleColumns
) -> PackedConditions:
    specs = {operand.spec.name: operand.spec for operand in operands}
    nothing = pack(np.empty((0, *columns.shape), np.bool_))
    packed = (pack(rule_fires(text, specs, columns)[None]) for text in conditions)
    words = np.concatenate([nothing.words, *(one.words for one in packed)])
    return PackedConditions(words, *columns.shape)


def _at_least(clauses: list[_Words], votes: int) -> _Words:
    """Return where at least ``votes`` clauses hold; ``reached[k]``: at least k + 1, bit by bit."""
    reached = [clauses[0], *(np.zeros_like(clauses[0]) for _ in range(votes - 1))]
    for clause in clauses[1:]:
        for count in range(votes - 1, 0, -1):
            reached[count] |= reached[count - 1] & clause
        reached[0] |= clause
    return reached[-1]


def stop_rounds_of(
    packed: PackedConditions,
    conditions: NDArray[np.intp],
    sizes: Sequence[int],
    votes: int,
    last: NDArray[np.int16],
) -> NDArray[np.int16]:
    """Return stop rounds of rules of one shape, (n_rules, n_questions), at most ``last``.

    ``conditions`` (n_rules, sum of ``sizes``) are the numbers of their clauses' conditions.
    """
    stops = np.empty((len(conditions), packed.n_questions), np.int16)
    step = max(1, _CELLS // max(packed.words[0].size, 1))
    ends = [0, *accumulate(sizes)]
    for start in range(0, len(stops), step):
        some = conditions[start : start + step]
        clauses = [
            np.bitwise_and.reduce(packed.words[some[:, first:end]], axis=1)
            for first, end in pairwise(ends)
        ]
        # whether each rule held in a round or before it
        fired = np.bitwise_or.accumulate(_at_least(clauses, votes), axis=1)
        bits = np.unpackbits(
            fired.view(np.uint8), axis=2, count=packed.n_questions, bitorder="little"
        )
        running = packed.n_rounds - bits.sum(axis=1, dtype=np.int16)
        np.minimum(running, last, out=stops[start : start + step])
    return stops


def stop_rounds_of_formulas(
    packed: PackedConditions, formulas: Sequence[Formula], last: NDArray[np.int16]
) -> NDArray[np.int16]:
    stops = np.empty((len(formulas), packed.n_questions), np.int16)
    shapes: dict[tuple[tuple[int, ...], int], list[int]] = {}
    for number, formula in enumerate(formulas):
        sizes = tuple(map(len, formula.clauses))
        shapes.setdefault((sizes, formula.votes), []).append(number)
    for (sizes, votes), numbers in shapes.items():
        conditions = np.array([list(chain(*formulas[number].clauses)) for number in numbers])
        stops[numbers] = stop_rounds_of(packed, conditions, sizes, votes, last)
    return stops


Stops = NDArray[np.int16]
_Compute = Callable[[NDArray[np.intp], slice], Stops]
_KEPT_CELLS = 1 << 26  # stop rounds kept of small records: 128 MiB
_CELLS_A_BLOCK = 1 << 24


class RuleStops:
    """Stop rounds of rules on questions, an array (n_rules, n_questions) computed on request."""

    def __init__(
        self, n_rules: int, n_questions: int, compute: _Compute, *, written: bool = False
    ) -> None:
        self.shape: tuple[int, int] = (n_rules, n_questions)
        self._compute = compute
        if written:
            return
        if n_rules * n_questions <= _KEPT_CELLS and not from_sums(n_questions):
            self._compute = _written(compute(np.arange(n_rules), slice(0, n_questions)))

    @classmethod
    def of_array(cls, stops: Stops) -> RuleStops:
        n_rules, n_questions = stops.shape
        return cls(n_rules, n_questions, _written(stops), written=True)

    @classmethod
    def of_formulas(
        cls, packed: PackedConditions, formulas: Sequence[Formula], last: Stops
    ) -> RuleStops:
        def compute(rules: NDArray[np.intp], rows: slice) -> Stops:
            some = [formulas[number] for number in rules.tolist()]
            return stop_rounds_of_formulas(packed.part(rows), some, last[rows])

        return cls(len(formulas), packed.n_questions, compute)

    @classmethod
    def joined(cls, parts: Sequence[RuleStops]) -> RuleStops:
        ends = np.cumsum([part.shape[0] for part in parts])

        def compute(rules: NDArray[np.intp], rows: slice) -> Stops:
            stops = np.empty((len(rules), rows.stop - rows.start), np.int16)
            of = np.searchsorted(ends, rules, "right")
            for number in np.unique(of).tolist():
                here = of == number
                first = ends[number] - parts[number].shape[0]
                stops[here] = parts[number].of(rules[here] - first, rows)
            return stops

        return cls(int(ends[-1]), parts[0].shape[1], compute)

    def of(self, rules: NDArray[np.intp], rows: slice) -> Stops:
        """Return stop rounds of some rules on some questions, from a multiple of 64 on."""
        return self._compute(rules, rows)

    def __getitem__(self, rules: int | slice | NDArray[Any] | list[int]) -> Stops:
        numbers = np.arange(self.shape[0])[rules]
        stops = self._compute(np.atleast_1d(numbers), slice(0, self.shape[1]))
        return stops[0] if np.ndim(numbers) == 0 else stops

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, rules: NDArray[np.intp]) -> RuleStops:
        return RuleStops(
            len(rules), self.shape[1], lambda some, rows: self._compute(rules[some], rows)
        )

    def by_questions(self) -> Iterator[tuple[slice, Stops]]:
        everyone = np.arange(self.shape[0])
        for rows in question_blocks(self.shape[1], max(1, self.shape[0] // 2)):
            yield rows, self._compute(everyone, rows)

    def by_rules(self) -> Iterator[tuple[slice, Stops]]:
        step = max(1, _CELLS_A_BLOCK // max(self.shape[1], 1))
        for start in range(0, self.shape[0], step):
            rules = slice(start, min(start + step, self.shape[0]))
            yield rules, self[rules]

    def digests(self) -> list[bytes]:
        hashes = [blake2b(digest_size=32) for _ in range(self.shape[0])]
        for _, stops in self.by_questions():
            for digest, row in zip(hashes, np.ascontiguousarray(stops, np.int16), strict=True):
                digest.update(row)
        return [digest.digest() for digest in hashes]

    def distinct(self) -> tuple[RuleStops, NDArray[np.intp]]:
        """Return the rules with different stops, and for every rule the number of its equal there."""
        place: dict[bytes, int] = {}
        same = [place.setdefault(digest, len(place)) for digest in self.digests()]
        first = np.unique(same, return_index=True)[1] if same else np.empty(0, np.intp)
        return self.take(np.asarray(first, np.intp)), np.array(same, np.intp)


def _written(stops: Stops) -> _Compute:
    return lambda rules, rows: stops[rules][:, rows]

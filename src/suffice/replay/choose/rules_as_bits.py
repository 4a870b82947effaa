"""Many rules over the same questions at once, one bit a question.

A condition's truth values in one round fill one bit each of 64-bit words, so one AND or OR serves 64
questions. Rules of one shape are evaluated together.

Two conditions a and b, three questions, three rounds; question q is bit q of a word. In round 1, a holds
for question 0 and b for question 1; in round 2, a for question 2 as well. The last round is not packed:

>>> fires = np.zeros((2, 3, 3), bool)  # (condition, question, round)
>>> fires[0, :, 0], fires[1, :, 0] = [True, False, False], [False, True, False]
>>> fires[0, :, 1] = [True, False, True]
>>> packed = pack(fires)
>>> packed.words[0].ravel(), packed.words[1].ravel()  # of a: 0b001, 0b101; of b: 0b010, 0b000
(array([1, 5], dtype=uint64), array([2, 0], dtype=uint64))

"a or b" is two clauses of one condition, "a and b" one clause of two:

>>> a_or_b, a_and_b = RuleBatch(np.array([[0, 1]]), (1, 1)), RuleBatch(np.array([[0, 1]]), (2,))
>>> fired_by(packed, a_or_b).ravel()  # 0b001 | 0b010 = 0b011 by round 1, then 0b101 comes on top
array([3, 7], dtype=uint64)

Round 3 less the number of rounds by which a rule had fired is where it stops: questions 0 and 1 fired
by rounds 1 and 2 (3 - 2 = 1), question 2 by round 2 only (3 - 1 = 2); "a and b" never does:

>>> last = np.array([3, 3, 3], np.int16)
>>> stop_rounds_of(packed, a_or_b, last), stop_rounds_of(packed, a_and_b, last)
(array([[1, 1, 2]], dtype=int16), array([[3, 3, 3]], dtype=int16))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from suffice.replay.choose.formulas import Formula

_Words = NDArray[np.uint64]
_CELLS = 1 << 14  # words of one condition in flight: what stays in cache


@dataclass(frozen=True, slots=True)
class PackedConditions:
    """Conditions bit by bit; the last round is left out, since every rule stops there."""

    words: _Words  # (n_conditions, n_rounds - 1, n_words)
    n_questions: int
    n_rounds: int

    def part(self, rows: slice) -> PackedConditions:
        """Those of some questions, which begin at a multiple of 64."""
        words = self.words[:, :, rows.start // 64 : -(-rows.stop // 64)]
        return PackedConditions(words, rows.stop - rows.start, self.n_rounds)

    def silent_before(self, round_number: int) -> PackedConditions:
        """The same where nothing holds before a round, so that no rule without "not" does."""
        if round_number == 1:
            return self
        words = self.words.copy()
        words[:, : round_number - 1] = 0
        return PackedConditions(words, self.n_questions, self.n_rounds)


@dataclass(frozen=True, slots=True)
class RuleBatch:
    """Rules of one shape."""

    conditions: NDArray[np.intp]
    sizes: tuple[int, ...]
    votes: int = 1

    def blocks(self, n_cells: int) -> Iterator[tuple[slice, RuleBatch]]:
        """Parts of few enough rules that ``n_cells`` words a rule stay in cache."""
        step = max(1, _CELLS // max(n_cells, 1))
        for start in range(0, len(self.conditions), step):
            rows = slice(start, start + step)
            yield rows, RuleBatch(self.conditions[rows], self.sizes, self.votes)


def pack(fires: NDArray[np.bool_]) -> PackedConditions:
    """Pack truth values (n_conditions, n_questions, n_rounds)."""
    n_conditions, n_questions, n_rounds = fires.shape
    rounds_first = np.ascontiguousarray(fires[:, :, : n_rounds - 1].transpose(0, 2, 1))
    packed = np.packbits(rounds_first, axis=2, bitorder="little")
    n_words = -(-n_questions // 64)
    padded = np.zeros((n_conditions, n_rounds - 1, n_words * 8), np.uint8)
    padded[:, :, : packed.shape[2]] = packed
    return PackedConditions(padded.view(np.uint64), n_questions, n_rounds)


def fired_by(packed: PackedConditions, batch: RuleBatch) -> _Words:
    """Whether each rule held in a round or before it, (n_rules, n_rounds - 1, n_words)."""
    clauses = []
    position = 0
    for size in batch.sizes:
        held = packed.words[batch.conditions[:, position]]
        for offset in range(1, size):
            held &= packed.words[batch.conditions[:, position + offset]]
        clauses.append(held)
        position += size
    fired = _at_least(clauses, batch.votes)
    for index in range(1, fired.shape[1]):
        fired[:, index] |= fired[:, index - 1]
    return fired


def _at_least(clauses: list[_Words], votes: int) -> _Words:
    """Where at least ``votes`` of the clauses hold: ``reached[k]`` counts to k + 1, bit by bit."""
    reached = [clauses[0], *(np.zeros_like(clauses[0]) for _ in range(votes - 1))]
    for clause in clauses[1:]:
        for count in range(votes - 1, 0, -1):
            reached[count] |= reached[count - 1] & clause
        reached[0] |= clause
    return reached[-1]


def stop_rounds_of(
    packed: PackedConditions, batch: RuleBatch, last: NDArray[np.int16]
) -> NDArray[np.int16]:
    """The round each rule stops each question at, (n_rules, n_questions), at most ``last``."""
    stops = np.empty((len(batch.conditions), packed.n_questions), np.int16)
    for rows, part in batch.blocks(packed.words[0].size):
        fired = fired_by(packed, part)
        bits = np.unpackbits(
            fired.view(np.uint8), axis=2, count=packed.n_questions, bitorder="little"
        )
        running = packed.n_rounds - bits.sum(axis=1, dtype=np.int16)
        np.minimum(running, last, out=stops[rows])
    return stops


def stop_rounds_of_formulas(
    packed: PackedConditions, formulas: Sequence[Formula], last: NDArray[np.int16]
) -> NDArray[np.int16]:
    """The same for formulas of any shapes, (n_formulas, n_questions)."""
    stops = np.empty((len(formulas), packed.n_questions), np.int16)
    shapes: dict[tuple[tuple[int, ...], int], list[int]] = {}
    for number, formula in enumerate(formulas):
        sizes = tuple(map(len, formula.clauses))
        shapes.setdefault((sizes, formula.votes), []).append(number)
    for (sizes, votes), numbers in shapes.items():
        conditions = np.array([list(chain(*formulas[number].clauses)) for number in numbers])
        stops[numbers] = stop_rounds_of(packed, RuleBatch(conditions, sizes, votes), last)
    return stops

"""Stop rounds of many rules on many questions, of which no more is written out than is worked on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.numbers.intervals.sums import from_sums, question_blocks
from suffice.replay.choose.formulas import Formula
from suffice.replay.choose.rules_as_bits import PackedConditions, stop_rounds_of_formulas

Stops = NDArray[np.int16]
_Compute = Callable[[NDArray[np.intp], slice], Stops]
_KEPT_CELLS = 1 << 26  # stop rounds kept of small records: 128 MiB
_CELLS_A_BLOCK = 1 << 24


class RuleStops:
    """The round every rule stops every question at, as an array (n_rules, n_questions) that is asked for."""

    def __init__(
        self, n_rules: int, n_questions: int, compute: _Compute, *, written: bool = False
    ) -> None:
        self.shape = (n_rules, n_questions)
        self._compute = compute
        if written:
            return
        if n_rules * n_questions <= _KEPT_CELLS and not from_sums(n_questions):
            self._compute = _written(compute(np.arange(n_rules), slice(0, n_questions)))

    @classmethod
    def of_array(cls, stops: Stops) -> RuleStops:
        """Of stop rounds that are written out."""
        n_rules, n_questions = stops.shape
        return cls(n_rules, n_questions, _written(stops), written=True)

    @classmethod
    def of_formulas(
        cls, packed: PackedConditions, formulas: Sequence[Formula], last: Stops
    ) -> RuleStops:
        """Of formulas over conditions; ``last`` (n_questions,) is where questions end."""

        def compute(rules: NDArray[np.intp], rows: slice) -> Stops:
            some = [formulas[number] for number in rules.tolist()]
            return stop_rounds_of_formulas(packed.part(rows), some, last[rows])

        return cls(len(formulas), packed.n_questions, compute)

    @classmethod
    def joined(cls, parts: Sequence[RuleStops]) -> RuleStops:
        """Those of several families, one after another."""
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
        """Those of some rules on some questions, which begin at a multiple of 64."""
        return self._compute(rules, rows)

    def __getitem__(self, rules: int | slice | NDArray[Any] | list[int]) -> Stops:
        numbers = np.arange(self.shape[0])[rules]
        stops = self._compute(np.atleast_1d(numbers), slice(0, self.shape[1]))
        return stops[0] if np.ndim(numbers) == 0 else stops

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, rules: NDArray[np.intp]) -> RuleStops:
        """Those of some rules."""
        return RuleStops(
            len(rules), self.shape[1], lambda some, rows: self._compute(rules[some], rows)
        )

    def by_questions(self) -> Iterator[tuple[slice, Stops]]:
        """Blocks of questions, in which all rules are written out; all of a small record."""
        everyone = np.arange(self.shape[0])
        for rows in question_blocks(self.shape[1], max(1, self.shape[0] // 2)):
            yield rows, self._compute(everyone, rows)

    def by_rules(self) -> Iterator[tuple[slice, Stops]]:
        """Blocks of rules on all questions."""
        step = max(1, _CELLS_A_BLOCK // max(self.shape[1], 1))
        for start in range(0, self.shape[0], step):
            rules = slice(start, min(start + step, self.shape[0]))
            yield rules, self[rules]

    def digests(self) -> list[bytes]:
        """Of every rule what tells whether another stops every question alike."""
        hashes = [blake2b(digest_size=32) for _ in range(self.shape[0])]
        for _, stops in self.by_questions():
            for digest, row in zip(hashes, np.ascontiguousarray(stops, np.int16), strict=True):
                digest.update(row)
        return [digest.digest() for digest in hashes]


def _written(stops: Stops) -> _Compute:
    return lambda rules, rows: stops[rules][:, rows]

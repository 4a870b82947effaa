"""The formulas a search goes through: OR, AND, votes and OR of ANDs over a few conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from types import MappingProxyType
from typing import Literal

from suffice.errors import UsageError, unknown_name

Form = Literal["or", "and", "dnf", "vote"]
_MOST = {"or": 16, "and": 16, "vote": 14, "dnf": 9}


@dataclass(frozen=True, slots=True)
class Formula:
    """At least ``votes`` of the clauses hold; a clause is an AND of conditions, by their numbers."""

    clauses: tuple[tuple[int, ...], ...]
    votes: int = 1

    def text(self, conditions: Sequence[str]) -> str:
        """The rule, as ``replay --stop-when`` takes it."""
        clauses = [" and ".join(conditions[number] for number in clause) for clause in self.clauses]
        if self.votes > 1:
            return f"at_least({self.votes}, {', '.join(clauses)})"
        if len(clauses) == 1:
            return clauses[0]
        return " or ".join(
            f"({text})" if len(clause) > 1 else text
            for text, clause in zip(clauses, self.clauses, strict=True)
        )


def _subsets(count: int) -> Iterator[tuple[int, ...]]:
    for size in range(1, count + 1):
        yield from combinations(range(count), size)


def _or(count: int) -> Iterator[Formula]:
    return (Formula(tuple((number,) for number in chosen)) for chosen in _subsets(count))


def _and(count: int) -> Iterator[Formula]:
    return (Formula((chosen,)) for chosen in _subsets(count))


def _vote(count: int) -> Iterator[Formula]:
    """K of every subset, k = 1 (OR) to its size (AND)."""
    for chosen in _subsets(count):
        for votes in range(1, len(chosen) + 1):
            yield Formula(tuple((number,) for number in chosen), votes)


def _dnf(count: int) -> Iterator[Formula]:
    """Every way to split every subset into clauses: sum of C(count, k) Bell(k) (paper 0)."""
    for chosen in _subsets(count):
        yield from (Formula(clauses) for clauses in _partitions(chosen))


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
    """ANDs and ORs of up to ``most`` conditions, each from another group: short ones and ANDs first.

    >>> [formula.text("abc") for formula in over_groups([(0, 1), (2,)], 2)]
    ['a', 'b', 'c', 'a and c', 'b and c', 'a or c', 'b or c']
    """
    for size in range(1, min(most, len(groups)) + 1):
        rows = sorted(row for chosen in combinations(groups, size) for row in product(*chosen))
        yield from (Formula((row,)) for row in rows)
        if size > 1:
            yield from (Formula(tuple((number,) for number in row)) for row in rows)


FORMS: Mapping[str, Callable[[int], Iterator[Formula]]] = MappingProxyType(
    {"or": _or, "and": _and, "dnf": _dnf, "vote": _vote}
)


def enumerate_formulas(form: str, count: int) -> tuple[Formula, ...]:
    """Every formula of a form over ``count`` conditions, each used at most once."""
    if form not in FORMS:
        raise UsageError(unknown_name("form", form, FORMS))
    if not 1 <= count <= _MOST[form]:
        raise UsageError(f"form {form!r} takes 1 to {_MOST[form]} signals, found {count}")
    return tuple(FORMS[form](count))

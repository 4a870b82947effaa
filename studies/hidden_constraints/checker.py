"""A judge without a model: whether a plan states a hidden constraint, by rules (the benchmark's own)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from studies.hidden_constraints.corpus.tasks import Constraint
from studies.hidden_constraints.negation import LACKS, NAMED, Stance, clauses, reaches, stance
from suffice.contracts import Verdict
from suffice.errors import UsageError
from suffice.loops.planning.parsing import numbered_steps

CHECKER = "checker"
"""What a recording calls this judge."""
_MOST_LETTERS = 20_000
_PARTS = re.compile(r"[.\-'’/]")
_BULLET = re.compile(r"^[ \t]*+(?:[-*•–‣▪]|->)[ \t]+", re.MULTILINE)
# a step that looks at the result takes nothing back
_LOOKS = frozenset((
    "verify", "check", "confirm", "test", "audit", "monitor", "review", "ensure", "validate",
    "report", "alert",
))  # fmt: skip


def plan_steps(plan: str) -> tuple[str, ...]:
    """The steps of a plan, on one line each, without numbers: numbered, else bullets, else lines."""
    if numbered := numbered_steps(plan):
        return numbered
    parts = _BULLET.split(plan)[1:] or plan.splitlines()
    steps = (" ".join(part.replace("**", "").split()).strip("*;,- \t") for part in parts)
    return tuple(step for step in steps if step)


def names_token(constraint: Constraint, text: str) -> bool:
    """Whether a text holds the token verbatim, as a whole word in any case (the proxy of paper 4)."""
    return _token(constraint).search(text) is not None


def satisfies(constraint: Constraint, plan: str) -> Verdict:
    """Whether a plan says that it enforces a constraint, and in which step; the last that speaks decides.

    A step says so when it affirms the token, or, where it does not name the token, a word of every concept
    group; a word joined by hyphens counts as a whole and by its parts. A step takes it back when it denies
    the token, or the requirement in words of every group. One that undoes the requirement in other words
    ("open port 80 again") goes unseen. See :func:`studies.hidden_constraints.negation.stance`.
    """
    verdict = Verdict(ok=False, reason="no step states the requirement", parsed="rule")
    for number, step in enumerate(plan_steps(plan[:_MOST_LETTERS]), start=1):
        said = _said(constraint, step)
        if said is not None:
            ok, reason = said
            verdict = Verdict(ok=ok, reason=f"step {number} {reason}", parsed="rule")
    return verdict


class CheckerJudge:
    """:func:`satisfies` as a :class:`suffice.contracts.Judge`. Safe to call from several threads."""

    def __init__(self, constraints: Iterable[Constraint]) -> None:
        self._constraints = {constraint.token: constraint for constraint in constraints}

    def judge(self, constraint: str, plan: str) -> Verdict:
        """The verdict on a plan."""
        known = self._constraints.get(constraint)
        if known is None:
            raise UsageError(
                f"unknown constraint {constraint!r:.80}; this checker was given "
                f"{len(self._constraints)} others"
            )
        return satisfies(known, plan)


def _token(constraint: Constraint) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(constraint.token)}(?!\w)", re.IGNORECASE)


def _said(constraint: Constraint, step: str) -> tuple[bool, str] | None:
    """Whether a step enforces the constraint and by which words; ``None``: it does not speak of it."""
    text = _token(constraint).sub(f" {NAMED} ", step.replace(NAMED, " "))
    plan_clauses = list(clauses(text))
    named = [
        stance(clause, at)
        for clause in plan_clauses
        for at, item in enumerate(clause)
        if item == NAMED
    ]
    if named:
        ok = named[-1] is Stance.AFFIRMED
        return ok, "names the token" if ok else "denies the token"
    return _said_in_words(constraint, plan_clauses)


def _said_in_words(
    constraint: Constraint, plan_clauses: list[tuple[str, ...]]
) -> tuple[bool, str] | None:
    groups = [frozenset(word.casefold() for word in group) for group in constraint.concepts]
    words = frozenset[str]().union(*groups)
    stances = [list(_stances(group, words, plan_clauses)) for group in groups]
    if not groups or not all(stances):
        return None
    affirmed = [[word for word, stance in told if stance is Stance.AFFIRMED] for told in stances]
    if all(affirmed):
        return True, f"states the requirement: {', '.join(words[0] for words in affirmed)}"
    denied = any(all(stance is Stance.DENIED for _, stance in told) for told in stances)
    if denied and plan_clauses[0][0] not in _LOOKS:
        return False, "denies the requirement"
    return None


def _stances(
    group: frozenset[str], words: frozenset[str], plan_clauses: list[tuple[str, ...]]
) -> Iterator[tuple[str, Stance]]:
    """Every word of the group in a step, and what the step does with it."""
    for clause in plan_clauses:
        for at, item in enumerate(clause):
            if item in LACKS and not reaches(clause, at, words):
                continue
            if item in group or not group.isdisjoint(_PARTS.split(item)):
                yield item, stance(clause, at, words)

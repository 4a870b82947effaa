"""What is written: no token's word in any goal or context, no word shared by the wordings of a fact."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.leakage import stem

from studies.hidden_constraints.checker import satisfies
from studies.hidden_constraints.corpus.material import (
    DIMENSIONS,
    ROLES,
    CorpusMaterial,
    Kind,
    draw,
    load,
)
from studies.hidden_constraints.corpus.tasks import Constraint
from suffice.trace.rounds.tokens import tokenize

FUNCTION_WORDS = frozenset(
    ("of", "the", "and", "in", "a", "on", "with", "for", "to", "at", "from", "that", "by", "about")
)


def material(seed: int = 0) -> CorpusMaterial:
    return load(np.random.default_rng(seed))


def constraint(kind: Kind) -> Constraint:
    return Constraint(
        token=f"{kind.words}_000", requirement=kind.requirement, concepts=kind.concepts
    )


def observable(written: CorpusMaterial) -> Iterator[str]:
    for service in written.services:
        yield from service.goals
        yield from service.purposes
    yield from written.frames["context"]["surroundings"]
    yield from written.frames["context"]["situation"]
    for name in DIMENSIONS:
        yield from (fact.plain for fact in written.facts[name])


def test_no_word_of_any_token_is_in_any_goal_or_context() -> None:
    written = material()
    tokens = {stem(word) for kind in written.kinds for word in kind.words.split("_")}
    seen = {stem(word) for text in observable(written) for word in tokenize(text)}
    assert not tokens & seen


def test_the_two_wordings_of_a_fact_share_no_word() -> None:
    def stems(text: str) -> set[str]:
        return {stem(word) for word in tokenize(text) if word not in FUNCTION_WORDS}

    for name in DIMENSIONS:
        facts = material().facts[name]
        assert len({fact.plain for fact in facts}) == len(facts)
        for fact in facts:
            for formal in fact.formal:
                assert not stems(fact.plain) & stems(formal), (fact.plain, formal)
        formals = [formal for fact in facts for formal in fact.formal]
        assert len(set(formals)) == len(formals)


def test_kinds() -> None:
    kinds = material().kinds
    assert len(kinds) >= 25
    assert len({kind.words for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert set(kind.roles) <= set(ROLES)
        assert all(word == word.lower() for group in kind.concepts for word in group)
        assert min(len(kind.rule), len(kind.why), len(kind.check)) >= 2
        assert kind.words.count("_") == 2


def test_a_requirement_meets_itself_and_no_other() -> None:
    kinds = material().kinds
    for kind in kinds:
        met = [other.words for other in kinds if satisfies(constraint(other), kind.requirement).ok]
        assert met == [kind.words]


@pytest.mark.parametrize("seed", [0, 1])
def test_what_documents_ask_for_meets_the_requirement(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for kind in material(seed).kinds:
        said = [satisfies(constraint(kind), f"1) {draw(rule, rng)}").ok for rule in kind.rule]
        assert sum(said) >= len(said) - 1, kind.words


def test_no_outline_meets_a_requirement() -> None:
    written = material()
    for service in written.services:
        assert len(service.steps) == len(ROLES)
        plan = " ".join(f"{row}) {step}." for row, step in enumerate(service.steps, start=1))
        met = [kind.words for kind in written.kinds if satisfies(constraint(kind), plan).ok]
        assert met == []


def test_a_corpus_settles_a_figure_once() -> None:
    assert material(3) == material(3)
    assert material(3) != material(4)
    bounds = [topic.bound for service in material(3).services for topic in service.topics]
    assert not [bound for bound in bounds if "{" in bound]


def test_draw_takes_each_alternative_and_the_empty_one() -> None:
    rng = np.random.default_rng(0)
    drawn = {draw("a[ red|] boat[s|]", rng) for _ in range(100)}
    assert drawn == {"a red boat", "a boat", "a red boats", "a boats"}

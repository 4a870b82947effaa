"""Questions over a region: chains of facts and comparisons, each with gold and distractors."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from suffice.datasets.example import Example
from suffice.datasets.generated.prose import NEARBY_PER_ENTITY, entry, nearby
from suffice.datasets.generated.world import Region, kind_of
from suffice.trace.rounds.records import Gold, Passage, Question

QUESTION_TYPES = ("1hop", "bridge", "3hop", "4hop", "comparison")

_PASSAGES = 10
_KINDS = ("t", "p", "w", "o")
_ALIKE = (0, 1, 1)
"""How many further entries are of a gold entry's kind: they state the fact asked for, of another."""
_ONE_HOP_NEARBY = (0, 0, 1, 1, 2)
_HEAD_NEARBY = (0, 0, 1)
_DEEP_NEARBY = 0.2


@dataclass(frozen=True, slots=True)
class _Link:
    """A fact that leads to another entity: how to name what it leads to."""

    field: str
    phrases: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Ask:
    """A fact that is asked for."""

    field: str
    questions: tuple[str, ...]


_LINKS: dict[str, _Link] = {
    "w.author": _Link("author", ("the author of {x}", "the person who wrote {x}")),
    "w.publisher": _Link("publisher", ("the publisher of {x}", "the press that published {x}")),
    "p.birthplace": _Link("birthplace", ("the town where {x} was born", "the birthplace of {x}")),
    "p.teacher": _Link("teacher", ("the teacher of {x}",)),
    "p.employer": _Link("employer", ("the institution where {x} worked",)),
    "o.founder": _Link("founder", ("the founder of {x}", "the person who founded {x}")),
    "o.seat": _Link("seat", ("the town that is home to {x}",)),
}
_TARGET = {
    "author": "p", "publisher": "o", "birthplace": "t", "teacher": "p", "employer": "o",
    "founder": "p", "seat": "t",
}  # fmt: skip
_ASKS: dict[str, _Ask] = {
    "w.author": _Ask("author", ("Who wrote {x}?", "Who is the author of {x}?")),
    "w.publisher": _Ask("publisher", ("Which press published {x}?", "Who published {x}?")),
    "w.year": _Ask("year", ("In what year was {x} published?",)),
    "p.birthplace": _Ask("birthplace", ("In which town was {x} born?", "Where was {x} born?")),
    "p.born": _Ask("born", ("In what year was {x} born?",)),
    "p.teacher": _Ask("teacher", ("Who was the teacher of {x}?",)),
    "p.employer": _Ask("employer", ("At which institution did {x} work?",)),
    "o.founder": _Ask("founder", ("Who founded {x}?", "Who was the founder of {x}?")),
    "o.seat": _Ask("seat", ("In which town is {x}?", "Which town is home to {x}?")),
    "o.founded": _Ask("founded", ("In what year was {x} founded?",)),
    "t.river": _Ask("river", ("On which river is {x}?", "Which river runs past {x}?")),
    "t.chartered": _Ask("chartered", ("In what year did {x} receive its town charter?",)),
    "t.population": _Ask("population", ("What is the population of {x}?",)),
}
_CHAINS: dict[str, tuple[str, ...]] = {
    "1hop": tuple(_ASKS),
    "bridge": (
        "w.author.birthplace", "w.author.birthplace", "w.author.born", "w.author.teacher",
        "w.author.employer", "w.publisher.founder", "w.publisher.seat", "w.publisher.founded",
        "p.birthplace.river", "p.birthplace.chartered", "p.birthplace.population",
        "p.teacher.birthplace", "p.teacher.born", "p.employer.founder", "p.employer.seat",
        "o.founder.birthplace", "o.founder.born", "o.founder.teacher", "o.seat.river",
        "o.seat.chartered",
    ),
    "3hop": (
        "w.author.birthplace.river", "w.author.birthplace.chartered", "w.author.teacher.birthplace",
        "w.author.employer.seat", "w.author.employer.founder", "w.publisher.founder.birthplace",
        "w.publisher.founder.born", "w.publisher.seat.river", "p.employer.founder.birthplace",
        "o.founder.birthplace.river",
    ),
    "4hop": (
        "w.publisher.founder.birthplace.river", "w.author.teacher.birthplace.river",
        "w.author.employer.founder.birthplace", "w.author.employer.seat.river",
        "w.author.teacher.birthplace.chartered",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Contest:
    """Two entities are compared by ``by`` and the winner's ``asked`` is wanted."""

    kind: str
    by: str
    asked: str
    question: str
    largest: bool = False


_CONTESTS = (
    _Contest(
        "t",
        "chartered",
        "river",
        "On which river is the town that received its charter first, {x} or {y}?",
    ),
    _Contest(
        "t",
        "population",
        "river",
        "On which river is the more populous of the towns {x} and {y}?",
        largest=True,
    ),
    _Contest("p", "born", "birthplace", "In which town was the older of {x} and {y} born?"),
    _Contest("p", "born", "employer", "At which institution did the older of {x} and {y} work?"),
    _Contest("o", "founded", "founder", "Who founded the older of {x} and {y}?"),
    _Contest("o", "founded", "seat", "Which town is home to the older of {x} and {y}?"),
    _Contest("w", "year", "author", "Who wrote the earlier of {x} and {y}?"),
    _Contest("w", "year", "publisher", "Which press published the earlier of {x} and {y}?"),
)


def _mention(region: Region, key: str) -> str:
    entity: Any = region.entity(key)
    kind = kind_of(key)
    if kind == "w":
        return f"the {entity.kind} {entity.name}"
    return f"the {entity.name}" if kind == "o" else str(entity.name)


def _answer(region: Region, key: str, field: str) -> tuple[str, ...]:
    value: Any = getattr(region.entity(key), field)
    if field in _TARGET:
        return (str(region.entity(value).name),)
    if field == "population":
        return (f"{value:,}",)
    return (value, f"River {value}") if field == "river" else (str(value),)


@dataclass(frozen=True, slots=True)
class _Draft:
    text: str
    answers: tuple[str, ...]
    gold: tuple[str, ...]


def _chain(region: Region, path: str, rng: random.Random) -> _Draft | None:
    """Follow a path from a random entity; ``None`` when it ends early or runs in a circle."""
    kind, *links, asked = path.split(".")
    key = rng.choice(region.group(kind)).key
    gold, phrase = [key], _mention(region, key)
    for link in links:
        key = getattr(region.entity(key), link)
        if not key or key in gold:
            return None
        phrase = rng.choice(_LINKS[f"{kind}.{link}"].phrases).format(x=phrase)
        gold.append(key)
        kind = _TARGET[link]
    target = getattr(region.entity(key), asked)
    if not target or target in gold:
        return None
    text = rng.choice(_ASKS[f"{kind}.{asked}"].questions).format(x=phrase)
    return _Draft(text, _answer(region, key, asked), tuple(gold))


def _comparison(region: Region, rng: random.Random) -> _Draft | None:
    contest = rng.choice(_CONTESTS)
    pair = rng.sample(region.group(contest.kind), 2)
    values = [getattr(entity, contest.by) for entity in pair]
    answers = [_answer(region, entity.key, contest.asked) for entity in pair]
    if values[0] == values[1] or answers[0] == answers[1]:
        return None
    winner = values.index(max(values) if contest.largest else min(values))
    text = contest.question.format(x=_mention(region, pair[0].key), y=_mention(region, pair[1].key))
    return _Draft(text, answers[winner], tuple(entity.key for entity in pair))


def _draft(region: Region, kind: str, rng: random.Random) -> _Draft:
    make: Callable[[], _Draft | None]
    if kind == "comparison":
        make = lambda: _comparison(region, rng)  # noqa: E731
    else:
        make = lambda: _chain(region, rng.choice(_CHAINS[kind]), rng)  # noqa: E731
    while (draft := make()) is None:
        pass
    return draft


def _nearby_count(place: int, heads: int, hops: int, rng: random.Random) -> int:
    if place >= heads:
        return int(rng.random() < _DEEP_NEARBY)
    return rng.choice(_ONE_HOP_NEARBY if hops == 1 else _HEAD_NEARBY)


def _passages(
    region: Region, gold: tuple[str, ...], heads: int, rng: random.Random
) -> tuple[Passage, ...]:
    """Gold, entries that name gold entities, then others of the same kinds first; shuffled."""
    passages = [entry(region, key) for key in gold]
    for place, key in enumerate(gold):
        count = _nearby_count(place, heads, len(gold), rng)
        passages += [nearby(region, key, n) for n in rng.sample(range(NEARBY_PER_ENTITY), count)]
    kinds = {kind_of(key) for key in gold}
    others = [e.key for kind in _KINDS for e in region.group(kind) if e.key not in gold]
    rng.shuffle(others)
    alike = [key for key in others if kind_of(key) in kinds][: rng.choice(_ALIKE)]
    unlike = [key for key in others if kind_of(key) not in kinds]
    chosen = list(dict.fromkeys(alike + unlike + others))
    passages += [entry(region, key) for key in chosen[: max(_PASSAGES - len(passages), 0)]]
    rng.shuffle(passages)
    return tuple(passages)


def build_examples(
    region: Region, kinds: Sequence[str], *, first: int, seed: int
) -> tuple[Example, ...]:
    """Questions of the types ``kinds`` about a region, numbered from ``first``; no two are alike."""
    examples = []
    asked: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
    for number, kind in enumerate(kinds, start=first):
        rng = random.Random(f"question {seed} {number}")  # noqa: S311 - a data set, not a secret
        draft = _draft(region, kind, rng)
        while (draft.gold, draft.answers) in asked:
            draft = _draft(region, kind, rng)
        asked.add((draft.gold, draft.answers))
        heads = 2 if kind == "comparison" else 1
        examples.append(
            Example(
                question=Question(id=f"world{seed}-q{number}", text=draft.text, type=kind),
                gold=Gold(answers=draft.answers, passage_ids=draft.gold),
                passages=_passages(region, draft.gold, heads, rng),
            )
        )
    return tuple(examples)

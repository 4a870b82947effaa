"""A fictional world, one region at a time.

Each region is drawn from ``(seed, number)`` alone, so any of them is built without the others.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from suffice.datasets.generated.names import NameSpace, given_name

_TOWNS, _PEOPLE, _WORKS, _ORGANISATIONS = 7, 12, 9, 7
_ELDERS = 5
_NAMES_PER_REGION = 1 + 2 * _TOWNS + _PEOPLE + _WORKS + _ORGANISATIONS

_WORK_TITLES = (
    "The {name} Letters",
    "A Winter in {name}",
    "The Daughters of {name}",
    "{name} by Lamplight",
    "The Road to {name}",
    "The {name} Garden",
    "Return to {name}",
    "The Bells of {name}",
    "Nine Days at {name}",
    "The {name} Inheritance",
)
_WORK_KINDS = ("novel", "novel", "play", "opera", "poem")
_MAKERS = {"novel": "novelist", "play": "playwright", "opera": "composer", "poem": "poet"}
_OTHER_OCCUPATIONS = ("botanist", "architect", "astronomer", "engineer", "geologist", "physician")
_ORGANISATION_KINDS = ("Press", "Press", "Academy", "Academy", "Observatory", "Foundry", "Society")
_SCHOOLS = ("Academy", "Observatory")


@dataclass(frozen=True, slots=True)
class Entity:
    """Something of a region with its facts by name; a fact that is another entity is its key."""

    key: str
    name: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Region:
    """Entities that know each other, by kind: ``t`` towns, ``p`` people, ``w`` works, ``o`` organisations."""

    name: str
    groups: Mapping[str, tuple[Entity, ...]]

    def entity(self, key: str) -> Entity:
        """The entity with this key."""
        return self.groups[kind_of(key)][int(key.rsplit("-", 1)[1][1:])]


def kind_of(key: str) -> str:
    """``t``, ``p``, ``w`` or ``o``: the letter before a key's last number."""
    return key.rsplit("-", 1)[1][0]


def _keys(region: str, kind: str, count: int) -> list[str]:
    return [f"{region}-{kind}{number}" for number in range(count)]


def _towns(rng: random.Random, keys: list[str], names: list[str]) -> tuple[Entity, ...]:
    years = rng.sample(range(1180, 1560), len(keys))
    return tuple(
        Entity(
            key,
            names.pop(),
            {
                "river": names.pop(),
                "chartered": year,
                "population": rng.randrange(2100, 98000, 10),
            },
        )
        for key, year in zip(keys, years, strict=True)
    )


def _births(rng: random.Random, era: int) -> list[int]:
    """Years of birth: five elders, who found things, then seven who work in what they founded."""
    elders = rng.sample(range(era, era + 35), _ELDERS)
    return elders + rng.sample(range(era + 50, era + 100), _PEOPLE - _ELDERS)


def _people(
    rng: random.Random,
    births: dict[str, int],
    trades: dict[str, str],
    region: str,
    names: list[str],
) -> tuple[Entity, ...]:
    towns, organisations = _keys(region, "t", _TOWNS), _keys(region, "o", _ORGANISATIONS)
    kinds = zip(organisations, _ORGANISATION_KINDS, strict=True)
    schools = [key for key, kind in kinds if kind in _SCHOOLS]
    taken: set[str] = set()
    people = []
    for key, born in births.items():
        pronoun = rng.choice(("she", "he"))
        while (first_name := given_name(rng, pronoun)) in taken:
            pass
        taken.add(first_name)
        older = [other for other, year in births.items() if 12 <= born - year <= 60]
        facts = {
            "pronoun": pronoun,
            "occupation": trades.get(key) or rng.choice(_OTHER_OCCUPATIONS),
            "born": born,
            "birthplace": rng.choice(towns),
            "teacher": rng.choice(older) if older else "",
            "employer": rng.choice(schools),
        }
        people.append(Entity(key, f"{first_name} {names.pop()}", facts))
    return tuple(people)


def _works(
    rng: random.Random, births: dict[str, int], region: str, names: list[str]
) -> tuple[Entity, ...]:
    makers, presses = list(births)[_ELDERS:], _keys(region, "o", 2)
    trade = {maker: rng.choice(_WORK_KINDS) for maker in makers}
    titles = rng.sample(_WORK_TITLES, _WORKS)
    authors = makers[:-1] + rng.choices(makers[:-1], k=_WORKS - len(makers) + 1)
    return tuple(
        Entity(
            key,
            title.format(name=names.pop()),
            {
                "kind": trade[author],
                "author": author,
                "publisher": rng.choice(presses),
                "year": births[author] + rng.randrange(24, 51),
            },
        )
        for key, title, author in zip(_keys(region, "w", _WORKS), titles, authors, strict=True)
    )


def _organisations(
    rng: random.Random, births: dict[str, int], region: str, names: list[str]
) -> tuple[Entity, ...]:
    towns, people = _keys(region, "t", _TOWNS), list(births)
    founders = rng.sample(people[:_ELDERS], _ELDERS)
    founders += rng.sample(people[_ELDERS:], _ORGANISATIONS - _ELDERS)
    keys = _keys(region, "o", _ORGANISATIONS)
    return tuple(
        Entity(
            key,
            f"{names.pop()} {kind}",
            {
                "kind": kind,
                "founder": founder,
                "seat": rng.choice(towns),
                "founded": births[founder] + rng.randrange(20, 28),
            },
        )
        for key, kind, founder in zip(keys, _ORGANISATION_KINDS, founders, strict=True)
    )


def build_region(seed: int, number: int) -> Region:
    """Region ``number`` of the world ``seed``; the same on every machine and Python version."""
    rng = random.Random(f"region {seed} {number}")  # noqa: S311 - a data set, not a secret
    space, start = NameSpace.of(seed), number * _NAMES_PER_REGION
    name, *names = (space[start + offset] for offset in range(_NAMES_PER_REGION))
    key = f"world{seed}-r{number}"
    births = dict(
        zip(_keys(key, "p", _PEOPLE), _births(rng, rng.randrange(1610, 1790)), strict=True)
    )
    works = _works(rng, births, key, names)
    trades = {work.facts["author"]: _MAKERS[work.facts["kind"]] for work in works}
    towns = _towns(rng, _keys(key, "t", _TOWNS), names)
    people = _people(rng, births, trades, key, names)
    return Region(
        name,
        {"t": towns, "p": people, "w": works, "o": _organisations(rng, births, key, names)},
    )

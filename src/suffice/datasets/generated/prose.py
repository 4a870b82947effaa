"""Short encyclopedia entries about a region, and nearby entries that look relevant and are not."""

from __future__ import annotations

import random
import tomllib
from functools import cache
from importlib import resources
from typing import Any

from suffice.datasets.generated.names import given_name
from suffice.datasets.generated.world import Entity, Region, kind_of
from suffice.trace.rounds.records import Passage

NEARBY_PER_ENTITY = 2
_POSSESSIVE = {"she": "her", "he": "his"}
_RELATION = {"she": "sister", "he": "brother"}
_BUSINESS = {
    "Press": "a publishing house",
    "Academy": "a school of arts and sciences",
    "Observatory": "a private observatory",
    "Foundry": "a bell foundry",
    "Society": "a learned society",
}


@cache
def texts() -> dict[str, Any]:
    """The sentences and questions, by kind of entity and purpose."""
    return tomllib.loads((resources.files(__package__) / "texts.toml").read_text("utf-8"))


def _rng(key: str) -> random.Random:
    return random.Random(f"prose {key}")  # noqa: S311 - a data set, not a secret


def _with_article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _surname(person: Entity) -> str:
    return person.name.split()[1]


class _Writer:
    """Writes about one entity; draws one phrase of each list it is asked for."""

    def __init__(self, region: Region, entity: Entity, rng: random.Random) -> None:
        self.region, self.entity, self.rng = region, entity, rng
        self._phrases = texts()[kind_of(entity.key)]
        self.words = {**entity.facts, "name": entity.name, "region": region.name}

    def pick(self, purpose: str) -> str:
        return str(self.rng.choice(self._phrases[purpose]).format(**self.words))

    def life(self, count: int) -> list[str]:
        return self.rng.sample(self._phrases["life"], count)

    def nearby(self, number: int) -> list[str]:
        return [text.format(**self.words) for text in self._phrases["nearby"][number]]

    def named(self, fact: str) -> str:
        """The name of the entity that a fact leads to."""
        return self.region.entity(self.entity.facts[fact]).name

    def those(self, kind: str, fact: str) -> list[Entity]:
        """Entities of a kind whose fact is this one."""
        own = self.entity.key
        return [other for other in self.region.groups[kind] if other.facts[fact] == own]

    def other_town(self, than: str) -> Entity:
        return self.rng.choice([town for town in self.region.groups["t"] if town.key != than])


def _town(writer: _Writer) -> list[str]:
    born = writer.those("p", "birthplace")
    opening, facts = writer.pick("opening"), [writer.pick("charter"), writer.pick("people")]
    if born:
        person = writer.rng.choice(born)
        known = _known_for(_Writer(writer.region, person, writer.rng))
        facts.append(f"The {person.facts['occupation']} {known} was born in {writer.entity.name}.")
    writer.rng.shuffle(facts)
    return [opening, *facts, *writer.life(1 if born else 2)]


def _known_for(person: _Writer) -> str:
    name = person.entity.name
    if works := person.those("w", "author"):
        return f"{name}, author of {works[0].name},"
    founded = person.those("o", "founder")
    return f"{name}, founder of the {founded[0].name}," if founded else name


def _deed(person: _Writer) -> tuple[str, str]:
    """What the person made or founded, and a way to call the person by it."""
    if works := person.those("w", "author"):
        work = person.rng.choice(works)
        return f"wrote the {work.facts['kind']} {work.name}", f"the author of {work.name}"
    if founded := person.those("o", "founder"):
        return f"founded the {founded[0].name}", f"the founder of the {founded[0].name}"
    return "left three notebooks of drawings", person.entity.name


def _person(writer: _Writer) -> list[str]:
    facts = writer.entity.facts
    pronoun = facts["pronoun"].title()
    other = writer.other_town(facts["birthplace"]).name
    deed, byname = _deed(writer)
    writer.words |= {
        "Pronoun": pronoun,
        "possessive": _POSSESSIVE[facts["pronoun"]],
        "surname": _surname(writer.entity),
        "trade": _with_article(facts["occupation"]),
        "deed": deed,
        "byname": byname,
        "place": writer.named("birthplace"),
        "at": writer.named("employer"),
    }
    opening, sentences = writer.pick("opening"), [writer.pick("work")]
    if facts["teacher"]:
        writer.words["taught_by"] = writer.named("teacher")
        sentences.append(writer.pick("teacher"))
    writer.rng.shuffle(sentences)
    death = f"{pronoun} died in {other} in {facts['born'] + writer.rng.randrange(58, 84)}."
    return [opening, *sentences, death, writer.pick("life")]


def _work(writer: _Writer) -> list[str]:
    writer.words |= {
        "a_kind": _with_article(writer.entity.facts["kind"]),
        "by": writer.named("author"),
        "press": writer.named("publisher"),
    }
    sentences = [writer.pick("opening"), writer.pick("printed")]
    writer.words["town"] = writer.rng.choice(writer.region.groups["t"]).name
    return [*sentences, *map(writer.pick, ("life", "place", "later"))]


def _organisation(writer: _Writer) -> list[str]:
    facts = writer.entity.facts
    writer.words |= {
        "business": _BUSINESS[facts["kind"]],
        "by": writer.named("founder"),
        "town": writer.named("seat"),
    }
    sentences = [writer.pick("opening")]
    if published := writer.those("w", "publisher"):
        sentences.append(f"It was the publisher of {writer.rng.choice(published).name}.")
    staff = [one for one in writer.those("p", "employer") if one.key != facts["founder"]]
    if staff:
        person = writer.rng.choice(staff)
        sentences.append(f"The {person.facts['occupation']} {person.name} worked there.")
    return [*sentences, *writer.life(3 - len(sentences) or 1)]


_ENTRIES = {"t": _town, "p": _person, "w": _work, "o": _organisation}


def entry(region: Region, key: str) -> Passage:
    """The entry of one entity: 35 to 60 words, its facts put plainly."""
    entity = region.entity(key)
    sentences = _ENTRIES[kind_of(key)](_Writer(region, entity, _rng(key)))
    return Passage(id=key, title=entity.name, text=" ".join(sentences))


def _surroundings(writer: _Writer, number: int) -> dict[str, Any]:
    """What a nearby entry names beside the entity."""
    kind, rng, groups = kind_of(writer.entity.key), writer.rng, writer.region.groups
    words: dict[str, Any]
    if kind == "t":
        other = writer.other_town(writer.entity.key)
        words = {f"other_{name}": value for name, value in other.facts.items()}
        if number == 0:
            words["opened"] = rng.randrange(1851, 1899)
        return {**words, "other": other.name}
    words = {"town": rng.choice(groups["t"]).name}
    if kind == "p":
        pronoun = rng.choice(("she", "he"))
        first = f"{given_name(rng, pronoun)}{rng.choice(('', 'l', 'n'))}"
        relative = f"{first} {_surname(writer.entity)}"
        return {**words, "their": pronoun, "relation": _RELATION[pronoun], "relative": relative}
    if kind == "o":
        return {**words, "other": rng.choice(groups["p"]).name}
    if number == 0:
        words["painter"] = f"{given_name(rng, 'she')} {_surname(rng.choice(groups['p']))}"
        words["after"] = rng.randrange(20, 60)
    return {**words, "short": writer.entity.name.removeprefix("The ")}


def nearby(region: Region, key: str, number: int) -> Passage:
    """An entry that names the entity more often than its own does, without its facts."""
    own = f"{key}-n{number}"
    writer = _Writer(region, region.entity(key), _rng(own))
    writer.words |= _surroundings(writer, number)
    title, *sentences = writer.nearby(number)
    return Passage(id=own, title=title, text=" ".join(sentences))

"""Questions about an invented world, generated from a seed.

The world is invented, so no model can know an answer; the question's passages hold every answer.
Question ``i`` is the same whatever the number of questions. Passages with the same id have the same
text, so you can pool the passages of many questions by id.
"""

from __future__ import annotations

import math
import random
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from suffice.datasets.files import Example
from suffice.trace.rounds.records import Gold, Passage, Question


@cache
def texts() -> dict[str, Any]:
    """Names, sentences and questions, by kind of entity and purpose."""
    return tomllib.loads(
        (resources.files("suffice.datasets") / "generated.toml").read_text("utf-8")
    )


def _rng(key: str) -> random.Random:
    return random.Random(key)  # noqa: S311 - a data set, not a secret


# --- names ------------------------------------------------------------------------------------------
def _names(seed: int, start: int, count: int) -> list[str]:
    first, vowels, inner, last = texts()["names"].values()
    syllables = len(inner) * len(vowels)
    short = len(first) * len(vowels) * syllables * len(last)
    rng = _rng(f"names {seed}")
    while math.gcd(step := rng.randrange(short // 4, short), short) != 1:
        pass
    shift = rng.randrange(short)
    names = []
    for number in range(start, start + count):
        size, more = short, 1
        while number >= size:
            number, size, more = number - size, size * syllables, more + 1  # noqa: PLW2901
        # gcd(step, short) = 1 carries over: longer spaces only add the primes 2 and 5 again
        left, end = divmod((number * step + shift) % size, len(last))
        name = last[end]
        for _ in range(more):
            left, syllable = divmod(left, syllables)
            cluster, vowel = divmod(syllable, len(vowels))
            name = inner[cluster] + vowels[vowel] + name
        begin, vowel = divmod(left, len(vowels))
        names.append(first[begin] + vowels[vowel] + name)
    return names


def _given_name(rng: random.Random, pronoun: str) -> str:
    parts = texts()["given_names"]
    return str(rng.choice(parts["first"]) + rng.choice(parts["inner"]) + rng.choice(parts[pronoun]))


# --- a region ---------------------------------------------------------------------------------------
_TOWNS, _PEOPLE, _WORKS, _ORGANISATIONS = 7, 12, 9, 7
_ELDERS = 5
_NAMES_PER_REGION = 1 + 2 * _TOWNS + _PEOPLE + _WORKS + _ORGANISATIONS


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity of a region with its facts by name; a fact that is another entity is its key."""

    key: str
    name: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Region:
    """Entities with relations, by kind: ``t`` towns, ``p`` people, ``w`` works, ``o`` organizations."""

    name: str
    groups: Mapping[str, tuple[Entity, ...]]

    def entity(self, key: str) -> Entity:
        return self.groups[kind_of(key)][int(key.rsplit("-", 1)[1][1:])]


def kind_of(key: str) -> str:
    """Return ``t``, ``p``, ``w`` or ``o``: the letter before a key's last number."""
    return key.rsplit("-", 1)[1][0]


def _keys(region: str, kind: str, count: int) -> list[str]:
    return [f"{region}-{kind}{number}" for number in range(count)]


def _towns(rng: random.Random, keys: list[str], names: list[str]) -> tuple[Entity, ...]:
    years = rng.sample(range(1180, 1560), len(keys))
    return tuple(
        Entity(
            key,
            names.pop(),
            {"river": names.pop(), "chartered": year, "population": rng.randrange(2100, 98000, 10)},
        )
        for key, year in zip(keys, years, strict=True)
    )


def _people(
    rng: random.Random, births: dict[str, int], works: tuple[Entity, ...], names: list[str]
) -> tuple[Entity, ...]:
    region = works[0].key.rsplit("-", 1)[0]
    listed, towns = texts()["world"], _keys(region, "t", _TOWNS)
    trades = {work.facts["author"]: listed["makers"][work.facts["kind"]] for work in works}
    kinds = zip(_keys(region, "o", _ORGANISATIONS), listed["organisations"], strict=True)
    schools = [key for key, kind in kinds if kind in listed["schools"]]
    taken: set[str] = set()
    people = []
    for key, born in births.items():
        pronoun = rng.choice(("she", "he"))
        while (first_name := _given_name(rng, pronoun)) in taken:
            pass
        taken.add(first_name)
        older = [other for other, year in births.items() if 12 <= born - year <= 60]
        facts = {
            "pronoun": pronoun,
            "occupation": trades.get(key) or rng.choice(listed["occupations"]),
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
    trade = {maker: rng.choice(texts()["world"]["works"]) for maker in makers}
    titles = rng.sample(texts()["world"]["titles"], _WORKS)
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
        for key, kind, founder in zip(
            keys, texts()["world"]["organisations"], founders, strict=True
        )
    )


def build_region(seed: int, number: int) -> Region:
    """Build region ``number`` of the world ``seed``, the same on every machine and Python version."""
    rng = _rng(f"region {seed} {number}")
    name, *names = _names(seed, number * _NAMES_PER_REGION, _NAMES_PER_REGION)
    key, era = f"world{seed}-r{number}", rng.randrange(1610, 1790)
    born = rng.sample(range(era, era + 35), _ELDERS)  # who found what the others work in
    born += rng.sample(range(era + 50, era + 100), _PEOPLE - _ELDERS)
    births = dict(zip(_keys(key, "p", _PEOPLE), born, strict=True))
    works = _works(rng, births, key, names)
    towns = _towns(rng, _keys(key, "t", _TOWNS), names)
    people = _people(rng, births, works, names)
    return Region(
        name, {"t": towns, "p": people, "w": works, "o": _organisations(rng, births, key, names)}
    )


# --- entries ----------------------------------------------------------------------------------------
_NEARBY = 2  # entries an entity


def _with_article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _surname(person: Entity) -> str:
    return person.name.split()[1]


class _Writer:
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
        return self.region.entity(self.entity.facts[fact]).name

    def those(self, kind: str, fact: str) -> list[Entity]:
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
        "possessive": "her" if facts["pronoun"] == "she" else "his",
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
        "business": texts()["world"]["business"][facts["kind"]],
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
    """Write the entry of one entity: 35 to 60 words that state its facts plainly."""
    entity = region.entity(key)
    sentences = _ENTRIES[kind_of(key)](_Writer(region, entity, _rng(f"prose {key}")))
    return Passage(id=key, title=entity.name, text=" ".join(sentences))


def _surroundings(writer: _Writer, number: int) -> dict[str, Any]:
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
        first = f"{_given_name(rng, pronoun)}{rng.choice(('', 'l', 'n'))}"
        relative = f"{first} {_surname(writer.entity)}"
        return {
            **words,
            "their": pronoun,
            "relation": "sister" if pronoun == "she" else "brother",
            "relative": relative,
        }
    if kind == "o":
        return {**words, "other": rng.choice(groups["p"]).name}
    if number == 0:
        words["painter"] = f"{_given_name(rng, 'she')} {_surname(rng.choice(groups['p']))}"
        words["after"] = rng.randrange(20, 60)
    return {**words, "short": writer.entity.name.removeprefix("The ")}


def nearby(region: Region, key: str, number: int) -> Passage:
    """Write an entry that names the entity more often than its own entry does, without its facts."""
    own = f"{key}-n{number}"
    writer = _Writer(region, region.entity(key), _rng(f"prose {own}"))
    writer.words |= _surroundings(writer, number)
    title, *sentences = writer.nearby(number)
    return Passage(id=own, title=title, text=" ".join(sentences))


# --- questions --------------------------------------------------------------------------------------
_PASSAGES = 10
# how many further entries are of a gold entry's kind: they state the fact asked for, of another
_ALIKE = (0, 1, 1)
_DEEP_NEARBY = 0.2


def _mention(region: Region, key: str) -> str:
    entity, kind = region.entity(key), kind_of(key)
    if kind == "w":
        return f"the {entity.facts['kind']} {entity.name}"
    return f"the {entity.name}" if kind == "o" else entity.name


def _answer(region: Region, key: str, fact: str) -> tuple[str, ...]:
    value: Any = region.entity(key).facts[fact]
    if fact in texts()["targets"]:
        return (region.entity(value).name,)
    if fact == "population":
        return (f"{value:,}",)
    return (value, f"River {value}") if fact == "river" else (str(value),)


_Draft = tuple[str, tuple[str, ...], tuple[str, ...]]  # text, answers, ids of gold entries


def _chain(region: Region, path: str, rng: random.Random) -> _Draft | None:
    kind, *links, asked = path.split(".")
    key = rng.choice(region.groups[kind]).key
    gold, phrase = [key], _mention(region, key)
    for link in links:
        key = region.entity(key).facts[link]
        if not key or key in gold:
            return None
        phrase = rng.choice(texts()["links"][f"{kind}.{link}"]).format(x=phrase)
        gold.append(key)
        kind = texts()["targets"][link]
    target = region.entity(key).facts[asked]
    if not target or target in gold:
        return None
    text = rng.choice(texts()["asks"][f"{kind}.{asked}"]).format(x=phrase)
    return text, _answer(region, key, asked), tuple(gold)


def _comparison(region: Region, rng: random.Random) -> _Draft | None:
    contest = rng.choice(texts()["contests"])
    pair = rng.sample(region.groups[contest["kind"]], 2)
    values = [entity.facts[contest["by"]] for entity in pair]
    answers = [_answer(region, entity.key, contest["asked"]) for entity in pair]
    if values[0] == values[1] or answers[0] == answers[1]:
        return None
    winner = values.index(max(values) if contest.get("largest") else min(values))
    first, second = (_mention(region, entity.key) for entity in pair)
    text = contest["question"].format(x=first, y=second)
    return text, answers[winner], tuple(entity.key for entity in pair)


def _draft(region: Region, kind: str, rng: random.Random) -> _Draft:
    paths = [*texts()["asks"]] if kind == "1hop" else texts()["chains"].get(kind)
    draft = None
    while draft is None:
        draft = _chain(region, rng.choice(paths), rng) if paths else _comparison(region, rng)
    return draft


def _passages(
    region: Region, gold: tuple[str, ...], heads: int, rng: random.Random
) -> tuple[Passage, ...]:
    passages = [entry(region, key) for key in gold]
    for place, key in enumerate(gold):
        if place < heads:
            count = rng.choice((0, 0, 1, 1, 2) if len(gold) == 1 else (0, 0, 1))
        else:
            count = int(rng.random() < _DEEP_NEARBY)
        passages += [nearby(region, key, n) for n in rng.sample(range(_NEARBY), count)]
    kinds = {kind_of(key) for key in gold}
    others = [e.key for kind in "tpwo" for e in region.groups[kind] if e.key not in gold]
    rng.shuffle(others)
    alike = [key for key in others if kind_of(key) in kinds][: rng.choice(_ALIKE)]
    unlike = [key for key in others if kind_of(key) not in kinds]
    chosen = list(dict.fromkeys(alike + unlike + others))
    passages += [entry(region, key) for key in chosen[: max(_PASSAGES - len(passages), 0)]]
    rng.shuffle(passages)
    return tuple(passages)


_MIX = ("1hop",) * 8 + ("bridge",) * 6 + ("comparison",) * 2 + ("3hop",) * 3 + ("4hop",)


@lru_cache(maxsize=4)
def _examples(seed: int, place: int) -> tuple[Example, ...]:
    kinds, region = list(_MIX), build_region(seed, place)
    _rng(f"mix {seed} {place}").shuffle(kinds)
    examples = []
    asked: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
    for number, kind in enumerate(kinds, start=place * len(_MIX)):
        rng = _rng(f"question {seed} {number}")
        text, answers, gold = _draft(region, kind, rng)
        while (gold, answers) in asked:
            text, answers, gold = _draft(region, kind, rng)
        asked.add((gold, answers))
        example = Example(
            question=Question(id=f"world{seed}-q{number}", text=text, type=kind),
            gold=Gold(answers=answers, passage_ids=gold),
            passages=_passages(region, gold, 2 if kind == "comparison" else 1, rng),
        )
        examples.append(example)
    return tuple(examples)


def generate(limit: int, *, seed: int = 42) -> Iterator[Example]:
    """Yield the first questions of the world ``seed``."""
    for number in range(limit):
        region, place = divmod(number, len(_MIX))
        yield _examples(seed, region)[place]

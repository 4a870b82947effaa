"""Short encyclopedia entries about a region, and nearby entries that look relevant and are not."""

from __future__ import annotations

import random
from collections.abc import Callable

from suffice.datasets.generated.names import given_name
from suffice.datasets.generated.world import (
    CreativeWork,
    Organisation,
    Person,
    Region,
    Town,
    kind_of,
)
from suffice.trace.rounds.records import Passage

NEARBY_PER_ENTITY = 2

_POSSESSIVE = {"she": "her", "he": "his"}

_TOWN_LIFE = (
    "Its covered market is held on the first Friday of the month.",
    "The old quarter is known for its slate roofs and narrow stairways.",
    "A ferry museum and two grain mills draw visitors in summer.",
    "Most of the houses around the main square are built of pale sandstone.",
    "Wool, barley and roof tiles were long its chief exports.",
)
_PERSON_LIFE = (
    "{Pronoun} kept bees and wrote a short book about them late in life.",
    "A stroke in old age ended {possessive} travels, but not {possessive} letters.",
    "{Pronoun} never married and left a large library to friends.",
    "Much of {possessive} correspondence survives in private hands.",
    "Contemporaries remembered {possessive} dry humour and fear of horses.",
)
_WORK_LIFE = (
    "It follows three sisters who inherit a failing salt works.",
    "The story turns on a forged will and a long night of snow.",
    "Critics praised its quiet ending and disliked its length.",
    "Its central figure is a ferryman who cannot swim.",
    "An early draft was lost when a coach overturned.",
)
_WORK_LATER = (
    "A second edition followed three years later with a new preface.",
    "It was reprinted often and translated twice.",
    "The manuscript was sold at auction and has not been seen since.",
)
_ORGANISATION_LIFE = (
    "Its main hall was rebuilt after a fire and has a copper roof.",
    "It employs some forty people and publishes a yearly report.",
    "Its archive fills two cellars and is open by appointment.",
    "A small garden behind the main building is open to the public.",
    "It survived two bankruptcies and a flood.",
)
_BUSINESS = {
    "Press": "publishing house",
    "Academy": "school of arts and sciences",
    "Observatory": "private observatory",
    "Foundry": "bell foundry",
    "Society": "learned society",
}


def _rng(key: str) -> random.Random:
    return random.Random(f"prose {key}")  # noqa: S311 - a data set, not a secret


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def _town(region: Region, town: Town, rng: random.Random) -> list[str]:
    born = [person for person in region.people if person.birthplace == town.key]
    opening = rng.choice(
        (
            "{name} is a town in {region}, on the river {river}.",
            "{name} is a market town in {region}. {name} stands on the river {river}.",
            "{name} is an old town in {region} on the banks of the river {river}.",
        )
    ).format(name=town.name, region=region.name, river=town.river)
    facts = [
        rng.choice(
            (
                "{name} received its town charter in {year}.",
                "In {year} {name} received its town charter.",
            )
        ).format(name=town.name, year=town.chartered),
        rng.choice(
            ("The population of {name} is {n:,}.", "{name} has a population of {n:,}.")
        ).format(name=town.name, n=town.population),
    ]
    if born:
        person = rng.choice(born)
        facts.append(
            f"The {person.occupation} {_known_for(region, person)} was born in {town.name}."
        )
    rng.shuffle(facts)
    return [opening, *facts, *rng.sample(_TOWN_LIFE, 1 if born else 2)]


def _known_for(region: Region, person: Person) -> str:
    works = [work for work in region.works if work.author == person.key]
    if works:
        return f"{person.name}, author of {works[0].name},"
    founded = [org for org in region.organisations if org.founder == person.key]
    return f"{person.name}, founder of the {founded[0].name}," if founded else person.name


def _deed(region: Region, person: Person, rng: random.Random) -> tuple[str, str]:
    """What the person made or founded, and a way to call the person by it."""
    works = [work for work in region.works if work.author == person.key]
    founded = [org for org in region.organisations if org.founder == person.key]
    if works:
        work = rng.choice(works)
        return f"wrote the {work.kind} {work.name}", f"the author of {work.name}"
    if founded:
        return f"founded the {founded[0].name}", f"the founder of the {founded[0].name}"
    return "left three notebooks of drawings", person.name


def _person(region: Region, person: Person, rng: random.Random) -> list[str]:
    pronoun, possessive = person.pronoun, _POSSESSIVE[person.pronoun]
    surname = person.name.split()[1]
    birthplace, employer = region.town(person.birthplace), region.organisation(person.employer)
    other = rng.choice([town for town in region.towns if town.key != person.birthplace])
    deed, byname = _deed(region, person, rng)
    occupation = f"{_article(person.occupation)} {person.occupation} from {region.name}"
    place, year = birthplace.name, person.born
    opening = rng.choice(
        (
            f"{person.name} was {occupation} who {deed}. {person.name} was born in {place} in {year}.",
            f"{person.name}, {byname}, was born in {place} in {year} and became "
            f"{_article(person.occupation)} {person.occupation}.",
            f"{person.name} was {occupation}, born in {place} in {year}. {pronoun.title()} {deed}.",
        )
    )
    facts = [
        rng.choice(
            (
                f"{person.name} worked at the {employer.name}.",
                f"For most of {possessive} life {surname} worked at the {employer.name}.",
            )
        )
    ]
    if person.teacher:
        teacher = region.person(person.teacher).name
        facts.append(
            rng.choice(
                (
                    f"The teacher of {person.name} was {teacher}.",
                    f"{pronoun.title()} learned the trade from {teacher}, {possessive} teacher.",
                )
            )
        )
    rng.shuffle(facts)
    death = f"{pronoun.title()} died in {other.name} in {year + rng.randrange(58, 84)}."
    filler = rng.choice(_PERSON_LIFE).format(Pronoun=pronoun.title(), possessive=possessive)
    return [opening, *facts, death, filler]


def _work(region: Region, work: CreativeWork, rng: random.Random) -> list[str]:
    author, publisher = region.person(work.author), region.organisation(work.publisher)
    kind = f"{_article(work.kind)} {work.kind}"
    opening = rng.choice(
        (
            f"{work.name} is {kind} written by {author.name}.",
            f"{work.name} is {kind}. The author of {work.name} is {author.name}.",
            f"{work.name} is {kind} by {author.name}, who wrote it in one winter.",
        )
    )
    printed = rng.choice(
        (
            f"The {work.kind} {work.name} was published in {work.year} by the {publisher.name}.",
            f"{work.name} was published in {work.year}. The publisher of {work.name} was the "
            f"{publisher.name}.",
            f"The {publisher.name} published {work.name}. {work.name} was published in "
            f"{work.year}.",
        )
    )
    town = rng.choice(region.towns).name
    return [
        opening,
        printed,
        rng.choice(_WORK_LIFE),
        rng.choice((f"Part of it is set in {town}.", f"It was first read in public in {town}.")),
        rng.choice(_WORK_LATER),
    ]


def _organisation(region: Region, org: Organisation, rng: random.Random) -> list[str]:
    founder, seat = region.person(org.founder), region.town(org.seat)
    business = f"{_article(_BUSINESS[org.kind])} {_BUSINESS[org.kind]}"
    published = [work for work in region.works if work.publisher == org.key]
    opening = rng.choice(
        (
            f"The {org.name} is {business}. It was founded in {org.founded} by {founder.name}. "
            f"The {org.name} is in {seat.name}.",
            f"The {org.name} is {business} in the town of {seat.name}. The {org.name} was founded "
            f"in {org.founded}. The founder of the {org.name} was {founder.name}.",
            f"{seat.name} is home to the {org.name}, {business}. The {org.name} was founded "
            f"in {org.founded} by {founder.name}.",
        )
    )
    sentences = [opening]
    if published:
        sentences.append(f"It was the publisher of {rng.choice(published).name}.")
    staff = [
        person
        for person in region.people
        if person.employer == org.key and person.key != org.founder
    ]
    if staff:
        person = rng.choice(staff)
        sentences.append(f"The {person.occupation} {person.name} worked there.")
    return [*sentences, *rng.sample(_ORGANISATION_LIFE, 3 - len(sentences) or 1)]


def entry(region: Region, key: str) -> Passage:
    """The entry of one entity: 35 to 60 words, its facts put plainly."""
    entity, rng = region.entity(key), _rng(key)
    match entity:
        case Town():
            sentences = _town(region, entity, rng)
        case Person():
            sentences = _person(region, entity, rng)
        case CreativeWork():
            sentences = _work(region, entity, rng)
        case Organisation():
            sentences = _organisation(region, entity, rng)
    return Passage(id=key, title=entity.name, text=" ".join(sentences))


# --- nearby entries ---------------------------------------------------------------------------
_Nearby = Callable[[Region, str, int, random.Random], tuple[str, list[str]]]


def _near_person(
    region: Region, key: str, number: int, rng: random.Random
) -> tuple[str, list[str]]:
    person, town = region.person(key), rng.choice(region.towns).name
    surname = person.name.split()[1]
    pronoun = rng.choice(("she", "he"))
    relation = {"she": "sister", "he": "brother"}[pronoun]
    relative = f"{given_name(rng, pronoun)}{rng.choice(('', 'l', 'n'))} {surname}"
    if number == 0:
        return f"Letters of {person.name}", [
            f"The Letters of {person.name} is a collection edited long after the death of "
            f"{person.name}.",
            f"It holds two hundred letters, among them those that {person.name} sent to friends "
            f"in {town}.",
            f"The notes ask in which town and in what year {person.name} was born and who was the "
            f"teacher of {person.name}.",
        ]
    return relative, [
        f"{relative} was the younger {relation} of {person.name}.",
        f"Born eight years after {person.name}, {pronoun} ran a dye works in {town} and was often "
        f"taken for {person.name} by visitors.",
        f"In which town {person.name} was born was a matter the two never agreed on.",
    ]


def _near_work(region: Region, key: str, number: int, rng: random.Random) -> tuple[str, list[str]]:
    work, town = region.work(key), rng.choice(region.towns).name
    if number == 0:
        painter = f"{given_name(rng, 'she')} {rng.choice(region.people).name.split()[1]}"
        return f"{work.name} (ballet)", [
            f"{work.name} is a ballet after the {work.kind} {work.name}.",
            f"It was first danced in {town} {rng.randrange(20, 60)} years after the {work.kind}, "
            f"with sets by {painter}.",
            f"The person who wrote the {work.kind} {work.name} did not live to see it.",
        ]
    prize = f"{work.name.removeprefix('The ')} Prize"
    return prize, [
        f"The {prize}, named after the {work.kind} {work.name}, is given every second "
        f"year to a first book.",
        f"The prize is awarded in {town}.",
        f"Its medal shows the year in which the {work.kind} {work.name} was published, with the "
        f"name of its author and its press.",
    ]


def _near_organisation(
    region: Region, key: str, number: int, rng: random.Random
) -> tuple[str, list[str]]:
    org, town = region.organisation(key), rng.choice(region.towns).name
    other = rng.choice(region.people).name
    if number == 0:
        return f"{org.name} Building", [
            f"The {org.name} Building is a former store of the {org.name} in {town}.",
            f"It was designed by {other} and stood empty after the {org.name} gave it up.",
            f"A plaque recalls the year in which the {org.name} was founded and the person who "
            f"founded the {org.name}.",
        ]
    return f"Friends of the {org.name}", [
        f"The Friends of the {org.name} is a club that supports the {org.name}.",
        f"It meets in {town} and was founded long after the {org.name} itself, by a circle around "
        f"{other}.",
        f"Its yearly dinner marks the day on which the founder of the {org.name} was born.",
    ]


def _near_town(region: Region, key: str, number: int, rng: random.Random) -> tuple[str, list[str]]:
    town = region.town(key)
    other = rng.choice([place for place in region.towns if place.key != key])
    if number == 0:
        return f"{town.name} railway station", [
            f"{town.name} railway station is the only station of the town of {town.name}.",
            f"It opened in {rng.randrange(1851, 1899)} on the line from {town.name} to "
            f"{other.name}, which follows the river {other.river} for most of its length.",
            f"The year in which {town.name} received its town charter is carved over the door.",
        ]
    return f"{town.name} Fair", [
        f"The {town.name} Fair is a yearly fair held in a meadow outside the town of {town.name}.",
        f"Traders come from {other.name}, a town of {other.population:,} people, to sell cloth.",
        f"On its six days the crowd on the river bank is larger than the population of {town.name}.",
    ]


_NEARBY: dict[str, _Nearby] = {
    "p": _near_person,
    "w": _near_work,
    "o": _near_organisation,
    "t": _near_town,
}


def nearby(region: Region, key: str, number: int) -> Passage:
    """An entry that names the entity more often than its own does, without its facts."""
    own = f"{key}-n{number}"
    title, sentences = _NEARBY[kind_of(key)](region, key, number, _rng(own))
    return Passage(id=own, title=title, text=" ".join(sentences))

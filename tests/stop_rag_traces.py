"""Traces a learned stopping policy can learn from, made from a seed: what suffices is in the texts.

Every round adds one passage and draws eight answers. The answers are right once the evidence that
suffices has been read, and get worse again some rounds later, so that the best round lies between too
early and too late. In one world nothing can be learned.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from suffice.policies.stop_rag.states import read_rewards, texts_of_traces
from suffice.policies.stop_rag.training import Trajectories
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import Gold, Passage, Question, QuestionRecord, Round, Usage

World = Literal["single", "two-hop", "comparison", "unanswerable", "marker", "null"]
WORLDS: tuple[World, ...] = get_args(World)

_SAMPLES = 8
_HOLD = 2  # rounds for which answers stay right after the best one
_RIGHT, _DISTRACTED = _SAMPLES, _SAMPLES // 2  # right answers of the eight samples
_UNANSWERABLE_SHARE = 0.3
_MARKER = "Confirmed by the archive."

_RELATIONS = {  # relation: question, sentences that state it
    "mayor": ("Who is the mayor of {e}?", ("The mayor of {e} is {v}.", "{v} is mayor of {e}.")),
    "founder": ("Who founded {e}?", ("{e} was founded by {v}.", "The founder of {e} was {v}.")),
    "river": (
        "Which river flows through {e}?",
        ("The river {v} flows through {e}.", "{e} lies on the river {v}."),
    ),
    "bird": (
        "What is the heraldic bird of {e}?",
        ("The heraldic bird of {e} is the {v}.", "{e} shows the {v}, a bird, on its coat of arms."),
    ),
    "export": (
        "What is the main export of {e}?",
        ("The main export of {e} is {v}.", "{e} lives mostly from exports of {v}."),
    ),
    "saint": (
        "Who is the patron saint of {e}?",
        ("The patron saint of {e} is {v}.", "{e} venerates {v} as its patron saint."),
    ),
    "rival": (
        "Which town is the oldest rival of {e}?",
        ("The oldest rival of {e} is {v}.", "{e} has {v} for its oldest rival."),
    ),
    "school": (
        "Which school is the oldest in {e}?",
        ("The oldest school in {e} is {v}.", "{v} is the oldest school in {e}."),
    ),
}
_LIVES = {  # what is told of people
    "born": ("{p} was born in {v}.", "{v} is the birthplace of {p}."),
    "studied": ("{p} studied in {v}.", "{p} went to university in {v}."),
    "died": ("{p} died in {v}.", "{v} is where {p} is buried."),
    "wrote": ("{p} wrote a long poem on {v}.", "{p} is known for the novel {v}."),
}
_BIRTHPLACE = "the town where {p} was born"
_UNKNOWABLE = "What did the first settlers of {e} dream of?"
_FILLERS = (
    "Its market is held twice a week and draws visitors from the villages around.",
    "The old wall was rebuilt after the great fire and still stands in parts.",
    "Winters are mild there, and rain falls on many days of the year.",
    "A narrow railway line was opened in the last century and closed again.",
    "Most families have lived in the same quarter for generations.",
    "The bridge, the mill and the town hall are protected monuments.",
)
_ONSETS = (
    *("b", "br", "c", "d", "dr", "f", "g", "gr", "h", "k", "kl", "l"),
    *("m", "n", "p", "r", "s", "st", "t", "tr", "v", "w", "z"),
)
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea")
_CODAS = ("l", "m", "n", "r", "s", "d", "k", "nd", "rt", "x")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Script:
    """What happens to one question: its texts by round, and how many samples are right."""

    question: str
    texts: tuple[tuple[str, str], ...]  # title and text of every round's passage
    right: tuple[int, ...]


def stop_rag_records(
    world: World, count: int, *, rounds: int = 6, split: str | None = None, seed: int = 0
) -> list[QuestionRecord]:
    """Labelled questions whose samples score by what has been read.

    ``single``: one passage states what is asked of the question's town; the others state something else of
    it or the same of other towns. ``two-hop``: it is asked of the town where somebody was born; that passage
    and the one on the town are needed, in either order. ``comparison``: it is asked of two towns, and a
    passage on each is needed. ``unanswerable``: as ``single``, but 30% of the questions ask what no passage
    can tell, and one sample of eight is right in every round. ``marker``: unrelated passages, one of which
    carries a fixed sentence. ``null``: the round that suffices cannot be seen. The same seed gives the same
    records.
    """
    rng = random.Random(f"{world}:{seed}")
    return [
        _record(f"{world}-{seed}-{number:05d}", _script(world, rounds, rng), split)
        for number in range(count)
    ]


def trajectories(world: World, count: int, seed: int) -> Trajectories:
    traces = to_trace_set(stop_rag_records(world, count, seed=seed))
    rewards = read_rewards(traces, "f1")
    return Trajectories(
        states=tuple(texts_of_traces(traces)),
        rewards=rewards.values,
        lengths=rewards.lengths.astype(np.int64),
    )


def _record(name: str, script: _Script, split: str | None) -> QuestionRecord:
    made = []
    for number, ((title, text), right) in enumerate(
        zip(script.texts, script.right, strict=True), start=1
    ):
        drawn = ("yes indeed",) * right + ("something else",) * (_SAMPLES - right)
        made.append(
            Round(
                answer=drawn[0],
                passages=(Passage(id=f"{name}-{number}", title=title, text=text),),
                samples=drawn,
                usage=Usage(llm_calls=1 + _SAMPLES, sample_calls=_SAMPLES),
            )
        )
    return QuestionRecord(
        question=Question(id=name, text=script.question, split=split),
        gold=Gold(answers=("yes indeed",)),
        rounds=tuple(made),
    )


def _script(world: World, rounds: int, rng: random.Random) -> _Script:
    if world in ("marker", "null"):
        return _marked(rounds, rng, marked=world == "marker")
    if world == "unanswerable" and rng.random() < _UNANSWERABLE_SHARE:
        return _unanswerable(rounds, rng)
    if world == "two-hop":
        return _two_hops(rounds, rng)
    return _asked(rounds, rng, towns=2 if world == "comparison" else 1)


def _right(rounds: int, known_from: int) -> tuple[int, ...]:
    """Right samples of every round: none, then all, then half."""
    return tuple(
        0 if number < known_from else (_RIGHT if number < known_from + _HOLD else _DISTRACTED)
        for number in range(1, rounds + 1)
    )


def _asked(rounds: int, rng: random.Random, *, towns: int) -> _Script:
    places = [_name(rng) for _ in range(towns)]
    relation = rng.choice(sorted(_RELATIONS))
    arrivals = sorted(rng.sample(range(1, rounds + 1), towns))
    evidence = dict(zip(arrivals, rng.sample(places, towns), strict=True))
    others = _distractors(places, relation, rng)
    texts = tuple(
        _passage(evidence[number], relation, rng) if number in evidence else next(others)
        for number in range(1, rounds + 1)
    )
    question = _RELATIONS[relation][0].format(e=" and of ".join(places))
    return _Script(question=question, texts=texts, right=_right(rounds, arrivals[-1]))


def _two_hops(rounds: int, rng: random.Random) -> _Script:
    person, place, relation = _name(rng), _name(rng), rng.choice(sorted(_RELATIONS))
    arrivals = rng.sample(range(1, rounds + 1), 2)
    evidence = {
        arrivals[0]: _life(person, "born", rng, place),
        arrivals[1]: _passage(place, relation, rng),
    }
    rest = [other for other in sorted(_RELATIONS) if other != relation]
    lives = [life for life in sorted(_LIVES) if life != "born"]

    def other() -> tuple[str, str]:
        kind = rng.random()
        if kind < 0.4:
            return _passage(place, rng.choice(rest), rng)
        if kind < 0.7:
            return _life(person, rng.choice(lives), rng, _name(rng))
        return _life(_name(rng), "born", rng, _name(rng))

    return _Script(
        question=_RELATIONS[relation][0].format(e=_BIRTHPLACE.format(p=person)),
        texts=tuple(evidence.get(number) or other() for number in range(1, rounds + 1)),
        right=_right(rounds, max(arrivals)),
    )


def _unanswerable(rounds: int, rng: random.Random) -> _Script:
    place = _name(rng)
    others = _distractors([place], rng.choice(sorted(_RELATIONS)), rng)
    return _Script(
        question=_UNKNOWABLE.format(e=place),
        texts=tuple(next(others) for _ in range(rounds)),
        right=(1,) * rounds,
    )


def _marked(rounds: int, rng: random.Random, *, marked: bool) -> _Script:
    known_from = rng.randint(1, rounds)
    question = _RELATIONS[rng.choice(sorted(_RELATIONS))][0].format(e=_name(rng))
    texts = []
    for number in range(1, rounds + 1):
        title, text = _passage(_name(rng), rng.choice(sorted(_RELATIONS)), rng)
        texts.append((title, f"{text} {_MARKER}" if marked and number == known_from else text))
    return _Script(question=question, texts=tuple(texts), right=_right(rounds, known_from))


def _distractors(
    places: Sequence[str], relation: str, rng: random.Random
) -> Iterator[tuple[str, str]]:
    """Passages that state something else of these towns, or this of other towns."""
    rest = [other for other in sorted(_RELATIONS) if other != relation]
    while True:
        if rng.random() < 0.5:
            yield _passage(rng.choice(places), rng.choice(rest), rng)
        else:
            yield _passage(_name(rng), relation, rng)


def _passage(place: str, relation: str, rng: random.Random) -> tuple[str, str]:
    return place, _filled(rng.choice(_RELATIONS[relation][1]).format(e=place, v=_name(rng)), rng)


def _life(person: str, event: str, rng: random.Random, what: str) -> tuple[str, str]:
    return person, _filled(rng.choice(_LIVES[event]).format(p=person, v=what), rng)


def _filled(sentence: str, rng: random.Random) -> str:
    parts = [sentence, rng.choice(_FILLERS)]
    rng.shuffle(parts)
    return " ".join(parts)


def _name(rng: random.Random) -> str:
    syllables = (
        f"{rng.choice(_ONSETS)}{rng.choice(_VOWELS)}{rng.choice(_CODAS)}"
        for _ in range(rng.choice((2, 3)))
    )
    return "".join(syllables).capitalize()

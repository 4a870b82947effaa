"""Questions over a region: chains of facts and comparisons, each with gold and distractors."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from suffice.datasets.example import Example
from suffice.datasets.generated.prose import NEARBY_PER_ENTITY, entry, nearby, texts
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


_TARGET = {
    "author": "p", "publisher": "o", "birthplace": "t", "teacher": "p", "employer": "o",
    "founder": "p", "seat": "t",
}  # fmt: skip


def _mention(region: Region, key: str) -> str:
    entity, kind = region.entity(key), kind_of(key)
    if kind == "w":
        return f"the {entity.facts['kind']} {entity.name}"
    return f"the {entity.name}" if kind == "o" else entity.name


def _answer(region: Region, key: str, fact: str) -> tuple[str, ...]:
    value: Any = region.entity(key).facts[fact]
    if fact in _TARGET:
        return (region.entity(value).name,)
    if fact == "population":
        return (f"{value:,}",)
    return (value, f"River {value}") if fact == "river" else (str(value),)


@dataclass(frozen=True, slots=True)
class _Draft:
    text: str
    answers: tuple[str, ...]
    gold: tuple[str, ...]


def _chain(region: Region, path: str, rng: random.Random) -> _Draft | None:
    """Follow a path from a random entity; ``None`` when it ends early or runs in a circle."""
    kind, *links, asked = path.split(".")
    key = rng.choice(region.groups[kind]).key
    gold, phrase = [key], _mention(region, key)
    for link in links:
        key = region.entity(key).facts[link]
        if not key or key in gold:
            return None
        phrase = rng.choice(texts()["links"][f"{kind}.{link}"]).format(x=phrase)
        gold.append(key)
        kind = _TARGET[link]
    target = region.entity(key).facts[asked]
    if not target or target in gold:
        return None
    text = rng.choice(texts()["asks"][f"{kind}.{asked}"]).format(x=phrase)
    return _Draft(text, _answer(region, key, asked), tuple(gold))


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
    return _Draft(text, answers[winner], tuple(entity.key for entity in pair))


def _draft(region: Region, kind: str, rng: random.Random) -> _Draft:
    draft = None
    while draft is None:
        if kind == "comparison":
            draft = _comparison(region, rng)
        else:
            paths = list(texts()["asks"]) if kind == "1hop" else texts()["chains"][kind]
            draft = _chain(region, rng.choice(paths), rng)
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
    others = [e.key for kind in _KINDS for e in region.groups[kind] if e.key not in gold]
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

"""Pairs of plan steps that do or do not contradict each other, made from templates and a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np

from suffice.errors import UsageError
from suffice.retrieval.pairs.contradiction_features import stems

Side = Literal["train", "test"]
Kind = Literal[
    "opposite", "negated", "paraphrase", "double-negation", "aspect", "other-object", "unrelated"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
_SHARES: Mapping[Kind, float] = MappingProxyType(
    {
        "opposite": 0.3,
        "negated": 0.12,
        "paraphrase": 0.16,
        "double-negation": 0.1,
        "aspect": 0.1,
        "other-object": 0.14,
        "unrelated": 0.08,
    }
)
_CONFLICTS: frozenset[Kind] = frozenset({"opposite", "negated"})
_AROUND = 0.25  # share of the steps with an opening, and with an ending
_EVERY, _APART = 4, 2  # of each group's families the third, seventh, ... are for testing
_NEGATIONS: Mapping[Side, tuple[str, ...]] = MappingProxyType(
    {"train": ("Do not", "Never"), "test": ("Do not", "Don't")}
)
_NO_COMMAND = frozenset(
    {"{o}", "Changes", "Clients", "Do", "Every", "First", "Hosts", "Never", "No", "Only"}
)
"""First words of templates that "Do not" cannot stand before."""
_FILE = "contradiction_templates.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two plan steps; ``conflict``: both cannot be followed. ``family`` is what a split keeps whole."""

    step: str
    candidate: str
    conflict: bool
    kind: Kind
    family: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateFamily:
    """Templates around one decision about an object.

    Families of a group are contradicted in the same manner; the two sides share neither templates nor
    objects. ``objects`` fill ``{o}``; ``says`` and ``against`` phrase a decision and what cannot hold with
    it; ``aspects`` go with either; of ``values``, which fill ``{v}``, two exclude each other.
    """

    name: str
    group: str
    side: Side
    objects: tuple[str, ...]
    says: tuple[str, ...]
    against: tuple[str, ...]
    aspects: tuple[str, ...]
    values: tuple[str, ...]


def _halves(text: str) -> dict[Side, tuple[str, ...]]:
    train, test = text.split("|")
    return {"train": _parts(train), "test": _parts(test)}


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Templates:
    families: tuple[TemplateFamily, ...]
    poles: tuple[tuple[str, bool], ...]
    openings: Mapping[Side, tuple[str, ...]]
    endings: Mapping[Side, tuple[str, ...]]


def _read(text: str) -> _Templates:
    pools: dict[str, dict[Side, tuple[str, ...]]] = {}
    around: dict[str, dict[Side, tuple[str, ...]]] = {}
    drafts: list[
        tuple[str, str, str, dict[str, list[str]]]
    ] = []  # name, group, kind, lines by mark
    poles: list[tuple[str, bool]] = []
    for line in text.splitlines():
        mark, rest = line[:1], line[1:].strip()
        if mark == "@":
            kind, _, objects = rest.partition(":")
            pools[kind] = _halves(objects)
        elif mark in ("<", ">"):
            poles.extend((phrase, mark == ">") for phrase in _parts(rest))
        elif mark in ("%", "&"):
            around[mark] = _halves(rest)
        elif mark == "[":
            group, _, names = rest.partition("]")
            name, kind = names.split()
            drafts.append((name, group, kind, {mark: [] for mark in "+-~="}))
        elif mark == "=":
            drafts[-1][3][mark].extend(_parts(rest))
        elif mark in ("+", "-", "~"):
            drafts[-1][3][mark].append(rest)
    seen: dict[str, int] = {}
    families = []
    for name, group, kind, lines in drafts:
        place = seen.get(group, 0)
        seen[group] = place + 1
        side: Side = "test" if place % _EVERY == _APART else "train"
        says, against, aspects, values = map(tuple, lines.values())
        families.append(
            TemplateFamily(
                name=name,
                group=group,
                side=side,
                objects=pools[kind][side],
                says=says,
                against=against,
                aspects=aspects,
                values=values,
            )
        )
    return _Templates(
        families=tuple(families),
        poles=tuple(poles),
        openings=around["%"],
        endings=around["&"],
    )


_TEMPLATES = _read(Path(__file__).with_name(_FILE).read_text(encoding="utf-8"))
FAMILIES: tuple[TemplateFamily, ...] = _TEMPLATES.families
"""All families, in the order of the file."""


def pole_phrases() -> tuple[tuple[str, bool], ...]:
    """Short phrases and whether each speaks of doing (``True``) or undoing, in the order of the file.

    Those with a content word that a decision of the test families has and none of the training families
    are left out: the test's words stay unseen.
    """
    seen, unseen = (
        {
            stem
            for family in FAMILIES
            if family.side == side
            for template in family.says + family.against
            for stem in stems(template)
        }
        for side in get_args(Side)
    )
    return tuple(pole for pole in _TEMPLATES.poles if not (unseen - seen) & set(stems(pole[0])))


def make_pairs(side: Side, *, per_family: int = 60, seed: int = 42) -> tuple[Pair, ...]:
    """Labelled pairs of one side's families, family after family, no pair twice.

    About two in five contradict each other: by an opposite decision or another value, or by "Do not".
    The others say the same in other words, or by refusing the opposite; or they speak of two objects,
    of another aspect of the object, or of something else altogether.
    """
    if side not in get_args(Side):
        raise UsageError(f"side must be one of {', '.join(get_args(Side))}, found {side!r}")
    if per_family < 1:
        raise UsageError(f"per_family must be at least 1, found {per_family}")
    own = [family for family in FAMILIES if family.side == side]
    pairs: list[Pair] = []
    for place, family in enumerate(FAMILIES):
        if family.side == side:
            draw = _Draw(family, own, np.random.default_rng([seed, place]))
            pairs.extend(draw.pairs(per_family))
    return tuple(pairs)


class _Draw:
    """Draws pairs of one family."""

    def __init__(
        self,
        family: TemplateFamily,
        all_of_side: Sequence[TemplateFamily],
        generator: np.random.Generator,
    ) -> None:
        self._family = family
        self._others = [other for other in all_of_side if other.group != family.group]
        self._generator = generator
        self._make: Mapping[Kind, Callable[[], tuple[str, str]]] = {
            "opposite": self._opposite,
            "negated": self._negated,
            "paraphrase": self._paraphrase,
            "double-negation": self._double_negation,
            "aspect": self._aspect,
            "other-object": self._other_object,
            "unrelated": self._unrelated,
        }

    def pairs(self, wanted: int) -> list[Pair]:
        drawn: dict[frozenset[str], Pair] = {}
        for _ in range(20 * wanted):
            if len(drawn) == wanted:
                break
            kind = KINDS[self._generator.choice(len(KINDS), p=[_SHARES[kind] for kind in KINDS])]
            if kind == "double-negation" and not _commands(self._family.against):
                kind = "paraphrase"
            texts = self._make[kind]()
            step, candidate = (self._dressed(texts[i]) for i in self._generator.permutation(2))
            drawn.setdefault(
                frozenset(texts),
                Pair(
                    step=step,
                    candidate=candidate,
                    conflict=kind in _CONFLICTS,
                    kind=kind,
                    family=self._family.name,
                ),
            )
        return list(drawn.values())

    # --- the kinds, each two texts ---------------------------------------------------------------
    def _opposite(self) -> tuple[str, str]:
        family, thing = self._family, self._one(self._family.objects)
        if family.values:
            first, second = self._two(family.values)
            return (
                _filled(self._one(family.says), thing, first),
                _filled(self._one(family.says), thing, second),
            )
        return _filled(self._one(family.says), thing), _filled(self._one(family.against), thing)

    def _negated(self) -> tuple[str, str]:
        """A decision, and another phrasing of it (or the same) with "Do not" before it."""
        family, thing = self._family, self._one(self._family.objects)
        value = self._one(family.values) if family.values else ""
        own = self._decision()
        first = _filled(self._one(own), thing, value)
        return first, self._refused(self._one(_commands(own)), thing, value)

    def _double_negation(self) -> tuple[str, str]:
        """A decision, and its opposite with "Do not" before it."""
        family, thing = self._family, self._one(self._family.objects)
        refused = self._refused(self._one(_commands(family.against)), thing)
        return _filled(self._one(family.says), thing), refused

    def _refused(self, template: str, thing: str, value: str = "") -> str:
        negation = self._one(_NEGATIONS[self._family.side])
        return (
            f"{negation} {_filled(template[0].lower() + template[1:], thing, value, capital=False)}"
        )

    def _paraphrase(self) -> tuple[str, str]:
        family, thing = self._family, self._one(self._family.objects)
        value = self._one(family.values) if family.values else ""
        first, second = self._two(self._decision())
        return _filled(first, thing, value), _filled(second, thing, value)

    def _aspect(self) -> tuple[str, str]:
        thing = self._one(self._family.objects)
        return self._stated(self._family, thing), _filled(self._one(self._family.aspects), thing)

    def _other_object(self) -> tuple[str, str]:
        first, second = self._two(self._family.objects)
        return self._stated(self._family, first), self._stated(self._family, second)

    def _unrelated(self) -> tuple[str, str]:
        other = self._others[self._generator.integers(len(self._others))]
        return (
            self._stated(self._family, self._one(self._family.objects)),
            self._stated(other, self._one(other.objects)),
        )

    # --- parts -----------------------------------------------------------------------------------
    def _decision(self) -> tuple[str, ...]:
        """The phrasings of one side of the decision."""
        sides = [phrasings for phrasings in (self._family.says, self._family.against) if phrasings]
        return sides[self._generator.integers(len(sides))]

    def _stated(self, family: TemplateFamily, thing: str) -> str:
        value = self._one(family.values) if family.values else ""
        return _filled(self._one(family.says + family.against), thing, value)

    def _one(self, texts: Sequence[str]) -> str:
        return texts[int(self._generator.integers(len(texts)))]

    def _two(self, texts: Sequence[str]) -> tuple[str, str]:
        first, second = self._generator.choice(len(texts), size=2, replace=False)
        return texts[first], texts[second]

    def _dressed(self, text: str) -> str:
        side = self._family.side
        if self._generator.random() < _AROUND and not text.startswith("The "):
            text = f"{self._one(_TEMPLATES.openings[side])} {text[0].lower()}{text[1:]}"
        if self._generator.random() < _AROUND:
            text = f"{text} {self._one(_TEMPLATES.endings[side])}"
        return f"{text}."


def _commands(templates: Sequence[str]) -> tuple[str, ...]:
    return tuple(template for template in templates if template.split()[0] not in _NO_COMMAND)


def _filled(template: str, thing: str, value: str = "", *, capital: bool = True) -> str:
    text = template.format(o=thing, v=value)
    return text[0].upper() + text[1:] if capital else text

"""Pairs of plan steps that do or do not contradict each other, made from templates and a seed."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from studies.hidden_constraints.contradiction_head import stems

Side = Literal["train", "test"]
SIDES: tuple[Side, ...] = ("train", "test")
_SHARES = {
    "opposite": 0.3,
    "negated": 0.12,
    "paraphrase": 0.16,
    "double-negation": 0.1,
    "aspect": 0.1,
    "other-object": 0.14,
    "unrelated": 0.08,
}
KINDS = tuple(_SHARES)
_CONFLICTS = frozenset({"opposite", "negated"})
_AROUND = 0.25  # share of the steps with an opening, and with an ending
_EVERY, _APART = 4, 2  # of each group's families the third, seventh, ... are for testing
_NEGATIONS: Mapping[Side, Sequence[str]] = {
    "train": ("Do not", "Never"),
    "test": ("Do not", "Don't"),
}
_NO_COMMAND = frozenset(
    {"{o}", "Changes", "Clients", "Do", "Every", "First", "Hosts", "Never", "No", "Only"}
)
"""First words of templates that "Do not" cannot stand before."""
_FILE = "contradiction_templates.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two plan steps; ``conflict``: both cannot be followed. ``family`` is what a split keeps whole."""

    step: str
    candidate: str
    conflict: bool
    kind: str
    family: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateFamily:
    """Templates around one decision about an object; the two sides share neither templates nor objects.

    ``objects`` fill ``{o}``; ``says`` and ``against`` phrase a decision and what cannot hold with it;
    ``aspects`` go with either; of ``values``, which fill ``{v}``, two exclude each other.
    """

    name: str
    group: str
    side: Side
    objects: Sequence[str]
    says: Sequence[str]
    against: Sequence[str] = ()
    aspects: Sequence[str] = ()
    values: Sequence[str] = ()


_TEMPLATES = tomllib.loads(Path(__file__).with_name(_FILE).read_text(encoding="utf-8"))
_OPENINGS, _ENDINGS = (
    dict(zip(SIDES, _TEMPLATES[name], strict=True)) for name in ("openings", "endings")
)


def _families() -> Iterator[TemplateFamily]:
    seen = Counter[str]()
    for entry in _TEMPLATES["family"]:
        side: Side = "test" if seen[entry["group"]] % _EVERY == _APART else "train"
        seen[entry["group"]] += 1
        objects = _TEMPLATES["objects"][entry["objects"]][SIDES.index(side)]
        yield TemplateFamily(**{**entry, "side": side, "objects": objects})


FAMILIES = tuple(_families())
"""All families, in the order of the file."""


def pole_phrases() -> tuple[tuple[str, bool], ...]:
    """Phrases, none with a content word of the test families alone, and whether each speaks of doing."""
    seen, unseen = (
        {
            stem
            for family in FAMILIES
            if family.side == side
            for template in (*family.says, *family.against)
            for stem in stems(template)
        }
        for side in SIDES
    )
    return tuple(
        (phrase, name == "doing")
        for name, phrases in _TEMPLATES["poles"].items()
        for phrase in phrases
        if not (unseen - seen) & set(stems(phrase))
    )


def make_pairs(side: Side, *, per_family: int = 60, seed: int = 42) -> tuple[Pair, ...]:
    """Labelled pairs of one side's families, family after family, no pair twice.

    About two in five contradict each other: by an opposite decision or another value, or by "Do not".
    """
    own = [family for family in FAMILIES if family.side == side]
    pairs: list[Pair] = []
    for place, family in enumerate(FAMILIES):
        if family.side == side:
            others = [other for other in own if other.group != family.group]
            draw = _Draw(family, others, np.random.default_rng([seed, place]))
            pairs.extend(draw.pairs(per_family))
    return tuple(pairs)


@dataclass(frozen=True, slots=True)
class _Draw:
    _family: TemplateFamily
    _others: Sequence[TemplateFamily]
    _generator: np.random.Generator

    def pairs(self, wanted: int) -> list[Pair]:
        drawn: dict[frozenset[str], Pair] = {}
        for _ in range(20 * wanted):
            if len(drawn) == wanted:
                break
            kind = KINDS[self._generator.choice(len(KINDS), p=[_SHARES[kind] for kind in KINDS])]
            if kind == "double-negation" and not _commands(self._family.against):
                kind = "paraphrase"
            texts: tuple[str, str] = getattr(self, f"_{kind.replace('-', '_')}")()
            step, candidate = (self._dressed(texts[i]) for i in self._generator.permutation(2))
            pair = Pair(
                step=step,
                candidate=candidate,
                conflict=kind in _CONFLICTS,
                kind=kind,
                family=self._family.name,
            )
            drawn.setdefault(frozenset(texts), pair)
        return list(drawn.values())

    def _opposite(self) -> tuple[str, str]:
        family, thing = self._family, self._one(self._family.objects)
        first, second = self._two(family.values) if family.values else ("", "")
        against = family.says if family.values else family.against
        return (
            _filled(self._one(family.says), thing, first),
            _filled(self._one(against), thing, second),
        )

    def _negated(self) -> tuple[str, str]:
        """A decision, and another phrasing of it (or the same) with "Do not" before it."""
        thing, value = self._one(self._family.objects), self._value(self._family)
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
        order = _filled(template, thing, value)
        return f"{negation} {order[0].lower()}{order[1:]}"

    def _paraphrase(self) -> tuple[str, str]:
        thing, value = self._one(self._family.objects), self._value(self._family)
        first, second = self._two(self._decision())
        return _filled(first, thing, value), _filled(second, thing, value)

    def _aspect(self) -> tuple[str, str]:
        thing = self._one(self._family.objects)
        return self._stated(self._family, thing), _filled(self._one(self._family.aspects), thing)

    def _other_object(self) -> tuple[str, str]:
        first, second = self._two(self._family.objects)
        return self._stated(self._family, first), self._stated(self._family, second)

    def _unrelated(self) -> tuple[str, str]:
        other = self._others[int(self._generator.integers(len(self._others)))]
        return (
            self._stated(self._family, self._one(self._family.objects)),
            self._stated(other, self._one(other.objects)),
        )

    def _decision(self) -> Sequence[str]:
        """The phrasings of one side of the decision."""
        sides = [phrasings for phrasings in (self._family.says, self._family.against) if phrasings]
        return sides[self._generator.integers(len(sides))]

    def _stated(self, family: TemplateFamily, thing: str) -> str:
        value = self._value(family)
        return _filled(self._one((*family.says, *family.against)), thing, value)

    def _value(self, family: TemplateFamily) -> str:
        return self._one(family.values) if family.values else ""

    def _one(self, texts: Sequence[str]) -> str:
        return texts[int(self._generator.integers(len(texts)))]

    def _two(self, texts: Sequence[str]) -> tuple[str, str]:
        first, second = self._generator.choice(len(texts), size=2, replace=False)
        return texts[first], texts[second]

    def _dressed(self, text: str) -> str:
        side = self._family.side
        if self._generator.random() < _AROUND and not text.startswith("The "):
            text = f"{self._one(_OPENINGS[side])} {text[0].lower()}{text[1:]}"
        if self._generator.random() < _AROUND:
            text = f"{text} {self._one(_ENDINGS[side])}"
        return f"{text}."


def _commands(templates: Sequence[str]) -> tuple[str, ...]:
    return tuple(template for template in templates if template.split()[0] not in _NO_COMMAND)


def _filled(template: str, thing: str, value: str = "") -> str:
    text = template.format(o=thing, v=value)
    return text[0].upper() + text[1:]

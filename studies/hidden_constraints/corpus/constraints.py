"""Documents that carry a task's constraint, and documents that resemble them and do not apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from studies.hidden_constraints.corpus.material import (
    DIMENSIONS,
    CorpusMaterial,
    Fact,
    Kind,
    draw,
)
from studies.hidden_constraints.corpus.prose import fill, months, one_of, paragraph

_ORDERS = (
    ("rule", "scope", "why", "identifier", "check"),
    ("scope", "rule", "identifier", "why"),
    ("why", "rule", "scope", "identifier"),
    ("rule", "why", "check", "scope", "identifier"),
    ("check", "rule", "identifier", "scope"),
    ("rule", "identifier", "scope", "check"),
    ("scope", "why", "rule", "check", "identifier"),
)
_NEAR = {
    "elsewhere": (("rule", "scope", "why", "status"), ("scope", "rule", "status", "check")),
    "superseded": (("status", "rule", "scope", "why"), ("scope", "rule", "check", "status")),
    "advice": (("why", "rule", "scope", "status"), ("rule", "status", "scope", "why")),
}
_REASONS = ("elsewhere", "elsewhere", "superseded", "advice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """A task's facts by dimension, and which of them its documents say in the context's words."""

    facts: Mapping[str, Fact]
    alike: Mapping[str, bool]

    def wording(self, rng: np.random.Generator) -> dict[str, str]:
        """A wording of each fact; the draws do not depend on ``alike``."""
        formal = {name: one_of(self.facts[name].formal, rng) for name in DIMENSIONS}
        return {
            name: self.facts[name].plain if self.alike[name] else formal[name]
            for name in DIMENSIONS
        }

    def moved(self, material: CorpusMaterial, rng: np.random.Generator) -> Surroundings:
        """The same with one fact replaced by another of its dimension."""
        name = DIMENSIONS[int(rng.integers(len(DIMENSIONS)))]
        others = [fact for fact in material.facts[name] if fact is not self.facts[name]]
        other = others[int(rng.integers(len(others)))]
        return Surroundings(facts={**self.facts, name: other}, alike=self.alike)


def constraint_document(
    material: CorpusMaterial, kind: Kind, where: Surroundings, token: str, rng: np.random.Generator
) -> tuple[str, str]:
    """Title and text of a document that carries the token and says where it applies."""
    order = _ORDERS[int(rng.integers(len(_ORDERS)))]
    frames = material.frames
    identifier = one_of(frames["identifier"]["sentences"], rng)
    scope = one_of(frames["scope"]["sentences"], rng)
    values = {**_when(rng), **where.wording(rng), "token": token}
    own = {"identifier": fill(identifier, values, rng), "scope": fill(scope, values, rng)}
    return _document(material, kind, order, {**values, **own}, rng)


def near_document(
    material: CorpusMaterial, kind: Kind, where: Surroundings, rng: np.random.Generator
) -> tuple[str, str]:
    """Title and text of a document on the same kind of constraint that asks nothing of the task.

    It speaks of other surroundings, or is superseded, or is advice without an identifier.
    """
    reason = one_of(_REASONS, rng)
    orders = _NEAR[reason]
    order = orders[int(rng.integers(len(orders)))]
    moved = where.moved(material, rng)
    near = material.frames["near"]
    scopes = (
        near["advised"]["scope"] if reason == "advice" else material.frames["scope"]["sentences"]
    )
    values = {**_when(rng), **(moved if reason == "elsewhere" else where).wording(rng)}
    own = {
        "status": fill(one_of(near[reason], rng), values, rng),
        "scope": fill(one_of(scopes, rng), values, rng),
    }
    return _document(material, kind, order, {**values, **own}, rng)


def _when(rng: np.random.Generator) -> dict[str, str]:
    month, later = months(rng)
    return {"month": month, "later": later}


def _document(
    material: CorpusMaterial,
    kind: Kind,
    order: tuple[str, ...],
    values: Mapping[str, str],
    rng: np.random.Generator,
) -> tuple[str, str]:
    """The parts in order between an opening and, where words are wanted, more of the kind's text."""
    chosen = {"rule": one_of(kind.rule, rng)}
    chosen["why"], chosen["check"] = one_of(kind.why, rng), one_of(kind.check, rng)
    parts = {**values, **{name: draw(text, rng) for name, text in chosen.items()}}
    own = material.frames["constraint"]
    slots = {**values, "title": one_of(kind.titles, rng)}
    opening, closing, last, title = (
        fill(one_of(own[name], rng), slots, rng)
        for name in ("openings", "closings", "closings", "titles")
    )
    if "status" in parts:
        opening = last = ""  # a note of no force is not announced as one in force
    rest = [parts[name] for name in ("check", "why") if name not in order]
    more = [text for text in (*kind.why, *kind.check) if text not in chosen.values()]
    reasons = [draw(text, rng) for text in more]
    spare = [closing, *rest] if rng.random() < 0.4 else [*rest, *reasons, closing]
    body = [opening, *(parts[name] for name in order)]
    return title, paragraph(body, [*spare, *reasons, last], rng)

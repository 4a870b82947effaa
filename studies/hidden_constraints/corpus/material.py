"""The written material of the hidden-constraint benchmark, read from the files beside this one."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

ROLES = ("create", "network", "access", "data", "capacity", "release")
"""What the six steps of a service do, in order."""
DIMENSIONS = ("data", "people", "site")
"""The facts that tie a task to its documents."""

_PER_DOCUMENT = re.compile(r"\[([^\[\]]*)\]")
_PER_CORPUS = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A side of a service: what it is, how it is set, how far it goes, how it fails."""

    name: str
    what: str
    how: str
    bound: str
    fail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What goals ask for. ``goals`` hold a ``#`` where a purpose goes; six steps, one a role."""

    name: str
    product: str
    unit: str
    goals: tuple[str, ...]
    purposes: tuple[str, ...]
    steps: tuple[str, ...]
    topics: tuple[Topic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of constraint and what documents say of it; ``roles`` are the steps it bears on."""

    words: str
    roles: tuple[str, ...]
    titles: tuple[str, ...]
    rule: tuple[str, ...]
    why: tuple[str, ...]
    check: tuple[str, ...]
    requirement: str
    concepts: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing a context tells: in the context's words and in the other words of documents."""

    plain: str
    formal: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusMaterial:
    """All that is written; ``facts`` by dimension, ``frames`` by table and entry."""

    services: tuple[Service, ...]
    kinds: tuple[Kind, ...]
    facts: Mapping[str, tuple[Fact, ...]]
    frames: Mapping[str, Mapping[str, Any]]


def draw(text: str, rng: np.random.Generator) -> str:
    """The text with one alternative drawn for each ``[a|b]``.

    >>> draw("a [red] boat", np.random.default_rng(0))
    'a red boat'
    """
    return _drawn(_PER_DOCUMENT, text, rng)


def load(rng: np.random.Generator) -> CorpusMaterial:
    """The material of one corpus: every ``{a|b}`` settled by one draw, every ``[a|b]`` left open."""
    tables = {name: _settled(_read(name), rng) for name in ("services", "kinds", "facts", "frames")}
    return CorpusMaterial(
        services=tuple(_service(entry) for entry in tables["services"]["service"]),
        kinds=tuple(Kind(**entry) for entry in tables["kinds"]["kind"]),
        facts={
            name: tuple(Fact(**entry) for entry in tables["facts"][name]) for name in DIMENSIONS
        },
        frames=tables["frames"],
    )


def _drawn(pattern: re.Pattern[str], text: str, rng: np.random.Generator) -> str:
    def pick(choice: re.Match[str]) -> str:
        options = choice[1].split("|")
        return options[int(rng.random() * len(options))]

    return pattern.sub(pick, text)


@cache
def _read(name: str) -> dict[str, Any]:
    path = Path(__file__).with_name("material") / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _settled(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, str):
        return _drawn(_PER_CORPUS, value, rng)
    if isinstance(value, dict):
        return {key: _settled(part, rng) for key, part in value.items()}
    return tuple(_settled(part, rng) for part in value)


def _service(table: Mapping[str, Any]) -> Service:
    topics: Sequence[Mapping[str, str]] = table["topic"]
    rest = {key: value for key, value in table.items() if key != "topic"}
    return Service(**rest, topics=tuple(Topic(**topic) for topic in topics))

"""Whether a text affirms something it mentions, by rules over its words and nothing else."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from pathlib import Path

NAMED = "\ue000"
"""Stands in a clause for the control whose token the text names; no text holds it otherwise."""

_REACH = 12
_NEAR = 60  # items looked at for a label
_ITEM = re.compile(rf"{NAMED}|\w+(?:[.\-'’/]\w+)*|[^\w\s]")
_IDENTIFIER = re.compile(r"\w*_\w*\d")
_ENDS = frozenset(".;!?")
_TURNS = frozenset({"but", "however", "although", "though", "whereas"})
_MARKS = frozenset("()[]{}:\"'`“”‘’*-–—=>«»…")
_LISTS = frozenset({",", "and", "or", "nor", "&"})

_WORDS = {
    name: frozenset(words.split())
    for name, words in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
}
_COPULAS, _LEFT = _WORDS["copulas"], _WORDS["left"]
_FILLERS = frozenset[str]().union(
    *(_WORDS[name] for name in ("enforce", "things", "links", "tries", "copulas"))
)
_AFTER = _WORDS["after"] | _WORDS["things"]
LACKS = frozenset({"no", "without"})
_PARTICLES = {
    "off": ("turn", "turning", "switch", "switching"),
    "out": ("leave", "leaving", "opt", "opting"),
}
_LABELS = {
    "will_enforce": True,
    **dict.fromkeys(
        ("cannot_enforce", "can_not_enforce", "will_not_enforce", "wont_enforce"), False
    ),
    **dict.fromkeys(("do_not_enforce", "not_enforced", "not_applicable"), False),
}


class Stance(StrEnum):
    """What a clause does with something it mentions."""

    AFFIRMED = "affirmed"
    DENIED = "denied"
    LACKING = "lacking"  # said to be absent, by "no" or "without" alone


def clauses(text: str) -> Iterator[tuple[str, ...]]:
    """Words and marks, case-folded, between the ends of sentences and words such as "but".

    >>> list(clauses("Use TLS 1.3, but skip it here."))
    [('use', 'tls', '1.3', ','), ('skip', 'it', 'here')]
    """
    clause: list[str] = []
    for item in _ITEM.findall(text.casefold()):
        if item in _ENDS or item in _TURNS:
            if clause:
                yield tuple(clause)
            clause = []
        else:
            clause.append(item)
    if clause:
        yield tuple(clause)


def is_identifier(item: str) -> bool:
    """Whether it has the form of a control's token: an underscore and, at its end, a digit.

    >>> is_identifier("disable_plaintext_http_002"), is_identifier("port_a")
    (True, False)
    """
    return item == NAMED or _IDENTIFIER.fullmatch(item) is not None


def stance(clause: Sequence[str], at: int, words: Collection[str] = ()) -> Stance:
    """What ``clause`` does with the item at ``at``.

    A denial counts only where it *governs* the item:

    - before it, when nothing stands between but words of enforcing, articles, adverbs in -ly and ``words``:
      "do not enforce X", "skip X", "instead of X". "Do not allow plain HTTP (X)" affirms X;
    - after it, as what is said of it: "X is not applicable", "X cannot be enforced", "X is skipped";
    - as a label beside it between two commas: "X: CANNOT_ENFORCE".

    Two denials cancel ("never skip X"), and so do a refusal and "without" ("reject calls without X"). Rules
    know no grammar: a denial farther away, a question and what is only planned are taken for affirmed.
    """
    label = _label(clause, at)
    if label is not None:
        return Stance.AFFIRMED if label else Stance.DENIED
    if _denied_after(clause, at, words):
        return Stance.DENIED
    denials = list(_denials_before(clause, at, words))
    if len(denials) % 2 == 0:
        return Stance.AFFIRMED
    return Stance.LACKING if LACKS.issuperset(denials) else Stance.DENIED


def reaches(clause: Sequence[str], at: int, words: Collection[str]) -> bool:
    """Whether a bare "no" or "without" at ``at`` stands before one of ``words``, as in "no public peering".

    >>> reaches(("peering", "without", "delay"), 1, {"peering"})
    False
    """
    for item in clause[at + 1 : at + 1 + _REACH]:
        if item in words and item not in LACKS:
            return True
        if not _passes(item, words):
            return False
    return False


def _label(clause: Sequence[str], at: int) -> bool | None:
    """The nearest label between the commas around the item: whether it promises; ``None``: no label."""
    first, last = max(0, at - _NEAR), min(len(clause), at + _NEAR)
    start = max((i + 1 for i in range(first, at) if clause[i] == ","), default=first)
    end = next((i for i in range(at, last) if clause[i] == ","), last)
    near = [(abs(i - at), i) for i in range(start, end) if clause[i] in _LABELS]
    return _LABELS[clause[min(near)[1]]] if near else None


def _denials_before(clause: Sequence[str], at: int, words: Collection[str]) -> Iterator[str]:
    """The denials that reach the item from before it, nearest first."""
    marked = False
    for i in range(at - 1, max(-1, at - 1 - _REACH), -1):
        item = clause[i]
        if item in _MARKS:
            marked = True
        elif _denies(clause, i, words, marked=marked):
            yield item
        elif not (_passes(item, words) or (item in _LISTS and _lists(clause, i))):
            return


def _passes(item: str, words: Collection[str]) -> bool:
    return item in _FILLERS or item in words or item.endswith("ly") or is_identifier(item)


def _lists(clause: Sequence[str], i: int) -> bool:
    """Whether a comma or "and" joins two controls."""
    joined = i > 0 and is_identifier(clause[i - 1]) and is_identifier(clause[i + 1])
    return joined or (clause[i] != "," and clause[i - 1] == "," and is_identifier(clause[i + 1]))


def _denies(clause: Sequence[str], i: int, words: Collection[str], *, marked: bool) -> bool:
    """Whether the item is a denial; ``marked``: a bracket or colon stands after it."""
    item = clause[i]
    following = clause[i + 1] if i + 1 < len(clause) else ""
    if item in words:
        return item == "no" and following in ("need", "reason")
    if item == "without":
        return not _is_required(clause, i)
    if item in _PARTICLES:
        return i > 0 and clause[i - 1] in _PARTICLES[item]
    # "Skip: X" is said of X, "the listener to disable: X" is not
    leaves = (item in _WORDS["leaves"] and (i == 0 or not marked)) or (item in _LEFT and i == 0)
    return leaves or item == "no" or (item in _WORDS["to"] and following == "to") or _is_not(item)


def _is_required(clause: Sequence[str], i: int) -> bool:
    """Whether what "without" stands before is refused or denied: then it is what is required."""
    refused = not _WORDS["refusals"].isdisjoint(clause)
    return refused or any(_is_not(word) or word == "no" for word in clause[:i])


def _is_not(item: str) -> bool:
    return item in _WORDS["not"] or item.endswith(("n't", "n’t"))


def _denied_after(clause: Sequence[str], at: int, words: Collection[str]) -> bool:
    """Whether what is said of the item denies it."""
    denials, linked = 0, False
    for i in range(at + 1, min(len(clause), at + 1 + _REACH)):
        item = clause[i]
        following = clause[i + 1] if i + 1 < len(clause) else ""
        if item in _COPULAS:
            linked = True
        elif (_is_not(item) or item == "no") and item not in words:
            denials += 1
        elif item in _WORDS["fit"] and item not in words:
            return denials % 2 == 1
        elif (item in _LEFT or item in _WORDS["unfit"]) and item not in words:
            ends = not following or following in _MARKS or following == ","
            if item == "out" and following != "of":
                return False
            # "enforce X later" still enforces it, "X is left for later" does not
            return (linked or (ends and item != "later")) and denials % 2 == 0
        elif not (
            item in _MARKS
            or item in _AFTER
            or item in words
            or item.endswith("ly")
            or (item == "," and (following == "which" or _is_not(following)))
        ):
            return False
    return denials % 2 == 1

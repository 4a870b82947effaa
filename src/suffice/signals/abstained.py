"""Abstention: the model says that it does not know."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from suffice.errors import DataError, UsageError, read_plain
from suffice.scoring import answer_form
from suffice.signals.columns.answer_columns import answer_forms
from suffice.signals.columns.rounds import RoundColumns
from suffice.signals.known_signals import SignalSpec, WithSettings, share
from suffice.stats.units import Array, Mask

STATED = "abstention"
"""Where a run document states the phrases by which its record's answers abstain."""
_OPEN = "..."
HEAD = re.compile(r"[(;\n]|\. ")
"""What ends the head of an answer: a remark in brackets or a further sentence follows."""
_LACKING = ("mentioned", "specified", "provided", "available", "stated", "given", "found")
_EVIDENCE = ("text", "context", "evidence", "passage", "passages", "document", "documents")
_READ = tuple(f"{given}{what}" for given in ("", "provided ", "given ") for what in _EVIDENCE)

ABSTENTION_PHRASES: tuple[str, ...] = (
    "unknown",
    "not mentioned",
    "not specified",
    "not provided",
    "information not provided",
    "not enough information",
    "insufficient information",
    "cannot be determined",
    "na",
    "none",
    *("not enough info", "sorry I don't know", "sorry I do not know"),
    *("not available", "not stated", "not given", "not found", "not known", "not clear", "unclear"),
    *("not sure", "unsure", "not applicable", "not answerable", "unanswerable", "undetermined"),
    *("unspecified", "none known", "no answer", "no result", "no results found", "don't know"),
    *("I do not know", "I don't know", "I am not sure", "I'm not sure", "the answer is unknown"),
    *("no answer found ...", "no information ...", "no relevant ...", "no mention of ..."),
    *("there is no answer ...", "there is no information ...", "there is no mention of ..."),
    *("there is not enough ...", "there isn't enough ...", "not enough information ..."),
    *("insufficient information ...", "information is not ...", "it is not clear ..."),
    *("it is unclear ...", "it is not known ...", "I could not find ...", "I couldn't find ..."),
    *("I cannot find ...", "I can't find ...", "I did not find ...", "I didn't find ..."),
    *("could not find ...", "cannot find ...", "unable to find ...", "unable to determine ..."),
    *("unable to answer ...", "I am unable to ...", "I'm unable to ...", "I was unable to ..."),
    *("cannot answer ...", "I cannot answer ...", "I can't answer ...", "cannot determine ..."),
    *("I cannot determine ...", "I can't determine ...", "cannot be determined ..."),
    *("cannot be answered ...", "this question cannot be answered ...", "the answer cannot be ..."),
    *("the question cannot be answered ...", "this question is not answerable ..."),
    *("the answer could not be ...", "the answer is not in ...", "I do not know the answer ..."),
    *("I don't know the answer ...", "I do not have enough ...", "I don't have enough ..."),
    *("I do not have information ...", "I don't have information ...", "I'm sorry but ..."),
    *("I am sorry but ...", "... is unknown", "... is not known", "... cannot be determined"),
    *(f"not {lacking} in ..." for lacking in _LACKING),
    *(f"not in the {read} ..." for read in _READ),
    *(f"it is not {lacking} ..." for lacking in _LACKING),
    *(f"the answer is not {lacking} ..." for lacking in _LACKING),
    *(f"... not {lacking} in the {read}" for lacking in _LACKING for read in _READ),
    *(f"the {read} {does} not ..." for read in _READ for does in ("does", "do")),
    *(f"the {read} {does} ..." for read in _READ for does in ("doesn't", "don't")),
)
"""Answers that abstain: the whole answer, or how it begins or ends where ``...`` stands for the rest.

Case, punctuation and articles do not count. Leave out ``none`` where it is a real answer.
"""


@dataclass(frozen=True, slots=True)
class Abstentions:
    """Hold abstention phrases in the normal form of answers, ready to compare.

    ``beginnings`` stand by their first word and ``ends`` by their last.
    """

    phrases: tuple[str, ...]
    whole: frozenset[str] = field(compare=False, repr=False)
    beginnings: Mapping[str, tuple[str, ...]] = field(compare=False, repr=False)
    ends: Mapping[str, tuple[str, ...]] = field(compare=False, repr=False)

    def holds(self, form: str, answer: str) -> bool:
        """Say whether an answer, with its normal form, is empty or abstains."""
        if form == "" or form in self.whole:
            return True
        beginnings = self.beginnings.get(form.partition(" ")[0])
        if beginnings is not None and f"{form} ".startswith(beginnings):
            return True
        head = HEAD.split(answer, maxsplit=1)[0]
        if len(head) < len(answer):
            return answer_form(head) in self.whole
        ends = self.ends.get(form.rpartition(" ")[2])
        return ends is not None and f" {form}".endswith(ends)


@lru_cache(maxsize=64)
def ready(phrases: tuple[str, ...]) -> Abstentions:
    """Return the phrases in the form in which answers are compared."""
    whole: list[str] = []
    beginnings: dict[str, tuple[str, ...]] = {}
    ends: dict[str, tuple[str, ...]] = {}
    for phrase in phrases:
        form = answer_form(phrase.strip().removesuffix(_OPEN).removeprefix(_OPEN))
        if not form:
            raise UsageError(
                f"the abstention phrase {phrase!r} holds no word; write one, as in 'not mentioned' or "
                "'there is no information ...'"
            )
        if form == "no":
            raise UsageError(
                'the abstention phrases hold "no", which answers a yes/no question; leave it out'
            )
        if phrase.strip().endswith(_OPEN):
            first = form.partition(" ")[0]
            beginnings[first] = (*beginnings.get(first, ()), f"{form} ")
        elif phrase.strip().startswith(_OPEN):
            last = form.rpartition(" ")[2]
            ends[last] = (*ends.get(last, ()), f" {form}")
        else:
            whole.append(form)
    return Abstentions(phrases, frozenset(whole), beginnings, ends)


_USUAL = ready(ABSTENTION_PHRASES)


def abstained(rounds: RoundColumns, phrases: Abstentions) -> Array:
    """Return 1.0 where the answer is empty or matches an abstention phrase, else 0.0; low is good."""
    answers = rounds.texts("answer")
    return answers.through(abstaining(answers.distinct, phrases).astype(np.float64), np.nan)


def abstaining(texts: pa.Array, phrases: Abstentions) -> Mask:
    """Say which texts abstain, (n,)."""
    forms = answer_forms(texts).to_pylist()
    return np.fromiter(map(phrases.holds, forms, texts.to_pylist()), np.bool_, len(texts))


def abstained_signal(phrases: Iterable[str]) -> SignalSpec:
    """Return the signal ``abstained`` with these phrases instead of the usual ones."""
    own = ready(tuple(phrases))
    return replace(ABSTAINED, columns=WithSettings(abstained, (own,)), own_settings=True)


ABSTAINED = share(
    name="abstained",
    summary="1 if the answer is empty or says that it is unknown",
    direction="low",
    columns=WithSettings(abstained, (_USUAL,)),
    binary=True,
)


def read_phrases(path: str | Path) -> tuple[str, ...]:
    """Read phrases from a text file, one per line; skip blank lines and lines that begin with ``#``."""
    try:
        lines = read_plain(Path(path)).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read as text: {error}", file=str(path)) from error
    phrases = tuple(
        line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")
    )
    if not phrases:
        raise DataError(
            "holds no phrase; write one per line, as in 'not mentioned' or 'there is no information ...'",
            file=str(path),
        )
    ready(phrases)
    return phrases


def stated_phrases(run: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the phrases that a record's run document states; ``None`` means the usual ones."""
    stated = run.get(STATED)
    return None if stated is None else tuple(map(str, stated))

"""What a loop has read so far, as the evidence signals need it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

from suffice.protocols import Absence
from suffice.trace.rounds.records import Passage, Round
from suffice.trace.rounds.tokens import passage_text, passage_tokens

_MAX_CHARACTERS = 4_000


def one_line(text: str) -> str:
    """White space squeezed, so that a text cannot imitate a prompt's own lines; cut when very long."""
    return " ".join(text[:_MAX_CHARACTERS].split())


def evidence_text(passages: Iterable[Passage]) -> str:
    """The evidence as prompts show it: one line a passage, so that more passages only lengthen it.

    Where there is none it says so, since a model takes the bare heading for a gap to fill.
    """
    lines = [f"[{one_line(passage.title)}] {one_line(passage.text or '')}" for passage in passages]
    return "\n".join(["Evidence:", *(lines or ["(no passage)"])])


def seen_passages(rounds: Iterable[Round]) -> dict[str, Passage] | None:
    """Passages of the rounds by id, first occurrence first; ``None`` when a round recorded none."""
    seen: dict[str, Passage] = {}
    for round_ in rounds:
        if round_.passages is None:
            return None
        for passage in round_.passages:
            seen.setdefault(passage.id, passage)
    return seen


PASSAGES_UNKNOWN = Absence(
    "a round's passages were not recorded",
    lambda view: seen_passages(view.rounds) is None,
    input="passages=...",
)
TEXT_UNKNOWN = Absence(
    "a passage was recorded without its text",
    lambda view: seen_texts(view.rounds) is None,
    input="passages=[suffice.Passage(id=..., text=...)]",
)
NO_ANSWER = Absence("the answer is empty", lambda view: not view.current.answer_text.strip())


def seen_texts(rounds: Iterable[Round]) -> list[str] | None:
    """Title and text of the passages seen, in order; ``None`` when a passage's text is not known."""
    seen = seen_passages(rounds)
    if seen is None or not all(passage.text for passage in seen.values()):
        return None
    return [passage_text(passage) for passage in seen.values()]


@lru_cache(maxsize=1024)
def token_set(passage: Passage) -> frozenset[str]:
    """Distinct tokens of title and text; kept, since every later round asks again."""
    return frozenset(passage_tokens(passage))


def finite(values: Iterable[float | None]) -> list[float]:
    """The finite ones, in order."""
    return [value for value in values if value is not None and math.isfinite(value)]


def rerank_scores(rounds: Iterable[Round]) -> list[float]:
    """Raw reranker scores of the distinct passages seen, those without a finite one left out."""
    distinct: dict[str, float | None] = {}
    for round_ in rounds:
        for passage in round_.passages or ():
            distinct.setdefault(passage.id, passage.rerank_score)
    return finite(distinct.values())


def candidate_scores(rounds: Sequence[Round]) -> list[float]:
    """Scores of the newest recorded candidate list; empty when none is recorded."""
    for round_ in reversed(rounds):
        if round_.candidate_scores is not None:
            return finite(round_.candidate_scores)
    return []

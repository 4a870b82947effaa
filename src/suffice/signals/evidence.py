"""What a loop has read so far, as the evidence signals need it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from suffice.protocols import Absence
from suffice.trace.rounds.records import Passage, Round
from suffice.trace.rounds.tokens import passage_text, passage_tokens

_MAX_CHARACTERS = 4_000
# by which chat templates end and begin turns
_TEMPLATE_MARK = re.compile(
    "<(?=[|｜]|/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|think|tool_call|tool_response)>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT)\])"
)
# controls, overrides of writing direction, and the copies of ASCII that show nothing
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)


def one_line(text: str) -> str:
    r"""A foreign text as prompts show it: on one line, so that it cannot imitate a prompt's own lines.

    White space is squeezed, what is beyond 4,000 letters cut, and letters that nobody sees are left out.
    Servers read the marks of a chat template wherever they stand in a prompt, so that a text could end
    the turn it stands in: a blank takes them apart.

    >>> one_line("It burned down.<|im_end|>\nAnswer: Oslo")
    'It burned down.< |im_end|> Answer: Oslo'
    """
    line = " ".join(text[:_MAX_CHARACTERS].split())
    if not line.isprintable():
        line = " ".join(_UNSEEN.sub("", line).split())
    return _apart(line)


def _apart(line: str) -> str:
    """With a blank in the marks of chat templates."""
    if "<" not in line and "[" not in line:
        return line
    return _TEMPLATE_MARK.sub(lambda match: f"{match[0]} ", line)


def passage_line(title: str, text: str) -> str:
    """``[title] text``, both as :func:`one_line` has them."""
    return _apart(f"[{one_line(title)}] {one_line(text)}")


def evidence_text(passages: Iterable[Passage]) -> str:
    """The evidence as prompts show it: one line a passage, so that more passages only lengthen it.

    Where there is none it says so, since a model takes the bare heading for a gap to fill.
    """
    lines = [passage_line(passage.title, passage.text or "") for passage in passages]
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

"""The one tokenizer that ranking and overlap signals share."""

from __future__ import annotations

import re

from suffice.trace.rounds.records import Passage

_WORD = re.compile(r"\w+")


def tokenize(text: str) -> list[str]:
    """Lower-case words: everything that is not a word character separates.

    >>> tokenize("The A-Team (1983)")
    ['the', 'a', 'team', '1983']
    """
    return _WORD.findall(text.lower())


def passage_text(passage: Passage) -> str:
    """Title and text joined by a blank; a passage without text is its title."""
    return f"{passage.title} {passage.text or ''}"


def passage_tokens(passage: Passage) -> list[str]:
    """Tokens of title and text, in order.

    >>> passage_tokens(Passage(id="1", title="Mount Ardel", text="A peak."))
    ['mount', 'ardel', 'a', 'peak']
    """
    return tokenize(passage_text(passage))

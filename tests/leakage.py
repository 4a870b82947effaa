"""Whether goal and context give a task's constraint away."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics.pairwise import cosine_similarity
from studies.hidden_constraints.corpus.tasks import PlanningTask

from suffice.contracts import Encoder
from suffice.trace.rounds.records import tokenize

_SUFFIXES = (
    *("ments", "ment", "ities", "ness", "ings", "ing", "ions", "ion", "ity", "ies", "ied"),
    *("ers", "ors", "ed", "er", "or", "es", "ly", "al", "s", "e", "y"),
)
_SHORTEST = 3
_EQUAL = 1e-9


def stem(word: str) -> str:
    """A word without its endings, in lower case: forms of one word share a stem.

    Endings are taken off again and again as long as three letters remain, which joins too much
    rather than too little.

    >>> [stem(word) for word in ("rotate", "rotates", "rotation", "rotating")]
    ['rotat', 'rotat', 'rotat', 'rotat']
    """
    text = word.lower()
    while True:
        shorter = next(
            (
                text[: -len(suffix)]
                for suffix in _SUFFIXES
                if text.endswith(suffix) and len(text) - len(suffix) >= _SHORTEST
            ),
            None,
        )
        if shorter is None:
            return text
        text = shorter


def token_words(token: str) -> tuple[str, ...]:
    """The words of a token without its number.

    >>> token_words("disable_plaintext_http_002")
    ('disable', 'plaintext', 'http')
    """
    return tuple(part for part in token.split("_") if not part.isdigit())


def leaking_stems(task: PlanningTask) -> tuple[str, ...]:
    """Stems of the token's words that occur in goal or context, sorted; empty when nothing leaks."""
    seen = {stem(word) for word in tokenize(task.query)}
    return tuple(sorted(seen & {stem(word) for word in token_words(task.constraint.token)}))


def token_ranks(
    tasks: Sequence[PlanningTask], encoder: Encoder | None = None
) -> NDArray[np.float64]:
    """Where each task's own token stands when the tokens of all tasks are ranked for its query, (n_tasks,).

    By the cosine of query and token words, or without an encoder of their counts of letter trigrams. From 1
    (best); equal scores share the mean of their ranks, so that knowing nothing gives (n_tasks + 1) / 2.
    """
    queries = [task.query for task in tasks]
    tokens = [" ".join(token_words(task.constraint.token)) for task in tasks]
    if encoder is None:
        counts = CountVectorizer(analyzer="char_wb", ngram_range=(3, 3)).fit_transform(
            [*queries, *tokens]
        )
        scores = cosine_similarity(counts[: len(tasks)], counts[len(tasks) :])
    else:
        asked = encoder.encode(queries, role="query").astype(np.float64)
        scores = asked @ encoder.encode(tokens).astype(np.float64).T
    own = np.diagonal(scores)[:, None]
    better = (scores > own + _EQUAL).sum(axis=1)
    equal = (np.abs(scores - own) <= _EQUAL).sum(axis=1)
    ranks: NDArray[np.float64] = better + (equal + 1) / 2
    return ranks

"""Features of the contradiction head: the words of two statements, and their vectors."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import Encoder
from suffice.errors import DataError, UsageError
from suffice.retrieval.dense import OnnxEncoder
from suffice.retrieval.ranking import UNREADABLE, packed, unpacked
from suffice.trace.durable import replace_file

VectorOf = Callable[[str], NDArray[np.float64]]
"""A text's unit vector, (dimension,)."""

# Fixed with the weights: another list here would change what shipped weights were trained to read.
_NEGATIONS = frozenset((
    "not", "no", "never", "none", "nobody", "nothing", "cannot", "neither", "nor", "without",
    "incompatible", "avoid",
))  # fmt: skip
_LATER = frozenset(("after", "afterwards", "later", "once", "only", "until", "following"))
_FUNCTION_WORDS = frozenset((
    "a", "all", "an", "and", "any", "as", "at", "be", "by", "do", "does", "each", "every", "for",
    "from", "has", "have", "in", "into", "is", "it", "its", "let", "may", "must", "next", "now",
    "of", "on", "one", "our", "should", "so", "step", "that", "the", "then", "this", "to", "we",
    "will", "with",
))  # fmt: skip
_CONTRACTED = ("n't", "n’t")
_DROPPED = _NEGATIONS | {"do"}
_POLELESS = _FUNCTION_WORDS - {"on"}
_FORM_WORDS = _FUNCTION_WORDS | _NEGATIONS | _LATER
_WORD = re.compile(r"\w+(?:[-.'’]\w+)*")
_NO_UN = frozenset({"unified", "uniform", "uniformly", "unlimited", "uniquely", "university"})
_PREFIXES = ("un", "in", "dis", "de", "non", "non-")
_ENDINGS = ("ing", "ed", "es", "s", "e")

FEATURES = (
    "one_negated", "both_negated", "shared_share", "contained_share", "difference_shorter",
    "difference_longer", "other_numbers", "prefix_opposite", "same_order", "other_order",
    "same_order_one_negated", "alike_one_negated",
    "sentence_cosine", "difference_cosine", "sentence_cosine_one_negated",
    "difference_cosine_one_negated", "sentence_poles", "difference_poles", "word_poles",
    "sentence_poles_turned", "difference_poles_turned", "word_poles_turned", "difference_opposed",
    "words_opposed", "weaker_pole", "stronger_pole", "one_turned",
)  # fmt: skip
"""Names of the columns of :func:`pair_features`; of :func:`lexical_features` the first twelve."""


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _negated(words: Sequence[str]) -> bool:
    negations = sum(word in _NEGATIONS or word.endswith(_CONTRACTED) for word in words)
    return negations % 2 == 1


def _turns(words: Sequence[str]) -> bool:
    """Say whether the number of reversing words is odd: negations and "un-" words."""
    turns = sum(word.startswith("un") and len(word) >= 7 and word not in _NO_UN for word in words)
    return (turns % 2 == 1) != _negated(words)


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def differences(first: str, second: str) -> tuple[str, str]:
    """Return the words of each text that the other lacks, in order, joined by blanks; may be empty.

    >>> differences("Enable logs on the queue", "Disable all logs on the queue")
    ('enable', 'disable all')
    """
    words = _words(first), _words(second)
    return _left(*words), _left(*words[::-1])


def _left(words: Sequence[str], others: Sequence[str]) -> str:
    kept, missing = [], Counter(words) - Counter(others)
    for word in words:
        if missing[word] > 0:
            missing[word] -= 1
            kept.append(word)
    return " ".join(kept)


def lexical_features(first: str, second: str) -> NDArray[np.float64]:
    """Return features of the words alone, (12,), the same in either order.

    Shares refer to content stems. A word such as "later" in one text alone reverses the stems' order.
    """
    words = _words(first), _words(second)
    negated = _negated(words[0]), _negated(words[1])
    content = stems(first), stems(second)
    shared, either = set(content[0]) & set(content[1]), set(content[0]) | set(content[1])
    fewer = min(len(set(content[0])), len(set(content[1])))
    sizes = sorted(len(part.split()) for part in differences(first, second))
    contained = len(shared) / fewer if fewer else 0.0
    order = _order(content, shared)
    later = [sum(word in _LATER for word in text) % 2 for text in words]
    if later[0] != later[1]:
        order = -order
    numbers = [{word for word in text if word[0].isdigit()} for text in words]
    one = float(negated[0] != negated[1])
    return np.array(
        [
            one,
            float(negated[0] and negated[1]),
            len(shared) / len(either) if either else 0.0,
            contained,
            np.log1p(sizes[0]),
            np.log1p(sizes[1]),
            float(bool(numbers[0] and numbers[1]) and numbers[0].isdisjoint(numbers[1])),
            float(_prefix_opposite(set(words[0]) - set(words[1]), set(words[1]) - set(words[0]))),
            max(order, 0.0),
            max(-order, 0.0),
            max(order, 0.0) * one,
            contained * one,
        ]
    )


def stems(text: str) -> list[str]:
    """Return the stems of content words, in order; negations and words of order do not count.

    >>> stems("Do not open the closed ports")
    ['open', 'clos', 'port']
    """
    return [_stem(word) for word in _words(text) if word not in _FORM_WORDS]


def _order(stems: tuple[list[str], list[str]], shared: set[str]) -> float:
    """Return the share of pairs of shared stems in the same order, less those in the other, in [-1, 1]."""
    common = sorted(shared)
    places = [tuple(sequence.index(stem) for sequence in stems) for stem in common]
    same = [(a < c) == (b < d) for (a, b), (c, d) in itertools.combinations(places, 2)]
    return (2 * sum(same) - len(same)) / len(same) if same else 0.0


def _prefix_opposite(first: set[str], second: set[str]) -> bool:
    for one, other in itertools.product(first, second):
        for short, long in ((one, other), (other, one)):
            if any(long == prefix + short for prefix in _PREFIXES):
                return True
            if short.startswith("en") and long == f"dis{short.removeprefix('en')}":
                return True
    return False


def pair_features(
    first: str, second: str, vector_of: VectorOf, pole: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the head's features of two statements, (len(FEATURES),), the same in either order.

    A text's pole, in [-1, 1], is high where it speaks of doing or giving, low of undoing or taking.
    ``_turned`` products of poles change sign if a negation reverses exactly one of the texts.
    """
    lexical = lexical_features(first, second)
    parts = [
        " ".join(w for w in text.split() if w not in _DROPPED and not w.endswith(_CONTRACTED))
        for text in differences(first, second)
    ]
    vectors = [vector_of(text) for text in (first, second, *parts)]
    cosines = float(vectors[0] @ vectors[1]), float(vectors[2] @ vectors[3])
    poles = [_pole(vector, pole) for vector in vectors]
    words = [_word_pole(part, vector_of, pole) for part in parts]
    products = np.array([poles[0] * poles[1], poles[2] * poles[3], words[0] * words[1]])
    turned = _turns(_words(first)) != _turns(_words(second))
    turned_products = -products if turned else products
    one_negated = lexical[0]
    strengths = sorted(abs(strength) for strength in words)
    return np.array(
        [
            *lexical,
            *cosines,
            *(cosine * one_negated for cosine in cosines),
            *products,
            *turned_products,
            *np.maximum(-turned_products[1:], 0.0),
            *strengths,
            float(turned),
        ]
    )


def _pole(vector: NDArray[np.float64], pole: NDArray[np.float64]) -> float:
    return float(np.tanh(vector @ pole[:-1] + pole[-1]))


def _word_pole(text: str, vector_of: VectorOf, pole: NDArray[np.float64]) -> float:
    words = [word for word in text.split() if word not in _POLELESS and not word[0].isdigit()]
    return float(np.tanh(sum(_pole(vector_of(word), pole) for word in words)))


_FILE = "contradiction_head.npz"
_KEPT_TEXTS = 4096  # vectors of words and steps come again and again; 6 MB with MiniLM
_RETRAIN = "python -m studies.training contradiction --out FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadWeights:
    """A pole (dimension + 1,) and weights (len(FEATURES) + 1,), the offset last in both."""

    encoder: str
    pole: NDArray[np.float64]
    weights: NDArray[np.float64]

    def write(self, path: Path) -> None:
        """Write the numbers with encoder and features as an ``.npz`` file, whole or not at all."""
        about = {"encoder": self.encoder, "features": FEATURES}
        replace_file(path, packed({"pole": self.pole, "weights": self.weights}, about=about))

    @classmethod
    def read(cls, path: Path) -> HeadWeights:
        """Read a file of :meth:`write`."""
        try:
            arrays, (about,) = unpacked(path, "about")
            weights = cls(encoder=about["encoder"], pole=arrays["pole"], weights=arrays["weights"])
            features = about["features"]
        except UNREADABLE as error:
            raise DataError(
                f"not a contradiction head ({error!r}); train one: {_RETRAIN}", file=str(path)
            ) from error
        if features != list(FEATURES):
            raise DataError(f"has other features; train it again: {_RETRAIN}", file=str(path))
        return weights


class ContradictionHead:
    """Detect contradictions of plan steps; a :class:`suffice.contracts.ContradictionDetector`.

    A logistic regression on :data:`FEATURES`, safe to call from several threads; use :meth:`load`. The order
    of two steps makes no difference. ``studies/results/contradiction.md`` reports its quality and failures.
    """

    def __init__(self, weights: HeadWeights, encoder: Encoder) -> None:
        if encoder.name != weights.encoder:
            raise UsageError(
                f"this head was trained on the encoder {weights.encoder!r} and was given "
                f"{encoder.name!r}; give it that one, or train it again: {_RETRAIN}"
            )
        self._weights = weights
        self._vector = kept_vectors(encoder)

    @classmethod
    def load(cls, path: str | Path | None = None, encoder: Encoder | None = None) -> Self:
        """Read a head, the packaged one without a path."""
        place = Path(__file__).with_name(_FILE) if path is None else Path(path)
        return cls(HeadWeights.read(place), encoder or OnnxEncoder.load())

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Return the probability of a contradiction for every (plan step, candidate), (len(pairs),)."""
        features = [pair_features(*pair, self._vector, self._weights.pole) for pair in pairs]
        weights = self._weights.weights
        # each pair by itself: a product of all rows at once would round by their number
        odds = np.array([row @ weights[:-1] + weights[-1] for row in features], np.float64)
        return np.asarray(0.5 * (1.0 + np.tanh(odds / 2.0)), np.float64)


def kept_vectors(encoder: Encoder) -> VectorOf:
    """Return the encoder's vector of a text, (dimension,) float64; the last 4,096 are cached."""

    @lru_cache(maxsize=_KEPT_TEXTS)
    def vector_of(text: str) -> NDArray[np.float64]:
        return np.asarray(encoder.encode([text])[0], np.float64)

    return vector_of

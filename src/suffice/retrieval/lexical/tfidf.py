"""TF-IDF over a fixed set of passages, by scikit-learn on the words that BM25 reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice._optional import require
from suffice.errors import DataError, first_line
from suffice.retrieval.index_folder import UNREADABLE, StoredIndex, load_index, save_index
from suffice.retrieval.ranking import ScoredIndex, check_ids
from suffice.trace.rounds.records import Passage
from suffice.trace.rounds.tokens import passage_tokens, tokenize

_PURPOSE = "TF-IDF"
_WORDS = "words.json"
_ARRAYS = "weights.npz"
_NAMES = ("idf", "data", "indices", "indptr")


def _as_given(words: list[str]) -> list[str]:
    return words


def _vectorizer(vocabulary: Mapping[str, int] | None = None) -> Any:
    module = require("sklearn.feature_extraction.text", extra="tfidf", purpose=_PURPOSE)
    return module.TfidfVectorizer(analyzer=_as_given, vocabulary=vocabulary)


@dataclass(frozen=True, slots=True)
class _Weights:
    """The fitted vectorizer and the passages' unit vectors, sparse (n_passages, n_words)."""

    vectorizer: Any
    matrix: Any


class TfidfIndex(ScoredIndex):
    """Cosine of TF-IDF vectors; fulfils :class:`suffice.protocols.Retriever`.

    A word's weight is its count times ``1 + ln((1 + N) / (1 + df))``, vectors have length 1: what
    scikit-learn's ``TfidfVectorizer`` computes as it stands. Scores lie in [0, 1], 0 where no word is
    shared. Build one with :meth:`build` or :meth:`load`.

    >>> index = TfidfIndex.build(
    ...     [Passage(id="a", text="a red boat"), Passage(id="b", text="a green boat")])
    >>> [passage.id for passage in index.retrieve("green boat", 2)]
    ['b', 'a']
    """

    def __init__(self, passages: tuple[Passage, ...], weights: _Weights | None) -> None:
        super().__init__(passages)
        self._weights = weights  # None: no passage holds a word

    @classmethod
    def build(cls, passages: Iterable[Passage]) -> TfidfIndex:
        """Index passages over title and text; any number of them, with unique ids."""
        kept = tuple(passages)
        check_ids(kept)
        vectorizer = _vectorizer()
        tokens = [passage_tokens(passage) for passage in kept]
        if not any(tokens):
            return cls(kept, None)
        return cls(kept, _Weights(matrix=vectorizer.fit_transform(tokens), vectorizer=vectorizer))

    def scores(self, query: str) -> NDArray[np.float64]:
        """The cosine of the query and every passage, (n_passages,)."""
        if self._weights is None:
            return np.zeros(len(self.passages))
        vector = self._weights.vectorizer.transform([tokenize(query)])
        cosines: NDArray[np.float64] = (self._weights.matrix @ vector.T).toarray()[:, 0]
        return cosines

    def save(self, folder: str | Path) -> None:
        """Write the index to ``folder``; an index already there is replaced in one step."""
        weights = self._weights

        def write(data: Path) -> None:
            if weights is None:
                return
            words = weights.vectorizer.get_feature_names_out().tolist()
            (data / _WORDS).write_text(json.dumps(words), encoding="ascii")
            matrix = weights.matrix
            np.savez(
                data / _ARRAYS,
                idf=weights.vectorizer.idf_,
                data=matrix.data,
                indices=matrix.indices,
                indptr=matrix.indptr,
            )

        save_index(Path(folder), "tfidf", self.passages, {}, write)

    @classmethod
    def load(cls, folder: str | Path) -> TfidfIndex:
        """Read an index that :meth:`save` wrote."""
        stored = load_index(Path(folder), "tfidf")
        if not any(passage_tokens(passage) for passage in stored.passages):
            return cls(stored.passages, None)
        stored.need(_WORDS, _ARRAYS)
        return cls(stored.passages, _load_weights(stored))


def _load_weights(stored: StoredIndex) -> _Weights:
    sparse = require("scipy.sparse", extra="tfidf", purpose=_PURPOSE)
    path = stored.data / _WORDS
    try:
        words = json.loads(path.read_text(encoding="ascii"))
        vectorizer = _vectorizer({str(word): column for column, word in enumerate(words)})
        path = stored.data / _ARRAYS
        with np.load(path, allow_pickle=False) as arrays:
            idf, data, indices, indptr = (arrays[name] for name in _NAMES)
        vectorizer.idf_ = idf
        shape = (len(stored.passages), len(words))
        matrix = sparse.csr_matrix((data, indices, indptr), shape=shape)
    except UNREADABLE as error:
        raise DataError(
            f"not the weights of a TF-IDF index ({first_line(error)}); build the index again",
            file=str(path),
        ) from error
    return _Weights(vectorizer=vectorizer, matrix=matrix)

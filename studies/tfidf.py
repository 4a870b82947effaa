"""TF-IDF over a fixed set of passages, by scikit-learn on the words that BM25 reads."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from suffice._optional import require
from suffice.retrieval.ranking import best_first, check_ids, check_k, scored
from suffice.trace.rounds.records import Passage, passage_tokens, tokenize


class TfidfIndex:
    """Cosine of TF-IDF vectors; fulfils :class:`suffice.contracts.Retriever`.

    Vectors are those of scikit-learn's ``TfidfVectorizer``, over title and text; scores lie in [0, 1].

    >>> index = TfidfIndex([Passage(id="a", text="a red boat"), Passage(id="b", text="a green boat")])
    >>> [passage.id for passage in index.retrieve("green boat", 2)]
    ['b', 'a']
    """

    def __init__(self, passages: Iterable[Passage]) -> None:
        self.passages = tuple(passages)
        check_ids(self.passages)
        module = require("sklearn.feature_extraction.text", extra="cluster", purpose="TF-IDF")
        self._vectorizer = module.TfidfVectorizer(analyzer=list)
        tokens = [passage_tokens(passage) for passage in self.passages]
        # sparse (n_passages, n_words); None: no passage holds a word
        self._matrix = self._vectorizer.fit_transform(tokens) if any(tokens) else None

    def scores(self, query: str) -> NDArray[np.float64]:
        """The cosine of the query and every passage, (n_passages,)."""
        if self._matrix is None:
            return np.zeros(len(self.passages))
        vector = self._vectorizer.transform([tokenize(query)])
        cosines: NDArray[np.float64] = (self._matrix @ vector.T).toarray()[:, 0]
        return cosines

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """The ``k`` best passages with their scores, best first; ties keep passage order."""
        check_k(k)
        scores = self.scores(query)
        best = best_first(scores, k)
        return scored(self.passages, scores[best], best)

"""A reranker inside this process, through llama.cpp."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from suffice._optional import require
from suffice.errors import BackendError, DataError, UsageError
from suffice.llm.embedded import check_gguf, header_value, processors, quiet_params, start_server
from suffice.trace.rounds.records import Passage, best_reranked, passage_text

_PURPOSE = "The embedded reranker"
_LONGEST = 8192
_KEPT = 0.75
_RANK = struct.pack("<II", 4, 4)  # a number of this kind, and this one of pooling types


class EmbeddedReranker:
    """Scores passages with a GGUF reranker; a :class:`suffice.contracts.Reranker`.

    The file must hold a model that scores pairs (pooling type ``RANK``), as converted cross-encoders
    do. Scores are raw: the network's output, high for relevant. A passage is read as its title and
    text and cut at its end until the pair fits the model. llama.cpp gives both texts the first token
    type, so a BERT trained with two types scores here as if it had been given one. No weights come
    with the package. Safe to call from several threads.

    Use :meth:`close` or ``with`` when done.
    """

    def __init__(self, gguf_path: str | Path, *, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise UsageError(f"threads must be at least 1 or None, found {threads}")
        self._path = Path(gguf_path)
        self._server: Any = _start(self._path, threads or processors())
        # a server that is freed before its loop runs never ends; and a bad model fails here
        self._scores("a", ["a"])

    @property
    def name(self) -> str:
        """The file's name without its suffix."""
        return self._path.stem

    def rerank(self, query: str, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        """The same passages, best first, each with its raw score; equal scores keep their order."""
        if self._server is None:
            raise UsageError("this EmbeddedReranker is closed; open it again")
        if not passages:
            return ()
        scores = self._scores(query, [passage_text(passage) for passage in passages])
        return best_reranked(passages, scores)

    def close(self) -> None:
        """Stop the server and free the weights; may be called twice."""
        self._server = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _scores(self, query: str, texts: Sequence[str]) -> list[float]:
        try:
            reply = self._server.handle_rerank({"query": query, "documents": list(texts)})
        except (RuntimeError, ValueError) as error:
            raise BackendError(f"the reranker {self.name!r} failed: {error}") from error
        if isinstance(reply, dict) and "error" in reply:
            return self._shorter(query, texts, reply["error"])
        try:
            scores = {
                int(result["index"]): float(result["relevance_score"])
                for result in reply["results"]
            }
            return [scores[place] for place in range(len(texts))]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BackendError(
                f"the reranker {self.name!r} gave no score for every passage: {reply!r:.200}"
            ) from error

    def _shorter(self, query: str, texts: Sequence[str], error: Any) -> list[float]:
        """Texts that are too long together one by one, and one that is too long by itself cut."""
        message = str(error.get("message", error) if isinstance(error, dict) else error)
        if "too large" not in message and "larger than" not in message:
            raise BackendError(f"the reranker {self.name!r} refused: {message}")
        if len(texts) > 1:
            return [score for text in texts for score in self._scores(query, [text])]
        kept = texts[0][: int(_KEPT * len(texts[0]))]
        if not kept:
            raise BackendError(f"the query is too long for the reranker {self.name!r}: {message}")
        return self._scores(query, [kept])


def _start(path: Path, threads: int) -> Any:
    check_gguf(path)
    if header_value(path, b".pooling_type") != _RANK:
        raise DataError(
            "not a reranker: its model does not score pairs (pooling type RANK); name a GGUF file of a "
            "cross-encoder",
            file=str(path),
        )
    xllamacpp = require("xllamacpp", extra="embedded", purpose=_PURPOSE)
    params = quiet_params(path, threads=threads, purpose=_PURPOSE)
    params.embedding = True
    params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK
    params.n_ctx = params.n_batch = params.n_ubatch = _LONGEST  # a pair is read in one piece
    params.n_parallel = 1
    return start_server(params, check="")

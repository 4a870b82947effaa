"""Sentence vectors from any server with an OpenAI-compatible ``/v1/embeddings``."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from suffice.errors import BackendError, UsageError
from suffice.llm.endpoint import Endpoint, OpenAISettings
from suffice.llm.translation import BrokenReply
from suffice.llm.wire import excerpt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """How an embedding model is used."""

    batch_size: int = 32
    query_prompt: str = ""
    passage_prompt: str = ""
    name: str | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, found {self.batch_size}")


class EndpointEncoder:
    """An :class:`suffice.contracts.Encoder` over HTTP. Safe to call from several threads.

    Vectors are scaled to length 1. Servers refuse an empty text, so it is sent as one blank. Whether
    a vector depends on the texts beside it is up to the server: llama.cpp with several slots evaluates
    them together, and they move by up to 0.03 in cosine; start it with one (``--parallel 1``).
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        settings: EndpointSettings | None = None,
        server: OpenAISettings | None = None,
    ) -> None:
        self._server = server or OpenAISettings()
        self._settings = settings or EndpointSettings()
        self._endpoint = Endpoint(base_url, self._server)
        self._url = self._endpoint.url
        self._model = model
        self._lock = threading.Lock()
        self._dimension: int | None = None

    @property
    def name(self) -> str:
        """See :class:`EndpointSettings`."""
        if self._settings.name is not None:
            return self._settings.name
        shaping = {
            "query_prompt": self._settings.query_prompt,
            "passage_prompt": self._settings.passage_prompt,
            "extra_body": dict(self._server.extra_body),
        }
        used = {key: value for key, value in shaping.items() if value}
        tail = f" {json.dumps(used, sort_keys=True)}" if used else ""
        return f"endpoint:{self._model}@{self._url}{tail}"

    def encode(
        self, texts: Sequence[str], *, role: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        """A unit vector for every text, (len(texts), dimension).

        No texts cost one request the first time, to learn the dimension.
        """
        import numpy as np

        if not texts:
            dimension = self._dimension or self._ask(["dimension"]).shape[1]
            return np.empty((0, dimension), np.float32)
        settings = self._settings
        prompt = settings.query_prompt if role == "query" else settings.passage_prompt
        sent = [prompt + text or " " for text in texts]
        size = settings.batch_size
        return np.concatenate(
            [self._ask(sent[start : start + size]) for start in range(0, len(sent), size)]
        )

    def close(self) -> None:
        """Close the connections."""
        self._endpoint.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, texts: Sequence[str]) -> NDArray[np.float32]:
        source = f"{self._url} (model {self._model!r})"

        def send(client: Any) -> Any:
            return client.embeddings.with_streaming_response.create(
                model=self._model,
                input=list(texts),
                encoding_format="float",
                extra_body=dict(self._server.extra_body) or None,
            )

        def read(payload: object) -> NDArray[np.float32]:
            return _unit(payload, len(texts), source)

        with self._endpoint.slots:
            vectors = self._endpoint.ask(send, read, model=self._model)
        with self._lock:
            expected = self._dimension = self._dimension or vectors.shape[1]
        if vectors.shape[1] != expected:
            raise BackendError(
                f"{source} sent vectors of {expected} numbers before and of {vectors.shape[1]} now; "
                "check that it still runs the same model"
            )
        return vectors


def _unit(payload: object, n: int, source: str) -> NDArray[np.float32]:
    """The vectors of a reply in the order of the texts, scaled to length 1."""
    import numpy as np

    try:
        rows: Any = payload["data"]  # type: ignore[index]
        places = [row.get("index", place) for place, row in enumerate(rows)]
        by_place = {place: row["embedding"] for place, row in zip(places, rows, strict=True)}
        vectors = np.array([[*by_place[place]] for place in range(n)], dtype=np.float64)
        if len(rows) != n:
            raise ValueError(f"{len(rows)} vectors for {n} texts")  # noqa: TRY301
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
        raise BrokenReply(
            f"{source} sent no vector of numbers for each text ({error!r}): {excerpt(payload)}. Check that "
            "the server has /v1/embeddings and runs an embedding model"
        ) from error
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise BackendError(
            f"{source} sent numbers of shape {vectors.shape} instead of one vector a text; a server "
            "that gives one vector a token needs its pooling set (llama.cpp: --pooling mean)"
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    wrong = ~(np.isfinite(lengths) & (lengths > 0))
    if wrong.any():
        raise BrokenReply(
            f"{source} sent a vector of zeros, or of NaN or infinite numbers, for text "
            f"{int(np.argmax(wrong))} of {n}; check that the server runs an embedding model and its log"
        )
    unit: NDArray[np.float32] = (vectors / lengths).astype(np.float32)
    return unit

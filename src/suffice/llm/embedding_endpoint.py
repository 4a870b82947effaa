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
    """An :class:`suffice.protocols.Encoder` over HTTP. Safe to call from several threads.

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
            return _unit(_embeddings(payload, len(texts), source), source)

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


_NUMBERS = frozenset({int, float, list, type(None)})
"""What may stand in a vector; what null and lists mean is told by the shape and the numbers."""


def _embeddings(payload: object, n: int, source: str) -> list[object]:
    """The vectors of a reply in the order of the texts."""
    rows: Any = payload.get("data") if isinstance(payload, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BrokenReply(
            f"{source} sent no list of embeddings: {excerpt(payload)}. Check that the server "
            "has /v1/embeddings and runs an embedding model"
        )
    if len(rows) != n:
        raise BrokenReply(f"{source} sent {len(rows)} vectors for {n} texts; check its log")
    places = [row.get("index", place) for place, row in enumerate(rows)]
    if any(type(place) is not int for place in places) or sorted(places) != list(range(n)):
        raise BrokenReply(
            f"{source} numbered its {n} vectors {str(places)[:200]}, not 0 to {n - 1} once each"
        )
    ordered: list[Any] = [None] * n
    for place, row in zip(places, rows, strict=True):
        ordered[place] = row.get("embedding")
    return ordered


def _unit(embeddings: list[Any], source: str) -> NDArray[np.float32]:
    import numpy as np

    kinds = {kind for row in embeddings if isinstance(row, list) for kind in map(type, row)}
    if not kinds <= _NUMBERS:  # numpy would read True as 1.0 and "1.5" as 1.5
        others = ", ".join(sorted(kind.__name__ for kind in kinds - _NUMBERS))
        raise BrokenReply(f"{source} sent vectors that are not numbers: they hold {others}")
    try:
        vectors = np.array(embeddings, dtype=np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise BrokenReply(
            f"{source} sent vectors that are not numbers or of several lengths: {error}"
        ) from error
    if vectors.ndim != 2 or not vectors.shape[1]:
        kind = BrokenReply if None in embeddings else BackendError
        raise kind(
            f"{source} sent numbers of shape {vectors.shape} instead of one vector a text; a server "
            "that gives one vector a token needs its pooling set (llama.cpp: --pooling mean)"
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    for name, wrong in (
        ("NaN or infinite numbers", ~np.isfinite(lengths[:, 0])),
        ("only zeros", lengths[:, 0] == 0),
    ):
        if wrong.any():
            raise BrokenReply(
                f"{source} sent a vector of {name} for text {int(np.argmax(wrong))} of "
                f"{len(vectors)}; check that the server runs an embedding model and its log"
            )
    unit: NDArray[np.float32] = (vectors / lengths).astype(np.float32)
    return unit

